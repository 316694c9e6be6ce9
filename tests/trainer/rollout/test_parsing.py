"""The parser accepts any text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.actions import MAX_ARGUMENT_BYTES, ActionType, SQLAction, parse_action, render_action
from trainer.errors import ActionParseError
from trainer.rollout.parsing import (
    ParsedAction,
    begins_action,
    first_turn,
    parse_model_output,
    parse_with_fallback,
    whole_turn,
)

_PIECES = st.sampled_from(
    ["QUERY", "ANSWER", "describe", "Action:", "argument:", ":", "(", ")", "```sql", "```", "**",
     "\n", " ", "<think>", "</think>", '{"action_type": "', '"', "}", "[", "\\", "`", "SELECT 1",
     "table ", "\x00", "é", "42", ";"]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DESCRIBE: singer", "DESCRIBE: singer"),
        ("describe singer", "DESCRIBE: singer"),
        ("DESCRIBE table singer", "DESCRIBE: singer"),
        ('DESCRIBE "singer";', "DESCRIBE: singer"),
        ("DESCRIBE: [singer]", "DESCRIBE: singer"),
        ('DESCRIBE: a\n{"name": "answer", "arguments": {"value": 42}}', "DESCRIBE: a"),
        ("Select the right table.\n\nDESCRIBE: a", "DESCRIBE: a"),
        ("Query: select 1", "QUERY: select 1"),
        ("QUERY SELECT name\nFROM t", "QUERY: SELECT name\nFROM t"),
        ("QUERY: SELECT a\nFROM t\nANSWER: 3", "QUERY: SELECT a\nFROM t"),
        ("QUERY: SELECT\n  a,\n  answer\nFROM t", "QUERY: SELECT\n  a,\n  answer\nFROM t"),
        (
            "QUERY: SELECT a\nFROM\n  sample s\nWHERE\n  answer = 'x'",
            "QUERY: SELECT a\nFROM\n  sample s\nWHERE\n  answer = 'x'",
        ),
        ("QUERY: SELECT 1;\nanswer\n1", "QUERY: SELECT 1;"),
        ("I will select columns.\ndescribe singer", "DESCRIBE: singer"),
        ("QUERY(SELECT COUNT(*) FROM t)", "QUERY: SELECT COUNT(*) FROM t"),
        ("QUERY: (SELECT 1) UNION (SELECT 2)", "QUERY: (SELECT 1) UNION (SELECT 2)"),
        ("QUERY: SELECT `a` FROM `t`", "QUERY: SELECT `a` FROM `t`"),
        ("QUERY: `SELECT a FROM t`", "QUERY: SELECT a FROM t"),
        ("```sql\nQUERY: SELECT 1\n```", "QUERY: SELECT 1"),
        ("QUERY:\n```sql\nSELECT 1\nFROM t\n```", "QUERY: SELECT 1\nFROM t"),
        ("Action: QUERY\nArgument: SELECT 1", "QUERY: SELECT 1"),
        ("**Action:** QUERY\n**Argument:** SELECT 1", "QUERY: SELECT 1"),
        ("Action: ANSWER: 5", "ANSWER: 5"),
        ("**ANSWER: 42**", "ANSWER: 42"),
        ("__ANSWER:__ 42", "ANSWER: 42"),
        ("So:\nANSWER: **42**", "ANSWER: 42"),
        ("**ANSWER:**\n**42**", "ANSWER: 42"),
        ("- DESCRIBE: a\n- DESCRIBE: b", "DESCRIBE: a"),
        ("1. SAMPLE: a", "SAMPLE: a"),
        ("Let me look at the tables first.\nDESCRIBE: a", "DESCRIBE: a"),
        ("Query results show nothing.\nANSWER: 0", "ANSWER: 0"),
        ("<think>I could QUERY: SELECT 2</think>\n\nQUERY: SELECT 1", "QUERY: SELECT 1"),
        ('{"action_type": "QUERY", "argument": "SELECT 1"}', "QUERY: SELECT 1"),
        ('```json\n{"action": "answer", "argument": [1, 2]}\n```', "ANSWER: [1, 2]"),
        ("ANSWER: a | 1\nb | 2", "ANSWER: a | 1\nb | 2"),
        ('{"action": "answer", "argument": "\\ud800"}', "ANSWER: ?"),
        ("ANSWER 42", "ANSWER: 42"),
        ("### Answer\n42", "ANSWER: 42"),
        ('ANSWER: [["Ann", 3], ["Bo", 1]]', 'ANSWER: [["Ann", 3], ["Bo", 1]]'),
        # the canonical form is taken as it is
        ("ANSWER: arg: x", "ANSWER: arg: x"),
        ("ANSWER: 2**", "ANSWER: 2**"),
        ("answer: 2**", "ANSWER: 2"),
        ('With {x} set: {"action": "answer", "argument": 3}', "ANSWER: 3"),
        ('Now: {"action": "answer", "argument": {"a": 1}}', 'ANSWER: {"a": 1}'),
        ('{"action": "answer", "argument": "a\nb"}', "ANSWER: a\nb"),
        ('{"action": "answer", "args": ["Zoë"]}', 'ANSWER: ["Zoë"]'),
        # without a colon
        (
            "query with a as (select 1) select * from a",
            "QUERY: with a as (select 1) select * from a",
        ),
        # brackets
        ("QUERY(SELECT 1);", "QUERY: SELECT 1"),
        ("**QUERY(SELECT 1) **", "QUERY: SELECT 1"),
        ("QUERY(SELECT 1)X", "QUERY: (SELECT 1)X"),
        ("QUERY(SELECT (1)", "QUERY: (SELECT (1)"),
        # only the first of several labels
        ("**QUERY:** SELECT 'arg: 1'", "QUERY: SELECT 'arg: 1'"),
        ("Action: QUERY\nArgument: SELECT 'arg: 1'", "QUERY: SELECT 'arg: 1'"),
        ("DESCRIBE: the table table a", "DESCRIBE: table a"),
        # names of tables
        ('DESCRIBE table "singer"', "DESCRIBE: singer"),
        ("DESCRIBE: `a`;", "DESCRIBE: a"),
        ("DESCRIBE: 'a'", "DESCRIBE: a"),
        ('DESCRIBE: table ""', 'DESCRIBE: ""'),
        ('DESCRIBE: "a ""b"""', 'DESCRIBE: a "b"'),
        ('DESCRIBE: "[a]"', "DESCRIBE: [a]"),
        ('DESCRIBE: "table x";', "DESCRIBE: table x"),
        ("I look first.\n- **DESCRIBE:** _meta", "DESCRIBE: _meta"),
        ("**SAMPLE:**_meta", "SAMPLE: _meta"),
        ("So:\n\nANSWER: **Ann**, **Bob**", "ANSWER: **Ann**, **Bob**"),
        ("**ANSWER:** **Ann**, **Bob**", "ANSWER: **Ann**, **Bob**"),
        ("So:\nANSWER: **Ann**", "ANSWER: Ann"),
        ("ANSWER:\n- **Ann**\n- **Bob**", "ANSWER: - **Ann**\n- **Bob**"),
    ],
)
def test_parse_model_output_near_forms(text, expected):
    action = parse_model_output(text, strict=True)
    assert render_action(action) == expected
    assert parse_with_fallback(text).action == action
    assert not parse_with_fallback(text).fallback


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT COUNT(*) FROM singer", "QUERY: SELECT COUNT(*) FROM singer"),
        ("```sql\nSELECT a\nFROM t;\n```\nThis counts them.", "QUERY: SELECT a\nFROM t;"),
        ("To find it:\n\n```\nWITH x AS (SELECT 1) SELECT * FROM x\n```",
         "QUERY: WITH x AS (SELECT 1) SELECT * FROM x"),
        ("First I look.\nSELECT a\nFROM t\n\nThen I answer.", "QUERY: SELECT a\nFROM t"),
        ("```sql\nSELECT\n  a,\n  answer\nFROM t\n```", "QUERY: SELECT\n  a,\n  answer\nFROM t"),
        ("I use SQL:\n`SELECT a FROM t`", "QUERY: SELECT a FROM t"),
        ("SELECT `a` FROM `t`", "QUERY: SELECT `a` FROM `t`"),
        ("SELECT a FROM t WHERE b = 'x; y'; done", "QUERY: SELECT a FROM t WHERE b = 'x; y'"),
        # the first action counts, not what the model says that it finds
        ("SELECT a FROM t\nANSWER: 5", "QUERY: SELECT a FROM t"),
        ("```sql\nSELECT 1\n```\nANSWER: 1", "QUERY: SELECT 1"),
        # Qwen's, Llama's and OpenAI's tool calls
        ('<tool_call>\n{"name": "query", "arguments": {"sql": "SELECT 1"}}\n</tool_call>',
         "QUERY: SELECT 1"),
        ('{"name": "describe_table", "parameters": {"table_name": "orders"}}', "DESCRIBE: orders"),
        ('{"function": {"name": "answer", "arguments": "{\\"value\\": 42}"}}', "ANSWER: 42"),
        ('{"name": "sample", "arguments": "orders"}', "SAMPLE: orders"),
        ('{"name": "answer", "arguments": "1.50"}', "ANSWER: 1.50"),
        ('{"name": "answer", "arguments": "\\"Ann\\""}', "ANSWER: Ann"),
        ('{"name": "ANSWER", "arguments": {"rows": [["a", 1]]}}', 'ANSWER: [["a", 1]]'),
    ],
)  # fmt: skip
def test_sql_alone_and_tool_calls_are_the_action_that_they_mean(text, expected):
    parsed = parse_with_fallback(text)
    assert render_action(parsed.action) == expected
    assert (parsed.inferred, parsed.fallback) == (True, False)


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("DESCRIBE: a\nQUERY: SELECT 1", "DESCRIBE: a"),
        ("DESCRIBE: a", None),
        ("Let me see.\nDESCRIBE: a\nResult:", "Let me see.\nDESCRIBE: a"),
        ("### Answer\n42\n", "### Answer\n42"),
        ("SELECT a\nFROM t\nWHERE b", None),
        ("SELECT a\nFROM t;\nThis", "SELECT a\nFROM t;"),
        ("SELECT a\n\nThis", "SELECT a\n"),
        ("SELECT `a`\nFROM `t`\n", None),
        ("QUERY: SELECT `a`\nFROM t\n", None),
        ("SELECT a FROM t\nANSWER: 5\n", "SELECT a FROM t\nANSWER: 5"),
        ("Select a table.\n\nDESCRIBE: a\n", "Select a table.\n\nDESCRIBE: a"),
        ("ANSWER: [\n1,\n2]\nThis", "ANSWER: [\n1,\n2]"),
        ('ANSWER: [["Ann", 3],\n["Bo", 1]]\n', 'ANSWER: [["Ann", 3],\n["Bo", 1]]'),
        ("ANSWER: [sic\n\nThis", "ANSWER: [sic\n"),
        ("ANSWER: Ann\nBo\n", "ANSWER: Ann"),
        ("<think>\nQUERY: a\n</think>\nQUERY: SELECT a\nFROM t\n", None),
        ("QUERY: SELECT a\nFROM t\nWHERE b\n", None),
        ("QUERY: SELECT a\nFROM t;\nThis", "QUERY: SELECT a\nFROM t;"),
        ("QUERY: SELECT 1\nANSWER: 1\n", "QUERY: SELECT 1\nANSWER: 1"),
        ("QUERY: SELECT a FROM t\nWHERE b", "QUERY: SELECT a FROM t"),
        ("```sql\nQUERY: SELECT a\nFROM t\n", None),
        ("```sql\nSELECT a\nFROM t\n```\nThis", "```sql\nSELECT a\nFROM t\n```"),
        ("<think>\nDESCRIBE: a\n", None),
        ("```\nDESCRIBE: a\n", None),
        ("<think>\nDESCRIBE: a\n</think>\n\nSAMPLE: b\n",
         "<think>\nDESCRIBE: a\n</think>\n\nSAMPLE: b"),
        ("Look.\nDESCRIBE: a\n</think>\n\nSAMPLE: b\nx",  # the prompt opened the block
         "Look.\nDESCRIBE: a\n</think>\n\nSAMPLE: b"),
        ("I am\nnot sure\n", None),
        ("QUERY: SELECT a FROM t; This counts", "QUERY: SELECT a FROM t;"),
        ("QUERY: SELECT a FROM t WHERE b = 'x;", None),
        ("QUERY: SELECT a FROM t WHERE b = 'x;y'; So", "QUERY: SELECT a FROM t WHERE b = 'x;y';"),
        ('QUERY: SELECT a FROM "t;', None),
        ("QUERY: SELECT a /* x; */ FROM t;", "QUERY: SELECT a /* x; */ FROM t;"),
        ("QUERY: SELECT a -- x; ", None),
        ("QUERY: SELECT [a;b] FROM t; So", "QUERY: SELECT [a;b] FROM t;"),
        ("QUERY: SELECT \"it's\" FROM t; So", "QUERY: SELECT \"it's\" FROM t;"),
        ("```sql\nSELECT a;\nSELECT b;\n```", "```sql\nSELECT a;"),
        ("ANSWER: a; b", None),
        ("DESCRIBE: a; it", None),
        ("First; then", None),
        ("<think>\nSELECT a FROM t;", None),
    ],
)  # fmt: skip
def test_a_turn_ends_with_its_first_line_or_statement(text, turn):
    assert first_turn(text) == turn


