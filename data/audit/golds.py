"""Findings on one question: its gold is executed again, its answer guessed without a query."""

import re
from collections.abc import Collection, Iterator
from typing import Any

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.audit.flags import Finding, kept_flag
from data.choose import contains_answer
from data.golds.execute import KEEP_EMPTY, GoldRejected, GoldResult, Reason, run_gold
from data.golds.undecided import table_of
from shared.console import percent
from shared.dataset import Question
from shared.order_by import parse_query
from shared.sqltext import quote_identifier

MODE_SHARE = 0.5  # share of a column's values from which the most frequent one is a good guess
MODE_MIN_ROWS = 3
NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?<![\w.])-?\d+(?:\.\d+)?")


def question_findings(
    split: str,
    question: Question,
    connection: apsw.Connection,
    keep: Collection[Reason] = (),
    gold: GoldResult | None = None,
) -> Iterator[Finding]:
    """Yield the findings on a question by itself. `connection` is to its database; `keep`: see
    `run_gold`. The gold is run unless its result is given.
    """

    def finding(flag: str, detail: str) -> Finding:
        return Finding.on(question, flag, split, detail)

    text = question.question_text
    if not text.strip():
        yield finding("blank", "no text")
    try:
        gold = gold or run_gold(connection, question.gold_sql, keep)
    except GoldRejected as error:
        yield finding(str(error.reason), error.detail)
        return
    for reason, detail in gold.kept.items():
        yield finding(kept_flag(reason), detail)
    answer = _short(gold.answer)
    if (gold.answer, gold.answer_type) != (question.gold_answer, question.answer_type):
        stored = f"{question.answer_type} {_short(question.gold_answer)}"
        yield finding("stale", f"stored is {stored}, the gold returns {gold.answer_type} {answer}")
    if KEEP_EMPTY.intersection(gold.kept):
        return  # nothing to guess
    if any(cell is None for row in gold.rows for cell in row):
        yield finding("null-cells", answer)
    if states_number(text, gold):
        yield finding("guessable-number", f"{answer} in {text!r}")
    elif contains_answer(text, gold.answer):
        yield finding("guessable-text", f"{answer} in {text!r}")
    if gold.rows in (((1,),), ((1.0,),), (("1",),)):
        yield finding("guessable-one", text)
    if (share := _mode_share(question.gold_sql, gold, connection)) >= MODE_SHARE:
        yield finding("guessable-mode", f"{answer} is {percent(share, 0)} of its column")


def states_number(text: str, gold: GoldResult) -> bool:
    """Return whether the answer is one number that `text` states, in digits or as a word."""
    if gold.answer_type not in ("integer", "float"):
        return False
    stated = {float(match.replace(",", "")) for match in _NUMBER.findall(text)}
    words = set(re.findall(r"[a-z]+", text.lower()))
    stated |= {float(number) for number, word in enumerate(NUMBER_WORDS) if word in words}
    return float(gold.answer) in stated


def _mode_share(sql: str, gold: GoldResult, connection: apsw.Connection) -> float:
    """Return the share of a column's values that equal the answer.

    0 unless `sql` selects one cell of a plain column, whose most frequent value is the answer.
    """
    if gold.answer_type not in ("integer", "float", "string"):
        return 0.0
    try:
        query = parse_query(sql)
        column = query.selects[0].unalias() if len(query.selects) == 1 else None
        if not isinstance(query, exp.Select) or not isinstance(column, exp.Column):
            return 0.0
        if (table := table_of(column, connection)) is None:
            return 0.0
        name = quote_identifier(column.name)
        counts: list[Any] = connection.execute(
            f"SELECT {name}, count(*) FROM {quote_identifier(table)} WHERE {name} IS NOT NULL "
            "GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
    except (SqlglotError, RecursionError, apsw.Error, UnicodeDecodeError):
        return 0.0
    rows = sum(count for _, count in counts)
    frequent = rows >= MODE_MIN_ROWS and counts[0][0] == gold.answer
    return float(counts[0][1] / rows) if frequent else 0.0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
