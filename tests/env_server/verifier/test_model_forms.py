"""Forms in which models write answers, each beside wrong answers that are nearly the same."""

from typing import Any

import pytest

from env_server.verifier import Gold, judge_answer

CITIES = [["Rome", 2], ["Oslo", 3]]
FORMS = [
    # gold, right, wrong
    (
        "O'Hara",
        ["O’Hara", "O‘Hara", "OʼHara", "“O’Hara”", "Ｏ'Ｈａｒａ"],
        ["OHara", "O Hara", 'O"Hara'],
    ),
    ("O’Hara", ["O'Hara", "o’hara"], ["O-Hara"]),
    ('the "X"', ["the “X”"], ["the X", "the 'X'"]),
    ("Smith-Jones", ["Smith–Jones", "Smith‐Jones", "Smith‑Jones"], ["Smith Jones", "Smith−Jones"]),
    ("New York", ["New\u00a0York"], ["NewYork"]),
    (["O'Hara", "O’Hara"], ["O'Hara, O’Hara", "O’Hara\nO'Hara"], ["O'Hara, O'Hara",
        "Oʼhara, O'Hara"]),
    (12, ["１２", "１２．", "１２ kg"], ["２１", "１ ２", "１２３", "一二"]),
    ([1, 2], ["１, ２", "[1, 2]", "n\n1\n2", "count(*)\n2\n1"],
     ["12", "１２", "3\n1\n2", "n 3\n1\n2"]),
    (
        CITIES,
        [
            "(Rome, 2), (Oslo, 3)", "(Oslo, 3); (Rome, 2)", "(Rome, 2) (Oslo, 3)",
            "(Rome, 2),(Oslo, 3)", "('Rome', 2), ('Oslo', 3)",
            "Rome: 2, Oslo: 3", "Rome: 2; Oslo: 3", "Rome (2), Oslo (3)", '{"Rome": 2, "Oslo": 3}',
            "city,n\nRome,2\nOslo,3", "city, n\nRome, 2\nOslo, 3",
            "```csv\ncity,n\nRome,2\nOslo,3\n```",
            "city\tn\nRome\t2\nOslo\t3",
            '"city","n"\n"Rome",2\n"Oslo",3',

            "| city | n |\n|---|---|\n| Rome | 2 |\n| Oslo | 3 |",
        ],
        [
            "(Rome, 3), (Oslo, 2)", "(Rome, 2)", "(Rome, 2), (Oslo, 3), (Bonn, 1)",
            "(Rome, Oslo), (2, 3)", "(2, Rome), (3, Oslo)", "(Rome, 2), (Oslo, 3",
            "((Rome, 2), (Oslo, 3)",
            "(Rome, 2) or (Oslo, 3)", "not (Rome, 2), (Oslo, 3)", "Rome: 3, Oslo: 2", "Rome: 2",
            "Rome: 2, Oslo: 3, Bonn: 1", "Rome: 2: Oslo: 3", "2: Rome, 3: Oslo",
            "Rome (3), Oslo (2)",
            "Rome (2), Oslo", "Rome - 2, Oslo - 3", '{"Rome": 3, "Oslo": 2}',
            "Bonn,1\nRome,2\nOslo,3", "Bonn,about 1\nRome,2\nOslo,3",
            "Bonn,unknown\nRome,2\nOslo,3",
            "Bonn,\nRome,2\nOslo,3", "Bonn,NULL\nRome,2\nOslo,3", "city,n\nRome,3\nOslo,2",
            "city,n\nRome,2", "city,n\nBonn,1\nRome,2\nOslo,3", "Rome,2\nOslo,3\ncity,n",
            "city\nRome,2\nOslo,3", '[["Bonn", 1], ["Rome", 2], ["Oslo", 3]]',
            "city | n\nRome | 2\nOslo | 3",
        ],
    ),
    # text columns alone: a first row could be data
    ([["Rome", "IT"], ["Oslo", "NO"]], ["Rome,IT\nOslo,NO"], ["city,land\nRome,IT\nOslo,NO"]),
    (["Al", "O'Hara"],
     ["[Al, O’Hara]", "['Al', 'O'Hara']"], ["[Al, O, Hara]", "['Al', 'O', 'Hara']"]),
    (["Al", "Bo"],
     ["[Al, Bo]"], ["[Al Bo]", "[[Al, Bo]]", "[Al, Bo, Cy]", "[Al], [Bo]", "[Al, Bo"]),
    (CITIES, ["Rome | 2, Oslo | 3"], ["Rome | 3, Oslo | 2", "Rome | 2, Oslo", "Rome | 2 Oslo | 3"]),
    ([["a: b", 2], ["c", 3]], ["a: b | 2\nc | 3"], ["a: b: 2, c: 3"]),
    ([["a, b", 2], ["c", 3]], ['[["a, b", 2], ["c", 3]]'], ["(a, b, 2), (c, 3)", "a, b: 2, c: 3"]),
    ([["x", 1234], ["y", 5]], ["x: 1,234; y: 5", "(x, 1,234), (y, 5)"], ["x: 1, 234; y: 5"]),
]  # fmt: skip


def gold_of(answer: Any) -> Gold:
    kinds = {int: "integer", str: "string", float: "float"}
    kind = kinds.get(type(answer)) or ("table" if isinstance(answer[0], list) else "list")
    return Gold.of(answer, kind, "SELECT a FROM t")  # type: ignore[arg-type]


@pytest.mark.parametrize(("answer", "right", "wrong"), FORMS)
def test_forms(answer: Any, right: list[str], wrong: list[str]) -> None:
    gold = gold_of(answer)
    assert {text: judge_answer(text, gold) for text in right} == dict.fromkeys(right, True)
    assert {text: judge_answer(text, gold) for text in wrong} == dict.fromkeys(wrong, False)