@pytest.mark.parametrize(
    ("turn", "rest"),
    [
        ("QUERY: SELECT count(*) FROM t\nWHERE a > 1;", "\nSo"),
        ("QUERY: SELECT a FROM (\n  SELECT * FROM t\n) LIMIT 1", "\nThis gives one."),
        ("QUERY: SELECT a FROM t", "\nThis gives all."),
        ("QUERY: SELECT a FROM t;", "\nWHERE it is"),
        ("QUERY: SELECT a FROM t", "\nFrom this I can answer."),
        ("QUERY: SELECT a FROM t", "\n(1 row)"),
        ("QUERY: SELECT a FROM t WHERE b LIKE '%(%'", "\nThis finds it."),
        ("ANSWER: -5", "\n- the query shows it"),
        ("ANSWER: - 5", "\n---"),
        ("ANSWER: **Ann**", "\n**Explanation:** it is"),
        ("ANSWER:\n- Ann\n- Bo", "\nThese are all."),
        ("ANSWER:\n| a | b |\n|---|---|\n| Ann | 3 |", "\n\nI am sure."),
        ("ANSWER: 42", "\n- as the query shows"),
        ("DESCRIBE: a", "\nSAMPLE: b"),
        ("SELECT a\nFROM t", ""),
    ],
)
def test_a_complete_reply_goes_on_where_its_action_does(turn, rest):
    assert whole_turn(turn + rest) == turn


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("The table that the question is about", False),
        ("I'd SELECT the table\nand then", False),
        ("To see it:\nDESCRIBE: a", True),
        ("To see it:\nSELECT a", True),
        ("To see it:\n```", True),
        ('To see it: {"action_type": "DES', True),
        ("<think>\nThe table", True),
        ("ANSWER: [1, 2", True),
    ],
)
def test_prose_has_not_come_to_an_action(text, begun):
    assert begins_action(text) is begun


