"""Actions, observations and numbers as markup: SQL in colours, results as tables, long texts cut
with a mark.

All text is escaped here; no text of an episode is ever used as markup.
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape
from pygments.lexers.sql import SqlLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from shared.actions import ActionType

ACTION_CHARS, CELL_CHARS, TEXT_CHARS = 2_000, 120, 1_200
RESULT_ROWS = 12
ERROR = "Error: "

# pygments' token types that have a colour, the most specific first
_COLOURS = (
    (Comment, "co"),
    (String, "st"),
    (Number, "nu"),
    (Name.Builtin, "fn"),
    (Operator.Word, "kw"),
    (Keyword, "kw"),
)
_LEXER = SqlLexer(stripnl=False, ensurenl=False)
_ACTION = re.compile(r"([A-Z]+): (.*)", re.DOTALL)
_REMARK = re.compile(r"\((no rows\)|first |cut: |note: |columns \d|\d+ columns of ).*")
_SCHEMA = re.compile(r"(?P<table>.+?): (?P<rows>\d+) rows(?P<more>; .+| -- .+)?")
_COLUMN = re.compile(
    r'(?P<name>"(?:[^"]|"")*"|[^\s:(]+)(?: (?P<type>(?!primary key|->|--).*?))?'
    r'(?: (?P<key>primary key))?(?: -> (?P<target>(?:"[^"]*"|[^"])+?))?'
    r"(?:: (?P<values>(?:'[^']*'|[^'])+?))?(?: -- (?P<text>.+))?"
)
_PARTS = ("column", "type", "key", "values", "description")  # the last two only if there are any


@dataclass(frozen=True)
class ActionMarkup:
    """An action's type, empty if the text holds no action, and its argument as markup."""

    kind: str
    argument: Markup


@dataclass(frozen=True)
class ObservationMarkup:
    """What an action returned. `kind` is error, table, text or none; `remark` says what was cut."""

    kind: str
    text: str = ""
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    remark: str = ""
    caption: str = ""


def action_markup(text: str, limit: int = ACTION_CHARS) -> ActionMarkup:
    """Mark up an action's canonical text `TYPE: argument`, highlighting the SQL of a QUERY."""
    match = _ACTION.fullmatch(text)
    if match is None or match[1] not in ActionType.__members__:
        return ActionMarkup("", escape(cut(text, limit)))
    mark_up = sql if match[1] == ActionType.QUERY else escape
    return ActionMarkup(match[1], mark_up(cut(match[2], limit)))


@lru_cache(maxsize=256)  # of up to 100 kB each
def sql(text: str) -> Markup:
    """Return SQL with its keywords, functions, strings, numbers and comments in spans."""
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


def observation_markup(action: str, text: str, *, whole: bool = False) -> ObservationMarkup:
    """Return what an action returned, from its result or from `Error: ` and what was wrong; not
    `whole`, without much of what is long."""
    most = len(text)
    rows, cells, texts = (most,) * 3 if whole else (RESULT_ROWS, CELL_CHARS, TEXT_CHARS)
    if not text:
        return ObservationMarkup("none")
    if text.startswith(ERROR):
        return ObservationMarkup("error", cut(text.removeprefix(ERROR), texts))
    lines, kind, table = text.split("\n"), action.partition(":")[0], None
    if kind == ActionType.DESCRIBE:
        table = _schema(lines, cells)
    elif kind in (ActionType.QUERY, ActionType.SAMPLE):
        table = _table(lines, rows, cells)
    return table or ObservationMarkup("text", cut(text, texts))


def _schema(lines: list[str], most_chars: int) -> ObservationMarkup | None:
    """Parse `orders: 12 rows` and one line per column; None if the text has another form."""
    head = _SCHEMA.fullmatch(lines[0])
    remarks = [line[1:-1] for line in lines[1:] if _REMARK.fullmatch(line)]
    columns = [match for line in lines[1:] if (match := _COLUMN.fullmatch(line))]
    if head is None or not columns or len(columns) + len(remarks) < len(lines) - 1:
        return None
    rows = [
        (
            column["name"],
            column["type"] or "",
            ", ".join(filter(None, (column["key"], column["target"] and f"→ {column['target']}"))),
            column["values"] or "",
            column["text"] or "",
        )
        for column in columns
    ]
    shown = [place for place in range(len(_PARTS)) if place < 3 or any(row[place] for row in rows)]
    return ObservationMarkup(
        "table",
        headings=tuple(_PARTS[place] for place in shown),
        rows=tuple(tuple(cut(row[place], most_chars) for place in shown) for row in rows),
        remark="; ".join(remarks),
        caption=f"{head['table']}: {int(head['rows']):,} rows{head['more'] or ''}",
    )


def _table(lines: list[str], most: int, most_chars: int) -> ObservationMarkup | None:
    """Parse a header, rows and remarks in brackets; None if a cell holds the separator."""
    remarks: list[str] = []
    while len(lines) > 1 and " | " not in lines[-1] and _REMARK.fullmatch(lines[-1]):
        remarks.insert(0, lines.pop()[1:-1])
    headings, *rows = (tuple(line.split(" | ")) for line in lines)
    if any(len(row) != len(headings) for row in rows):
        return None
    if (hidden := len(rows) - most) > 0:
        remarks.append(f"{hidden} of the {len(rows)} rows that the agent saw are left out here")
    return ObservationMarkup(
        "table",
        headings=tuple(cut(name, most_chars) for name in headings),
        rows=tuple(tuple(cut(cell, most_chars) for cell in row) for row in rows[:most]),
        remark="; ".join(remarks),
    )


def cut(text: str, limit: int) -> str:
    """Return `text`, or its beginning and how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def short(text: str, limit: int) -> str:
    """Return `text` on one line as a label, cut with `…`."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def is_number(text: str) -> bool:
    """Return whether a cell is a number, which is aligned to the right."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def number_text(value: Any, digits: int = 2) -> str:
    return f"{value:,.{digits}f}".replace("-", "−") if isinstance(value, int | float) else "–"


def signed(value: Any, digits: int = 3) -> str:
    """Format with a sign, a true minus; "–" if there is no number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"
