"""Right and wrong answers of each type, in the forms that models write."""

import pytest

from env_server.verifier import Gold, is_ordered, judge_answer

ORDERED = "SELECT name FROM t ORDER BY age"
UNORDERED = "SELECT name FROM t"
NAMES = ["Ann", "Zoë", "Bob"]
TABLE = [["mug", 10], ["lamp", 2.5], [None, 1]]


def gold(answer: object, kind: str, sql: str = UNORDERED) -> Gold:
    return Gold.of(answer, kind, sql)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (
            42,
            ["42", " 42 ", "42.0", "+42", "Answer: 42", "final answer: 42", "```\n42\n```",
             "```text\nAnswer: 42\n```",
             '"42"', "[42]", "[[42]]", "42.", "4.2e1", "The answer is: 42"],
            ["43", "42.1", "", "It is 42", "42 43", "42, 42", "4 2", "forty-two", "[42, 42]",
             "42%%", "NaN", "inf",
             "0x2A", "42abc", "1e999", "null", "٤٢"],
        ),
        (1234567, ["1,234,567", "1234567"],
         ["1,23,4567", "1234,567", "1234568", "1.234567", "1_234_567"]),
        (-5, ["-5", "-5.0"], ["5", "- 5"]),
        (0, ["0", "0.0", "-0"], ["", "NULL", "0.1"]),
        (1, ["1", "1.0"], ["one", "-1"]),
        (9007199254740993, ["9007199254740993"], ["9007199254740992", "9007199254740994"]),
    ],
)  # fmt: skip
def test_integers(answer: int, right: list[str], wrong: list[str]) -> None:
    check(gold(answer, "integer"), right, wrong)


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (12.3456, ["12.3456", "12.35", "12.3", "12.346", "12.34560", "12.3456000001", "1.235e1"],
         ["12", "12.34", "12.4", "12.3457", "12.30", "13", "123456"]),
        (58.125, ["58.125", "58.13", "58.12", "58.1"], ["58.2", "58", "60"]),
        (0.1 + 0.2, ["0.3", "0.30", "0.300", "0.30000000000000004"], ["0.31", "0.4", "0"]),
        (24.5, ["24.5", "24.50", "24.5."], ["24", "25", "24.6", "2.45"]),
        (12.0, ["12", "12.0", "12.00"], ["12.1", "11.9", "13"]),
        (1234.567, ["1,234.567", "1234.57", "1235"], ["1230", "1234", "1.23e3"]),
        (0.00012345, ["0.00012345", "0.000123", "1.23e-4"], ["0.0001", "0.00012", "0", "0.000"]),
        (-7.25, ["-7.25", "-7.2", "-7.3"][:1], ["7.25", "-7"]),
        (1e300, ["1e300"], ["1e299", "inf"]),
    ],
)  # fmt: skip
def test_floats(answer: float, right: list[str], wrong: list[str]) -> None:
    check(gold(answer, "float"), right, wrong)


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("desk", ["desk", "Desk", " DESK ", '"desk"', "'desk'", "`desk`", "desk.", '"desk".',
                  "Answer: desk",
          "```\ndesk\n```", "```desk```",     '["desk"]', "“desk”"],
         ["desks", "the desk", "des", "", "desk, lamp", '["desk", "lamp"]', "de sk"]),
        ("New  York", ["New York", "new york"], ["NewYork", "New\tYorks"]),
        ("a\nb", ["a\\nb", "a\nb", "a b"], ["ab"]),
        ("Inc.", ["Inc.", "inc.", '"Inc."'], ["Inc"]),
        ("007", ["007", "'007'"], ["7", "7.0"]),
        ("Zoë", ["Zoë", "Zoe\u0308", "ZOË"], ["Zoe"]),
        ("Answer: yes", ["Answer: yes", "Answer: Answer: yes"], ["yes"]),
        ("1992", ["1992", '"1992"'], ["1992.0", "1,992"]),
        ("Smith, John", ["Smith, John", '"Smith, John"'], ["John Smith"]),
    ],
)  # fmt: skip
def test_strings(answer: str, right: list[str], wrong: list[str]) -> None:
    check(gold(answer, "string"), right, wrong)


def test_lists_without_order() -> None:
    right = [
        '["Ann", "Zoë", "Bob"]', '["Bob","Ann","Zoë"]', "Ann\nZoë\nBob", "Ann, Bob, Zoë",
        "ann,bob,zoë",
        "- Ann\n- Bob\n- Zoë", "1. Ann\n2. Bob\n3. Zoë",
        "```json\n[\"Ann\", \"Zoë\", \"Bob\"]\n```",
        "Answer: Ann, Zoë, Bob", '[["Ann"], ["Bob"], ["Zoë"]]', '"Ann", "Bob", "Zoë"',
        "Ann\n\nBob\nZoë\n",
        "Ann,\nBob,\nZoë", "| name |\n|---|\n| Ann |\n| Bob |\n| Zoë |",
    ]  # fmt: skip
    wrong = [
        "Ann, Zoë", "Ann, Zoë, Bob, Bob", "Ann, Ann, Bob", "Ann Zoë Bob", "", "[]",
        '["Ann", "Zoë"]',
        '["Ann", ["Zoë", "Bob"]]', "[" * 5000, '["Ann", "Zoë", "Bob"',
    ]  # fmt: skip
    check(gold(NAMES, "list"), right, wrong)


