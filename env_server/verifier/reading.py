"""Read the text of an answer as the rows that it may stand for.

The server reads answers on its event loop, so each pattern takes linear time, whatever the text.
Every reading is one whole answer: no part of the text is searched for or left out, except a
Markdown header above its rule.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from env_server.verifier.cells import NULLS, Read, plain, unquote
from shared.models import AnswerType

Rows = list[list[Read]]

_LANGUAGE = re.compile(r"\A[\w-]*+[ \t]*+\n")
_PREFIX = re.compile(
    r"\A(?:\*\*)?(?:the\s+)?(?:final\s+)?answer(?:\*\*)?\s*(?:is\s*:|[:=])(?:\*\*)?\s*",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"\|?[\s:]*+-{3}[\s:|-]*+")
_BAR = re.compile(r"(?<!\\)\|")
_PYTHON = re.compile(
    r"""'(?P<text>(?:[^'\\]|\\.)*+)'|(?P<kept>"(?:[^"\\]|\\.)*+")|\b(?P<word>None|True|False)\b"""
    r"""|(?P<open>\()|(?P<close>\))|(?P<last>,(?=\s*+[)\]]))""",
    re.DOTALL,
)
_NO_ROWS = NULLS | {"no rows", "(no rows)"}  # the last is what a QUERY without rows shows
_WORDS = {"None": "null", "True": "true", "False": "false"}


def readings(text: str, answer_type: AnswerType) -> Iterator[Rows]:
    """Yield each set of rows that `text` may stand for. A scalar is one row of one cell."""
    read = {"list": _read_list, "table": _read_table}.get(answer_type, _read_scalar)
    for inner in unwrapped_texts(text):
        yield from read(inner)
        if plain(unquote(inner.removesuffix("."))) in _NO_ROWS:
            yield []


def unwrapped_texts(text: str) -> list[str]:
    """Return the text, then what remains without code fence, 'Answer:' and bold face."""
    texts = [text.strip()]
    for _ in range(3):
        last = texts[-1]
        if len(last) >= 6 and last.startswith("```") and last.endswith("```"):
            inner = _LANGUAGE.sub("", last[3:-3], count=1).strip()
        elif last.startswith("**") and last.endswith("**") and "*" not in last[2:-2]:
            inner = last[2:-2].strip()
        else:
            inner = _PREFIX.sub("", last, count=1)
        if inner == last:
            break
        texts.append(inner)
    return texts


# -- one reader per type


def _read_scalar(text: str) -> Iterator[Rows]:
    yield [[text]]
    value = _json(text)
    while (inner := _unboxed(value)) is not value:
        value = inner
    if _is_cell(value):
        yield [[_cell(value)]]
    elif value == []:
        yield [[None]]
    column = _framed_column(_lines(text))
    if column is not None and len(column) == 1:
        yield column


def _read_list(text: str) -> Iterator[Rows]:
    value = _json(text)
    if isinstance(value, dict):  # a named column
        value = _unboxed(value)
    if isinstance(value, list):
        cells = list(map(_unboxed, value))
        if all(map(_is_cell, cells)):
            yield [[_cell(cell)] for cell in cells]
        return
    lines = _lines(text)
    if len(lines) > 1:
        yield [[line] for line in lines]
        if all(map(_BULLET.match, lines)):
            yield [[_BULLET.sub("", line, count=1)] for line in lines]
        if len(lines) > 2 and _RULE.fullmatch(lines[1]):
            yield [[line.strip("| \t")] for line in lines[2:]]
        if (column := _framed_column(lines)) is not None:
            yield column
        yield [[line.removesuffix(",")] for line in lines]
        yield [[line.strip()] for line in text.split("\n")]  # an empty line is an empty text
        yield _csv(text)
        return
    yield [[part] for part in text.split(", ")]
    yield [[part] for part in _split_commas(text)]


