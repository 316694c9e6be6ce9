"""The forms of an answer: units, quotes, fences, JSON, Python, CSV, Markdown, dates, booleans."""

from functools import partial

import pytest

from env_server.verifier import Gold, answer_verdicts, judge_answer
from tests.env_server.verifier.timing import cpu_s

UNORDERED = "SELECT a FROM t"


def gold(answer: object, kind: str, question: str = "") -> Gold:
    return Gold.of(answer, kind, UNORDERED, question)  # type: ignore[arg-type]


def check(right: Gold, accepted: list[str], refused: list[str]) -> None:
    assert {text: judge_answer(text, right) for text in accepted} == dict.fromkeys(accepted, True)
    assert {text: judge_answer(text, right) for text in refused} == dict.fromkeys(refused, False)


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (42, ["42 kg", "42kg", "42 KG.", "42%", "42 %", "42 percent", "$42", "$ 42.00", "€42",
              "42 USD", "42 years",
              "42 km/h", "42 km²", "42 square metres", "+42 °C", "Answer: 42 kg", '"42 kg"'],
         ["43 kg", "42 furlongs", "42 or 43", "42 to 43", "42 kg 43 kg", "kg 42", "42 4",
          "42 million", "42 thousand",
          "42k", "42 dozen", "$42 %", "$$42", "42 bn", "42 kg or more", "about 42", "~42", "<50",
          "42-43", "42/43",
          "42 square kg", "0.42", "%42", "42 kg\n43 kg"]),
        (-5, ["-5 °C", "-$5", "$-5", "−5", "−5 °C"], ["5 °C", "$5", "--5"]),
        (1234567, ["1,234,567 people", "$1,234,567", "1\u00a0234\u00a0567", "1\u202f234\u202f567"],
         ["1 234 567", "1,234,56 kg", "1.234.567", "1'234'567"]),
    ],
)  # fmt: skip
def test_an_integer_with_a_unit(answer: int, right: list[str], wrong: list[str]) -> None:
    check(gold(answer, "integer"), right, wrong)


def test_a_float_with_a_unit() -> None:
    check(gold(12.3456, "float"), ["12.35 kg", "$12.35", "12.3%"], ["12 kg", "12.4 kg", "0.123"])
    # the number counts as written
    check(gold(0.42, "float"), ["0.42", "0.42%"], ["42%", "42"])


def test_a_word_of_the_question_is_a_unit() -> None:
    singers = gold(
        7, "integer", "How many singers came from cities with more than a million people?"
    )
    check(
        singers,
        ["7 singers", "7 Singer", "7 cities", "7 city"],
        ["7 songs", "7 million", "7 more", "7 than", "8 singers"],
    )
    check(gold(7, "integer"), [], ["7 singers"])


def test_units_in_lists_and_tables() -> None:
    check(
        gold([5, 6], "list"),
        ["5 kg, 6 kg", "5 kg\n6 kg", '["5 kg", "6 kg"]'],
        ["5 kg 6 kg", "5, 7 kg"],
    )
    check(gold([["a", 5]], "table"), ["a | 5 kg", '["a", "$5"]'], ["a kg | 5", "a | 6 kg"])


def test_a_texts_unit_is_part_of_it() -> None:
    check(gold("42 kg", "string"), ["42 kg"], ["42", "42 lb", "42kg"])