def test_lists_with_order() -> None:
    check(
        gold(NAMES, "list", ORDERED),
        ["Ann, Zoë, Bob", '["Ann","Zoë","Bob"]'],
        ["Bob, Zoë, Ann", "Ann\nBob\nZoë"],
    )


def test_lists_are_bags() -> None:
    check(gold(["a", "a", "b"], "list"), ["a, b, a"], ["a, b", "a, b, b"])


def test_lists_of_numbers_and_nulls() -> None:
    check(
        gold([1234, 5], "list"),
        ["1,234\n5", "1234, 5", "[1234, 5.0]", "1,234, 5"],
        ["1, 234, 5", "[5, 5]"],
    )
    check(gold([None, 1], "list"), ["[null, 1]", "NULL\n1", "none, 1"], ["1", "[1, 1]", '["", 2]'])
    check(
        gold(["Smith, John", "Poe, E."], "list"),
        ["Smith, John\nPoe, E.", '"Smith, John", "Poe, E."'],
        ["Smith, John"],
    )
    # Each answer must find its own partner, whichever is tried first.
    check(
        gold([12.345678, 12.312345], "list"),
        ["12.3, 12.35", "12.35, 12.3", "12.3, 12.3"],
        ["12.35, 12.35"],
    )
    check(
        gold([12.34, 12.3], "list"),
        ["[12.3, 12.34]", "[12.34, 12.3]"],
        ["[12.3, 12.5]", "[12.34, 12.34]"],
    )


def test_a_null_does_not_take_an_empty_texts_place() -> None:
    check(
        gold([None, ""], "list"),
        ['["NULL", ""]', '["", "NULL"]', '[null, ""]', '["", null]'],
        ['["a", ""]'],
    )


def test_an_empty_line_of_a_list_is_an_empty_text() -> None:
    check(gold([2.5, "", "a"], "list"), ["2.5\n\na", '[2.5, "", "a"]'], ["2.5\na", "2.5, a"])


def test_tables() -> None:
    right = [
        '[["mug", 10], ["lamp", 2.5], [null, 1]]', '[["lamp", 2.50], ["mug", 10.0], [null, 1]]',
        "mug | 10\nlamp | 2.5\nNULL | 1", "| mug | 10 |\n| lamp | 2.5 |\n| NULL | 1 |",
        "| what | n |\n|:---|---:|\n| mug | 10 |\n| lamp | 2.5 |\n| NULL | 1 |",
        "mug, 10\nlamp, 2.5\nNULL, 1",
        '[{"what": "mug", "n": 10}, {"what": "lamp", "n": 2.5}, {"what": null, "n": 1}]',
        "```\nMUG|10\nlamp|2.5\nnull|1\n```",
    ]  # fmt: skip
    wrong = [
        "10 | mug\n2.5 | lamp\n1 | NULL", "mug | 10\nlamp | 2.5",
        "mug | 10\nlamp | 2.5\nNULL | 1\nNULL | 1",
        "mug | 10\nlamp | 2.5\nNULL | 2", "mug | lamp\n10 | 2.5\nNULL | 1", "", "[[]]",
        "mug 10\nlamp 2.5\nNULL 1",
    ]  # fmt: skip
    check(gold(TABLE, "table"), right, wrong)
    check(gold(TABLE, "table", ORDERED), right[:1], right[1:2])


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t order  by a LIMIT 3", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a FROM t WHERE a = (SELECT b FROM u ORDER BY b LIMIT 1)", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a) SELECT a FROM x", False),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'order by' FROM t", False),
        ("SELECT a FROM t;", False),
        ("SELECT 'it''s (' || a FROM t ORDER BY a !! nonsense", True),  # what the parser can't read
    ],
)
def test_order_counts_at_the_top_level_alone(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) is ordered


def test_a_gold_that_is_not_its_type_is_refused() -> None:
    for answer, kind in (
        ("", "list"),
        (5, "list"),
        ([1, 2], "table"),
        ([[]], "table"),
        ({"a": 1}, "string"),
        ([1], "integer"),
    ):
        with pytest.raises(ValueError, match=r"not a|neither"):
            gold(answer, kind)


def check(right: Gold, accepted: list[str], refused: list[str]) -> None:
    assert {text: judge_answer(text, right) for text in accepted} == dict.fromkeys(accepted, True)
    assert {text: judge_answer(text, right) for text in refused} == dict.fromkeys(refused, False)
