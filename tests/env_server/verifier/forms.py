"""Forms of an answer as a table: the text, the gold, and whether it is right by `strict`."""

from typing import Any, NamedTuple

from env_server.verifier import Gold
from shared.models import AnswerType

QUESTION = "How many singers come from each country?"


class Form(NamedTuple):
    """One line of the table."""

    text: str
    answer: Any
    right: bool
    sql: str = "SELECT a FROM t"

    @property
    def gold(self) -> Gold:
        return gold_of(self.answer, self.sql, QUESTION)


def gold_of(answer: Any, sql: str, question: str) -> Gold:
    """Return the gold of an answer's own type; None is a string's."""
    if isinstance(answer, list):
        kind: AnswerType = "table" if answer and isinstance(answer[0], list) else "list"
    else:
        by_type: dict[type, AnswerType] = {int: "integer", float: "float"}
        kind = by_type.get(type(answer), "string")
    return Gold.of(answer, kind, sql, question)


NAMES = ["Ann", "Bob", "Cy"]
PAIR = ["Ann", "Bob"]
YEARS = [1999, 2004, 2011]
LARGE = [1234, 5]
SMALL = [1, 234]
NULLS = [None, 4]
TITLES = ["Sense and Sensibility", "Emma", "Persuasion"]
PEOPLE = ["Poe, Edgar", "Doe, Jane"]
COUNTRIES = [["USA", 4], ["France", 3]]
PRICES = [["mug", 2.5], ["lamp", 12.3456]]
GAPS = [["mug", None], ["lamp", 1]]
NUMBERS = [[1, 2], [3, 4]]
ONE = [["Ann", 3]]
TIMES = [["12:30", 5], ["13:45", 6]]
FILMS = [["Alien: Covenant", 4], ["Up", 3]]
BY_NAME = "SELECT a FROM t ORDER BY a"

