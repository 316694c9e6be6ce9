"""One question: its gold is run again, and its answer is looked for where no query is needed."""

import re
from collections.abc import Iterator
from typing import Any

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.audit.flags import Finding
from data.choose import contains_answer
from data.golds.execute import GoldRejected, GoldResult, run_gold
from shared.dataset import Question
from shared.order_by import parse_query
from shared.sqltext import quote_identifier

MODE_SHARE = 0.5  # of a column's values that are one value, above which that value is a fair guess
MODE_MIN_ROWS = 3
NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?<![\w.])-?\d+(?:\.\d+)?")


def question_findings(
    split: str, question: Question, connection: apsw.Connection
) -> Iterator[Finding]:
    """What is flagged on a question by itself. `connection` is to its database."""

    def finding(flag: str, detail: str) -> Finding:
        return Finding(flag, split, question.question_id, question.database_name, detail)

    if not question.question_text.strip():
        yield finding("blank", "no text")
    try:
        gold = run_gold(connection, question.gold_sql)
    except GoldRejected as error:
        yield finding(str(error.reason), error.detail)
        return
    if (gold.answer, gold.answer_type) != (question.gold_answer, question.answer_type):
        said = f"{question.answer_type} {_short(question.gold_answer)}"
        yield finding(
            "stale", f"stored is {said}, the gold returns {gold.answer_type} {_short(gold.answer)}"
        )
    if any(cell is None for row in gold.rows for cell in row):
        yield finding("null-cells", _short(gold.answer))
    if said_number(question.question_text, gold):
        yield finding("guessable-number", f"{_short(gold.answer)} in {question.question_text!r}")
    elif contains_answer(question.question_text, gold.answer):
        yield finding("guessable-text", f"{_short(gold.answer)} in {question.question_text!r}")
    if gold.rows in (((1,),), ((1.0,),), (("1",),)):
        yield finding("guessable-one", question.question_text)
    if (
        share := mode_share(question.gold_sql, gold, connection)
    ) is not None and share >= MODE_SHARE:
        yield finding("guessable-mode", f"{_short(gold.answer)} is {share:.0%} of its column")


def said_number(text: str, gold: GoldResult) -> bool:
    """Whether the answer is one number, and the question says it, in digits or as a word."""
    if gold.answer_type not in ("integer", "float"):
        return False
    said = {float(match.replace(",", "")) for match in _NUMBER.findall(text)}
    words = set(re.findall(r"[a-z]+", text.lower()))
    said |= {float(number) for number, word in enumerate(NUMBER_WORDS) if word in words}
    return float(gold.answer) in said


def mode_share(sql: str, gold: GoldResult, connection: apsw.Connection) -> float | None:
    """The share of a column's values that are the answer, where `sql` shows one cell of a plain
    column and the answer is the column's most common value; else None."""
    if gold.answer_type not in ("integer", "float", "string"):
        return None
    try:
        column, tables = _shown_column(sql)
    except (SqlglotError, RecursionError):
        return None
    for table in tables:
        name, place = quote_identifier(column), quote_identifier(table)
        try:
            found: list[Any] = connection.execute(
                f"SELECT {name}, count(*) FROM {place} WHERE {place}.{name} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC"
            ).fetchall()
        except (apsw.Error, UnicodeDecodeError):
            continue  # the column is another table's
        rows = sum(count for _, count in found)
        return found[0][1] / rows if rows >= MODE_MIN_ROWS and found[0][0] == gold.answer else None
    return None


def _shown_column(sql: str) -> tuple[str, list[str]]:
    """The one column that a query shows, and the tables that may have it."""
    query = parse_query(sql)
    shown = (
        query.selects[0].unalias()
        if isinstance(query, exp.Select) and len(query.selects) == 1
        else None
    )
    if not isinstance(shown, exp.Column) or shown.is_star:
        return "", []
    named = {table.alias_or_name.lower(): table.name for table in query.find_all(exp.Table)}
    if shown.table:
        return shown.name, [named[shown.table.lower()]] if shown.table.lower() in named else []
    return shown.name, list(dict.fromkeys(named.values()))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
