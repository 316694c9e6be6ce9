"""Findings on one question: its gold is executed again, its answer guessed without a query, and
the use that the gold makes of its database's values looked at.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.audit.flags import Finding, kept_flag
from data.choose import contains_answer
from data.golds.columns import table_of
from data.golds.execute import KEEP_EMPTY, GoldRejected, GoldResult, Reason, run_gold
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

_COMPARISONS = (exp.EQ, exp.NEQ, exp.In)
_ARITHMETIC = (exp.Sum, exp.Avg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
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
    for flag, detail in value_findings(question.gold_sql, connection):
        yield finding(flag, detail)
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


def value_findings(sql: str, connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    """Yield `(flag, detail)` for each column of a table that `sql` uses in one of these ways:

    letter-case         it is compared, by =, <> or IN, with a text that it does not hold, while it
                        holds one that differs in (ASCII) letter case alone
    text-arithmetic     SUM, AVG or an operator takes it, and it holds text, of which SQLite uses
                        the leading number, or 0
    """
    try:
        query = parse_query(sql)
    except (SqlglotError, RecursionError):
        return
    found = dict.fromkeys(
        finding
        for node in query.walk()
        if isinstance(node, (*_COMPARISONS, *_ARITHMETIC))
        for finding in _findings(node, connection)
    )
    yield from found


def _findings(node: exp.Expression, connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    columns, texts = [], []
    for operand in _operands(node):
        if isinstance(operand, exp.Literal) and operand.is_string:
            texts.append(str(operand.this))
        elif isinstance(operand, exp.Column):
            if (table := table_of(operand, connection)) is not None:
                columns.append((operand, table))
            elif operand.this.args.get("quoted") and not operand.table:
                texts.append(operand.name)  # SQLite reads an unknown "name" as a text
    for column, table in columns:
        name, shown = quote_identifier(column.name), f"{table}.{column.name}"
        if isinstance(node, _ARITHMETIC):
            if held := _cells(connection, table, f"typeof({name}) = 'text'", name):
                detail = f"{shown} holds text, such as {held[0][:40]!r}"
                yield "text-arithmetic", detail
            continue
        for text in texts:
            held = _cells(connection, table, f"lower({name}) = lower(?)", name, text)
            if held and not _cells(connection, table, f"{name} = ?", name, text):
                yield "letter-case", f"{shown} holds {held[0]!r}, not {text!r}"


def _operands(node: exp.Expression) -> Iterator[exp.Expression]:
    for child in (node.this, node.args.get("expression"), *node.expressions):
        if isinstance(child, exp.Distinct):
            yield from child.expressions
        elif child is not None:
            yield child.unnest()


def _cells(
    connection: apsw.Connection, table: str, condition: str, column: str, *bound: str
) -> list[str]:
    """Return the first cell of `column` under a condition, as a text, or nothing."""
    sql = f"SELECT {column} FROM {quote_identifier(table)} WHERE {condition} LIMIT 1"
    try:
        return [str(cell) for (cell,) in connection.execute(sql, bound)]
    except (apsw.Error, UnicodeDecodeError):  # a view that fails, text that is not UTF-8
        return []