def test_booleans_are_one_and_zero() -> None:
    check(gold(1, "integer"), ["true", "True", "[true]", '"TRUE"'], ["false", "yes", "t"])
    check(gold(0, "integer"), ["false", "[false]"], ["true", "no", "null"])
    check(gold("true", "string"), ["true", "[true]", "True"], ["1", "false"])
    check(
        gold([["a", 1], ["b", 0]], "table"),
        ['[["a", true], ["b", false]]', "a | true\nb | false"],
        ["a | false\nb | true"],
    )
    check(gold(2, "integer"), [], ["true", "[true]"])


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("2021-03-01", ["2021-03-01", "2021-03-01 00:00:00", "2021-03-01T00:00",
                        '"2021-03-01T00:00:00"'],
         ["2021-03-02", "2021-3-1", "1 March 2021", "03/01/2021", "20210301", "2021-03",
          "2021-03-01 00:00:01",
          "2021-03-01T00:00:00Z", "2021-W09-1"]),
        ("2021-03-01 10:30:00", ["2021-03-01T10:30:00", "2021-03-01 10:30",
                                 "2021-03-01T10:30:00.000"],
         ["2021-03-01", "2021-03-01 10:30:01", "10:30"]),
        ("2021-03-01T10:00:00Z", ["2021-03-01 11:00:00+01:00", "2021-03-01T10:00:00Z"],
         ["2021-03-01T10:00:00"]),
        ("March 1, 2021", ["march 1, 2021"], ["2021-03-01"]),
        ("2021-02-30", ["2021-02-30"], ["2021-03-02", "2021-02-30 00:00"]),
    ],
)  # fmt: skip
def test_dates_are_iso_on_both_sides_or_text(
    answer: str, right: list[str], wrong: list[str]
) -> None:
    check(gold(answer, "string"), right, wrong)


def test_other_scripts() -> None:
    check(gold("Ολυμπία", "string"), ["ολυμπία", "ΟΛΥΜΠΊΑ", "«Ολυμπία»"], ["Ολυμπια"])
    check(gold("東京", "string"), ["東京", '"東京"'], ["京東"])
    check(gold("straße", "string"), ["STRASSE", "Straße"], ["strase"])
    check(gold(["Zoë", "Ångström"], "list"), ["A\u030angstro\u0308m, Zoe\u0308"], ["Angstrom, Zoe"])


def test_fences_bold_and_prefixes() -> None:
    right = [
        "**42**", "**Answer:** 42", "**Answer: 42**", "The final answer is: 42",
        "Answer:\n```\n42\n```",
        "```json\n42\n```", "```\n**42**\n```", "answer = 42",
    ]  # fmt: skip
    check(
        gold(42, "integer"),
        right,
        ["**42** **43**", "**42", "Answer 42", "It's 42", "```42", "*42*"],
    )


@pytest.mark.parametrize(
    "text",
    ['{"answer": 42}', '{"count(*)": 42}', '[{"n": 42}]', '{"rows": [[42]]}', "(42,)", "[(42,)]",
     "| 42 |",
     "| n |\n|---|\n| 42 |", "{'n': 42}"],
)  # fmt: skip
def test_a_number_in_json_python_and_markdown(text: str) -> None:
    assert judge_answer(text, gold(42, "integer"))
    assert not judge_answer(text, gold(43, "integer"))


def test_lists_in_json_python_csv_and_markdown() -> None:
    right = [
        "['Ann', \"O'Neil\", 'Bob']", "('Ann', 'O\\'Neil', 'Bob',)",
        "[('Ann',), (\"O'Neil\",), ('Bob',)]",
        '{"name": ["Ann", "O\'Neil", "Bob"]}',
        '[{"name": "Ann"}, {"name": "O\'Neil"}, {"name": "Bob"}]',
        "| Ann |\n| O'Neil |\n| Bob |", '["Ann"]\n["O\'Neil"]\n["Bob"]',
        '{"n": "Ann"}\n{"n": "O\'Neil"}\n{"n": "Bob"}',
        "Ann,O'Neil,Bob",
    ]  # fmt: skip
    wrong = [
        "['Ann', 'Bob']", '{"a": "Ann", "b": "Bob"}', "| Ann | O'Neil | Bob |",
        "['Ann', 'Bob', 'Ann']",
        '[{"a": "Ann", "b": 1}, {"a": "O\'Neil", "b": 1}, {"a": "Bob", "b": 1}]',
    ]  # fmt: skip
    check(gold(["Ann", "O'Neil", "Bob"], "list"), right, wrong)


def test_csv_quotes() -> None:
    check(
        gold(['say "hi", you', "b"], "list"),
        ['"say ""hi"", you",b', '"say ""hi"", you"\nb'],
        ["say hi, you, b"],
    )
    check(
        gold([["a\nb", 1], ["c,d", 2]], "table"),
        ['"a\nb",1\n"c,d",2', '"c,d", 2\n"a\nb", 1'],
        ["a\nb,1\nc,d,2"],
    )
    check(gold([["a", 1234]], "table"), ['a,"1,234"', "a, 1,234", "a | 1,234"], ["a,1,234"])


