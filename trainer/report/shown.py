"""Actions and observations as a page shows them: SQL in colours, results as tables, long ones cut
with a mark.

Everything that comes out is markup whose text was escaped here; nothing of an episode's text is
ever taken for markup.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape
from pygments.lexers.sql import SqlLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from shared.actions import ActionType
from trainer.report.ledger import ERROR, result_text

ACTION_CHARS, CELL_CHARS, TEXT_CHARS = 2_000, 120, 1_200
RESULT_ROWS = 12

# of pygments' many kinds of token, those that have a colour; the most special first
_COLOURS = (
    (Comment, "co"),
    (String, "st"),
    (Number, "nu"),
    (Name.Builtin, "fn"),
    (Operator.Word, "kw"),
    (Keyword, "kw"),
)
_LEXER = SqlLexer(stripnl=False, ensurenl=False)
_HEAD = re.compile(r"([A-Z]+): (.*)", re.DOTALL)
_REMARK = re.compile(r"\(.*\)")
_SCHEMA = re.compile(r"(?P<table>.+): (?P<rows>\d+) rows")
_COLUMN = re.compile(
    r"(?P<name>\S+)(?: (?P<kind>[^->]*?))?(?: (?P<key>primary key))?(?: -> (?P<target>.+))?"
)


@dataclass(frozen=True)
class Action:
    """An action's type, empty where the text was no action, and its argument as markup."""

    kind: str
    argument: Markup


@dataclass(frozen=True)
class Observation:
    """`kind` is error, table, text or none. A table has headings and cells; `remark` says of either
    what was cut."""

    kind: str
    text: str = ""
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    remark: str = ""
    caption: str = ""


def shown_action(text: str, limit: int = ACTION_CHARS) -> Action:
    """An action's canonical text `TYPE: argument`. What a QUERY asks is highlighted."""
    match = _HEAD.fullmatch(text)
    if match is None or match[1] not in ActionType.__members__:
        return Action("", escape(cut(text, limit)))
    argument = cut(match[2], limit)
    return Action(match[1], sql(argument) if match[1] == ActionType.QUERY else escape(argument))


@lru_cache(maxsize=4096)
def sql(text: str) -> Markup:
    """SQL with its keywords, functions, strings, numbers and comments in spans."""
    parts: list[list[str]] = []
    for kind, value in _LEXER.get_tokens(text):
        colour = next((colour for parent, colour in _COLOURS if kind in parent), "")
        if parts and parts[-1][0] == colour:
            parts[-1][1] += value
        else:
            parts.append([colour, value])
    return Markup("").join(
        Markup('<span class="{}">{}</span>').format(colour, value) if colour else escape(value)
        for colour, value in parts
    )


def shown_observation(action: str, observation: str) -> Observation:
    """What an action showed, as the model read it but for the line of the steps left."""
    text = result_text(observation)
    if not text:
        return Observation("none")
    if text.startswith(ERROR):
        return Observation("error", cut(text.removeprefix(ERROR), TEXT_CHARS))
    lines = text.split("\n")
    kind = action.partition(":")[0]
    if kind == ActionType.DESCRIBE and (table := _schema(lines)) is not None:
        return table
    if kind in (ActionType.QUERY, ActionType.SAMPLE) and (table := _table(lines)) is not None:
        return table
    return Observation("text", cut(text, TEXT_CHARS))


def _schema(lines: list[str]) -> Observation | None:
    """`orders: 12 rows` and a line a column; None where the text is otherwise."""
    head = _SCHEMA.fullmatch(lines[0])
    columns = [_COLUMN.fullmatch(line) for line in lines[1:]]
    if head is None or not columns or any(column is None for column in columns):
        return None
    cells = [
        (
            cut(one["name"], CELL_CHARS),
            one["kind"] or "",
            one["key"] or (f"→ {one['target']}" if one["target"] else ""),
        )
        for one in columns
        if one is not None
    ]
    remark = "" if len(cells) <= 40 else f"{len(cells) - 40} more columns are not shown here"
    count = int(head["rows"])
    return Observation(
        "table",
        "",
        ("column", "type", "key"),
        tuple(cells[:40]),
        remark,
        f"{head['table']}: {count:,} rows",
    )


def _table(lines: list[str]) -> Observation | None:
    """A header, a line a row, remarks in brackets at the end; None where rows and header differ in
    their cells."""
    remarks: list[str] = []
    while (
        len(lines) > 1
        and _REMARK.fullmatch(lines[-1])
        and " | " not in lines[-1]
        and _is_remark(lines[-1])
    ):
        remarks.insert(0, lines.pop().strip("()"))
    headings = tuple(lines[0].split(" | "))
    rows = [tuple(line.split(" | ")) for line in lines[1:]]
    if any(len(row) != len(headings) for row in rows):  # a cell holds the separator
        return None
    if len(rows) > RESULT_ROWS:
        remarks.append(
            f"{len(rows) - RESULT_ROWS} of the {len(rows)} rows that the agent was shown are left out here"
        )
    cells = tuple(tuple(cut(cell, CELL_CHARS) for cell in row) for row in rows[:RESULT_ROWS])
    return Observation(
        "table", "", tuple(cut(name, CELL_CHARS) for name in headings), cells, "; ".join(remarks)
    )


def _is_remark(line: str) -> bool:
    return line.startswith(("(no rows)", "(first ", "(cut: "))


def cut(text: str, limit: int) -> str:
    """`text`, or its beginning and how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def short(text: str, limit: int) -> str:
    """`text` on one line as a label, cut with `…`."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def is_number(text: Any) -> bool:
    """Whether a cell is a number, which stands to the right in its column."""
    try:
        float(str(text))
    except ValueError:
        return False
    return True