def _read_table(text: str) -> Iterator[Rows]:
    value = _json(text)
    if isinstance(value, dict):
        value = _rows_of_object(value)
    if isinstance(value, list):
        rows = [list(row.values()) if isinstance(row, dict) else row for row in value]
        if all(isinstance(row, list) and all(map(_is_cell, row)) for row in rows):
            yield [[_cell(cell) for cell in row] for row in rows]
        elif all(map(_is_cell, value)):  # one row
            yield [[_cell(cell) for cell in value]]
        return
    lines = _lines(text)
    if len(lines) > 2 and _RULE.fullmatch(lines[1]):
        lines = lines[2:]  # Markdown: a header and its rule
    if all("|" in line for line in lines):
        yield [_split_bars(line) for line in lines]
        if "\\|" in text:  # Markdown's own bar within a cell
            yield [_split_bars(line, _BAR) for line in lines]
    else:
        yield [list(_split_commas(line)) for line in lines]
        yield [list(line.split(", ")) for line in lines]
        yield _csv(text)


# -- lines


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _framed_column(lines: list[str]) -> Rows | None:
    """Return the cells of Markdown rows `| cell |` without the header; None for other lines."""
    if len(lines) > 2 and _RULE.fullmatch(lines[1]):
        lines = lines[2:]
    if not all(len(line) > 1 and line.startswith("|") and line.endswith("|") for line in lines):
        return None
    rows = [_split_bars(line, _BAR) for line in lines]
    return rows if all(len(row) == 1 for row in rows) else None


def _split_bars(line: str, bar: re.Pattern[str] | None = None) -> list[Read]:
    if line.startswith("|") and line.endswith("|") and len(line) > 1:
        line = line[1:-1]
    if bar is None:
        return [part.strip() for part in line.split("|")]
    return [part.strip().replace("\\|", "|") for part in bar.split(line)]


def _split_commas(line: str) -> list[str]:
    try:
        return [part.strip() for part in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return [line]


def _csv(text: str) -> Rows:
    """Read CSV whose quoted cells may contain line ends."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
        return [[part.strip() for part in row] for row in rows if row]
    except csv.Error:
        return []


# -- JSON


class _Digits(str):
    """A JSON number as written: the number of digits that an answer gives counts."""

    __slots__ = ()


_AS_WRITTEN: Any = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), _Digits)


def _json(text: str) -> Any:
    """Parse JSON, JSON lines or a Python literal (numbers as `_Digits`); else return `text`."""
    if not text.startswith(("[", "{", "(", '"')):
        return text
    for form in (str,) if text[0] == '"' else (str, _python_as_json, _lines_as_json):
        try:
            return json.loads(form(text), **_AS_WRITTEN)
        except (ValueError, RecursionError):
            continue
    return text


def _python_as_json(text: str) -> str:
    """Rewrite a Python literal (lists, tuples, strings, None, True, False) as JSON."""

    def token(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return '"' + match["text"].replace("\\'", "'").replace('"', '\\"') + '"'
        if match["word"]:
            return _WORDS[match["word"]]
        if match["open"] or match["close"]:
            return "[" if match["open"] else "]"
        return "" if match["last"] else match[0]

    return _PYTHON.sub(token, text)


def _lines_as_json(text: str) -> str:
    return "[" + ",".join(_lines(text)) + "]"


def _unboxed(value: Any) -> Any:
    """Return the only item of a list or an object of one item; any other value as it is."""
    if not (isinstance(value, list | dict) and len(value) == 1):
        return value
    return next(iter(value.values())) if isinstance(value, dict) else value[0]


def _rows_of_object(value: dict[str, Any]) -> list[Any]:
    """Return an object of columns as rows; any other object is one row, or a name for the rows."""
    columns = list(value.values())
    if columns and all(isinstance(column, list) for column in columns):
        if len(columns) == 1 and any(isinstance(item, list | dict) for item in columns[0]):
            return columns[0]  # type: ignore[no-any-return]
        if len(set(map(len, columns))) == 1:
            return [list(row) for row in zip(*columns, strict=True)]
    return [value]


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, str | bool)


def _cell(value: Any) -> Read:
    return str(value).lower() if isinstance(value, bool) else value