def test_a_strict_parse_refuses_text_that_is_no_action():
    with pytest.raises(ActionParseError, match=r"no action in 'I am not sure'; expected"):
        parse_model_output("I am not sure", strict=True)


@settings(max_examples=400)
@given(st.one_of(st.text(), st.lists(_PIECES, max_size=14).map("".join)))
def test_no_text_breaks_the_parser(text):
    parsed = parse_with_fallback(text)
    assert 1 <= len(parsed.action.argument) <= MAX_ARGUMENT_BYTES
    # what is sent is what was parsed
    assert parse_action(render_action(parsed.action).encode().decode()) == parsed.action


@pytest.mark.timeout(30)  # quadratic time is minutes
@pytest.mark.parametrize(
    "text",
    [
        " " * 50_000 + "x",
        "```" * 20_000,
        "action:" + " " * 50_000,
        "QUERY" + "\n" * 50_000,
        "<think>" * 10_000,
        "QUERY(" + "(" * 20_000 + "{" * 20_000,
        "QUERY " * 10_000,
        "ANSWER\n" * 10_000,
        "SELECT '\n" * 10_001,
        "`SELECT;\n" * 10_000,
        '{"a":' * 20_000 + '"action":"query"',
    ],
)
def test_long_hostile_text_takes_no_quadratic_time(text):
    assert len(parse_model_output(text).argument) <= MAX_ARGUMENT_BYTES


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("I don't know", "I don't know"),
        ("  The answer is 42. ", "The answer is 42."),
        ("DESCRIBE:", "DESCRIBE:"),
        ("INSPECT: singer", "INSPECT: singer"),
        ('{"action_type": "DROP", "argument": "t"}', '{"action_type": "DROP", "argument": "t"}'),
        ("", "(empty)"),
        ("   \n", "(empty)"),
        ("<think>never closed", "<think>never closed"),
        ("```\nhello there\n```", "hello there"),
        *(
            (text, text)
            for text in (
                "Describe X and Y first.",
                "DESCRIBE the table the table a",
                "You can select the names with WHERE.",
                '{"action": "query", "action_type": 5, "argument": "x"}',
                '{"action": "answer", "ARGS": 7}',
                '{"name": "query", "arguments": {"sql": "SELECT 1", "limit": 2}}',
                '{"name": "drop_table", "arguments": {"name": "t"}}',
            )
        ),
        ("DESCR\u0130BE: singer", "DESCR\u0130BE: singer"),
    ],
)
def test_parse_model_output_fallback(text, argument, caplog):
    """Text that is no action is a QUERY with the raw text, and logged as a warning."""
    with caplog.at_level("WARNING", logger="trainer.rollout.parsing"):
        action = parse_model_output(text)
    assert action == SQLAction(action_type=ActionType.QUERY, argument=argument)
    assert parse_with_fallback(text) == ParsedAction(action, fallback=True)
    assert "it is sent as a QUERY" in caplog.text


@pytest.mark.parametrize("key", ["action_type", "action"])
def test_an_object_that_names_its_action_is_no_tool_call(key):
    query = SQLAction(action_type=ActionType.QUERY, argument="SELECT 1")
    written = f'{{"{key}": "query", "argument": "SELECT 1"}}'
    assert parse_with_fallback(written) == ParsedAction(query)
    assert parse_with_fallback(f'{{"{key}": "query_table", "argument": "a"}}').fallback


def test_deep_arguments_are_texts():
    deep = "[" * 100_000
    parsed = parse_with_fallback(f'{{"name": "answer", "arguments": "{deep}"}}')
    assert parsed.action.argument == deep[:MAX_ARGUMENT_BYTES]