FORMS = [
    # \boxed{}
    Form(r"\boxed{42}", 42, True),
    Form(r"$\boxed{42}$", 42, True),
    Form(r"\boxed{42}.", 42, True),
    Form(r"Answer: \boxed{1,234}", 1234, True),
    Form(r"**\boxed{42}**", 42, True),
    Form(r"\boxed{\text{Ann}}", "Ann", True),
    Form(r"\boxed{Ann, Bob, Cy}", NAMES, True),
    Form(r"\boxed{12.35}", 12.3456, True),
    Form(r"\boxed{42} or \boxed{43}", 42, False),
    Form(r"\boxed{42}\boxed{42}", 42, False),
    Form(r"\boxed{43}", 42, False),
    Form(r"\boxed{42", 42, False),
    Form(r"It is \boxed{42}", 42, False),
    Form(r"\boxed{\text{Ann}} Bob", "Ann", False),
    # one bullet
    Form("- 42", 42, True),
    Form("* 42", 42, True),
    Form("• 42 singers", 42, True),
    Form("- Ann", "Ann", True),
    Form("* **Ann**", "Ann", True),
    Form("Answer: - 42", 42, True),
    Form("- -5", -5, True),
    Form("- Ann, Bob, Cy", NAMES, True),
    Form("- Ann | 3", ONE, True),
    Form("- 5", -5, False),
    Form("- 42\n- 43", 42, False),
    Form("42 -", 42, False),
    Form("1. 42", 42, False),
    Form("-- 42", 42, False),
    Form("- 42 - 43", 42, False),
    # dashes that are a minus
    Form("\u22125", -5, True),
    Form("\u20135", -5, True),
    Form("\u20105", -5, True),
    Form("\u20115", -5, True),
    Form("\uff0d5", -5, True),
    Form("\u2212$5", -5, True),
    Form("\u22127.25", -7.25, True),
    Form("\u20135 singers", -5, True),
    Form("1.5e\u22123", 0.0015, True),
    Form("\u20135", 5, False),
    Form("\u20145", -5, False),
    Form("\u2013 5", -5, False),
    Form("4\u20135", 4, False),
    Form("4\u20135", -5, False),
    Form("\u2013\u20135", -5, False),
    # thousands
    Form('"1,234"', 1234, True),
    Form("1,234", 1234, True),
    Form('"1,234", "5"', LARGE, True),
    Form("1,234, 5", LARGE, True),
    Form("1,234\n5", LARGE, True),
    Form("1,234; 5", LARGE, True),
    Form("1,234 and 5", LARGE, True),
    Form('["1,234", 5]', LARGE, True),
    Form("1,234", SMALL, True),
    Form("1, 234", SMALL, True),
    Form('"1,234"', SMALL, False),
    Form("`1,234`", SMALL, False),
    Form("1,234, 5", [1, 234, 5], False),
    Form("1,234 and 5", [1, 234, 5], False),
    Form("1,234; 5", [1, 234, 5], False),
    Form("1,234,5", LARGE, False),
    Form("a, 1,234", [["a", 1, 234]], False),
    Form("a, 1,234", [["a", 1234]], True),
    # A, B and C
    Form("Ann, Bob and Cy", NAMES, True),
    Form("Ann, Bob, and Cy", NAMES, True),
    Form("Cy, Ann and Bob", NAMES, True),
    Form("Ann and Bob", PAIR, True),
    Form("The answer is: Ann, Bob and Cy", NAMES, True),
    Form("**Ann, Bob and Cy**", NAMES, True),
    Form("1999, 2004 and 2011", YEARS, True),
    Form("Sense and Sensibility, Emma and Persuasion", TITLES, True),
    Form("Sense and Sensibility, Emma, Persuasion", TITLES, True),
    Form("Ann, Bob and Cy", NAMES, True, BY_NAME),
    Form("Ann, Cy and Bob", NAMES, False, BY_NAME),
    Form("Ann, Bob and Cy", PAIR, False),
    Form("Ann and Bob and Cy", NAMES, False),
    Form("Ann, Bob or Cy", NAMES, False),
    Form("Ann, Bob and others", NAMES, False),
    Form("Ann and Bob", "Ann", False),
    Form("42 and 43", 42, False),
    Form("1999, 2004 and", [1999, 2004], False),
    # A; B; C
    Form("Ann; Bob; Cy", NAMES, True),
    Form("Ann;Bob;Cy", NAMES, True),
    Form("Poe, Edgar; Doe, Jane", PEOPLE, True),
    Form("1999; 2004; 2011", YEARS, True),
    Form("NULL; 4", NULLS, True),
    Form("```\nAnn; Bob; Cy\n```", NAMES, True),
    Form("Ann; Bob", NAMES, False),
    Form("Ann; Bob; Cy; Cy", NAMES, False),
    Form("42; 43", 42, False),
    Form("Ann; Bob; Cy", "Ann", False),
    Form("Poe; Edgar; Doe; Jane", PEOPLE, False),
    # USA: 4
    Form("USA: 4\nFrance: 3", COUNTRIES, True),
    Form("France: 3\nusa: 4", COUNTRIES, True),
    Form("- USA: 4\n- France: 3", COUNTRIES, True),
    Form("1. USA: 4\n2. France: 3", COUNTRIES, True),
    Form("Answer:\nUSA: 4 singers\nFrance: 3 singers", COUNTRIES, True),
    Form("mug: 2.5\nlamp: 12.35", PRICES, True),
    Form("mug: NULL\nlamp: 1", GAPS, True),
    Form("Ann: 3", ONE, True),
    Form("12:30: 5\n13:45: 6", TIMES, True),
    Form("USA: 4\nFrance: 3\nUK: 1", COUNTRIES, False),
    Form("USA: 3\nFrance: 4", COUNTRIES, False),
    Form("4: USA\n3: France", COUNTRIES, False),
    Form("USA:4\nFrance:3", COUNTRIES, False),
    Form("USA: 4, France: 3", COUNTRIES, True),
    Form("Alien: Covenant: 4\nUp: 3", FILMS, False),
    Form("USA: 4\nFrance", COUNTRIES, False),
    Form("Ann: 3", [["Ann", 3, 3]], False),
    # TSV
    Form("USA\t4\nFrance\t3", COUNTRIES, True),
    Form("```tsv\nUSA\t4\nFrance\t3\n```", COUNTRIES, True),
    Form("mug\tNULL\nlamp\t1", GAPS, True),
    Form("mug\t\nlamp\t1", GAPS, True),
    Form("Alien: Covenant\t4\nUp\t3", FILMS, True),
    Form("1\t2\n3\t4", NUMBERS, True),
    Form("country\tn\nUSA\t4\nFrance\t3", COUNTRIES, True),
    Form("4\tUSA\n3\tFrance", COUNTRIES, False),
    Form("USA\t4\nFrance\t3\t1", COUNTRIES, False),
    Form("1\t2\t3\t4", NUMBERS, False),
    Form("42\t43", 42, False),
    # what was read before
    Form("| country | n |\n|---|---|\n| USA | 4 |\n| France | 3 |", COUNTRIES, True),
    Form("country | n\nUSA | 4\nFrance | 3", COUNTRIES, False),
    Form('{"country": ["USA", "France"], "n": [4, 3]}', COUNTRIES, True),
    Form("12", 12.3456, False),
    Form("42 million", 42, False),
]
