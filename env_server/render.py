"""Rows as the text that an agent reads: deterministic, bounded, and every cut is marked."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from env_server.sql import SqlResult
from env_server.sql.jobs import Cell
from env_server.sql.limits import MAX_CELL_CHARS, MAX_RESULT_BYTES
from shared.dataset import TABLE_TEXT
from shared.sqltext import join_names, sql_name

# Each could end a line, move a terminal's cursor, hide text or reorder it: control characters, the
# two separators of Unicode, and its marks of direction.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
MAX_REMARK_CHARS = 300
_CUT = "(cut: the result is too long)"


def render_rows(result: SqlResult, shown_rows: int) -> str:
    """Return a header of column names, then one line per row, for at most `shown_rows` rows:

        name | age
        Ann | 31
        Bob | NULL
        (first 2 rows; there are more)

    A result without rows reads `(no rows)`.
    """
    lines = [" | ".join(map(render_text, result.columns))]
    size = len(lines[0])
    for row in result.rows[:shown_rows]:
        if size > MAX_RESULT_BYTES:  # `cap` cuts what follows
            break
        lines.append(" | ".join(map(render_cell, row)))
        size += len(lines[-1])
    if not result.rows:
        lines.append("(no rows)")
    elif result.truncated or len(result.rows) > shown_rows:
        lines.append(f"(first {min(len(result.rows), shown_rows)} rows; there are more)")
    return cap("\n".join(lines))


def render_remarks(text: str, remarks: Sequence[str]) -> str:
    """Return a result's text with remarks below it, one per line: `(note: ...)`."""
    return "\n".join([text, *(f"(note: {one_line(one)[:MAX_REMARK_CHARS]})" for one in remarks)])


def render_table(
    table: str,
    result: SqlResult,
    texts: Mapping[str, str],
    places: Sequence[int] | None = None,
    values: SqlResult | None = None,
    note: str = "",
) -> str:
    """Return what DESCRIBE shows, from the result of its job, with names as SQL needs them:

        orders: 1204 rows
        order_id INTEGER primary key: 1 to 1204; 1204 different
        customer_id INTEGER -> customers.customer_id: 3 to 87; 61 different
        "due date" TEXT: 'C', 'D'; 3 % NULL -- the day of delivery, as the contract has it

    `texts` are the descriptions of columns, by their names in lower case, and that of the table,
    shown after its rows; `places` those of the columns to show, by default all; `values` the
    result of VALUES jobs; `note` a second line.
    """
    shown = result.rows if places is None else [result.rows[place] for place in places]
    contents: dict[Cell, Cell] = dict(values.rows) if values else {}  # type: ignore[arg-type]
    rows = "too many rows to count" if result.row_count is None else f"{result.row_count} rows"
    head = f"{render_text(sql_name(table))}: {rows}"
    if values and values.row_count is not None:
        head += f"; values are from {values.row_count} of them"
    if text := texts.get(TABLE_TEXT):
        head += f" -- {render_text(text)}"
    lines = [head, *filter(None, [note])]
    for column, kind, is_key, references in shown:
        key, arrow = "primary key" if is_key else None, f"-> {references!s}" if references else None
        parts = [str(part) for part in (sql_name(str(column)), kind, key, arrow) if part]
        held, text = contents.get(column), texts.get(str(column).lower())
        lines.append(
            render_text(" ".join(parts))
            + (f": {render_text(str(held))}" if held else "")
            + (f" -- {render_text(text)}" if text else "")
        )
    return cap("\n".join(lines))


def fits(text: str) -> bool:
    """Return whether a rendered text was not cut."""
    return not text.endswith(_CUT)


def render_schema(tables: Sequence[str], described: Sequence[str]) -> str:
    """Return `Tables: a, b, c`, then a line `a(id, name)` for each described table, in order."""
    return "\n".join(
        [f"Tables: {', '.join(render_text(sql_name(table)) for table in tables)}", *described]
    )


def render_columns(table: str, result: SqlResult) -> str:
    """Return `table(column, column)`, from the result of a DESCRIBE job."""
    return cap(one_line(f"{sql_name(table)}({join_names(str(row[0]) for row in result.rows)})"))


def render_cell(cell: Cell) -> str:
    """Return NULL, a number in its shortest exact form, text on one line or `<blob N bytes>`."""
    return _RENDERERS[type(cell)](cell)


def render_text(text: str) -> str:
    """Return text on one line, cut to `MAX_CELL_CHARS` with `…`."""
    if not text.isprintable():
        text = one_line(text)
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"


_RENDERERS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "NULL",
    int: repr,
    float: repr,
    str: render_text,
    bytes: lambda blob: f"<blob {len(blob)} bytes>",
}


def one_line(text: str) -> str:
    """Return text with what is no visible character escaped, such as `\\n`, `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _ESCAPES.get(match[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def cap(text: str) -> str:
    """Return `text`, or as many of its lines as fit `MAX_RESULT_BYTES` and a note of the cut."""
    data = text.encode(errors="replace")
    if len(data) <= MAX_RESULT_BYTES:
        return text
    kept = data[: MAX_RESULT_BYTES - len(_CUT) - 1]
    end = kept.rfind(b"\n")
    return (kept[:end] if end > 0 else kept).decode(errors="ignore") + "\n" + _CUT