def test_tables_in_json_and_python() -> None:
    right = [
        "[('mug', 10), ('lamp', None)]", '{"what": ["mug", "lamp"], "n": [10, null]}',
        '["mug", 10]\n["lamp", null]',
        '{"rows": [["mug", 10], ["lamp", null]]}',
        '{"w": "mug", "n": 10}\n{"w": "lamp", "n": null}', "mug,10\nlamp,",
    ]  # fmt: skip
    wrong = [
        '{"what": ["mug", "lamp"], "n": [null, 10]}', '{"what": ["mug", "lamp"]}', "[('mug', 10)]",
        "{}", "[{}]",
        "[('mug', 10, 1), ('lamp', None, 1)]", '{"what": ["mug", "lamp"], "n": [10]}',
    ]  # fmt: skip
    check(gold([["mug", 10], ["lamp", None]], "table"), right, wrong)
    check(
        gold([["mug", 10]], "table"),
        ['{"what": "mug", "n": 10}', "('mug', 10)"],
        ['{"n": 10, "what": "mug"}'],
    )


def test_bars_within_a_markdown_cell() -> None:
    check(gold([["a|b", 1]], "table"), [r"| a\|b | 1 |", '["a|b", 1]'], ["| a|b | 1 |"])
    check(gold([["a\\", 1]], "table"), ["a\\| 1", "a\\ | 1"], ["a | 1"])


def test_a_header_counts_only_above_a_rule() -> None:
    check(
        gold([["mug", 10], ["lamp", 2]], "table"),
        ["w | n\n---|---\nmug | 10\nlamp | 2"],
        ["w | n\nmug | 10\nlamp | 2"],
    )


@pytest.mark.parametrize(
    "text",
    ["(" * 20_000, "['" * 10_000, "{'a':" * 4_000, "[" + "'a'," * 5_000, "'" * 20_000,
     '["' + "\\" * 19_000,
     "|" * 20_000, "[\n" * 10_000, '"' * 20_000, "$" * 20_000, "1," * 10_000, "True " * 4_000,
     "[" + " " * 19_000 + "x",
     "," + " " * 19_000, "[" + ", " * 9_000, "**" * 10_000, "Answer: " * 2_500],
    ids=lambda text: text[:6],
)  # fmt: skip
def test_hostile_texts_are_wrong_and_cheap(text: str) -> None:
    for right in (
        gold(1, "integer"),
        gold(0.5, "float"),
        gold(["a", "b"], "list"),
        gold([["a", 1]], "table"),
    ):
        assert not any(answer_verdicts(text, right).values())
        assert cpu_s(partial(answer_verdicts, text, right)) < 0.5  # quadratic time would be minutes


NOTHING = ["[]", "none", "NULL", "null.", "**none**", "Answer: []", "```json\n[]\n```", "(no rows)"]


@pytest.mark.parametrize("kind", ["list", "table"])
def test_a_gold_without_rows(kind: str) -> None:
    empty = gold([], kind)
    check(empty, NOTHING, ["0", "[0]", "[null]", "[[]]", "Ann", "no", "unknown", "nothing, none"])
    for text in NOTHING:
        assert answer_verdicts(text, empty) == {"strict": True, "spider": True, "bird": True}
    # and no other gold's answer
    check(gold(["a"], "list"), [], NOTHING)
    check(gold([["a", 1]], "table"), [], NOTHING)
    check(gold(0, "integer"), [], NOTHING)
    check(gold("a", "string"), [], NOTHING)


def test_a_gold_of_nothing_but_null() -> None:
    check(gold(None, "string"), ["NULL", "none", "null", "[]", "[null]"], ["0", "Ann", "[0]"])
    # several NULLs are a list or a table like any other
    check(gold([None, None], "list"), ["[null, null]", "NULL\nNULL"], ["[]", "none", "[null]"])
    check(gold([[None, None]], "table"), ["NULL | NULL", "[[null, null]]"], ["[]", "none"])
