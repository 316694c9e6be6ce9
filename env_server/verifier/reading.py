"""An answer's text -> the rows that it may stand for.

The server reads answers on its event loop, so each pattern takes linear time, whatever the text.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from env_server.verifier.cells import Read
from shared.models import AnswerType

_LANGUAGE = re.compile(r"\A[\w-]*+[ \t]*+\n")
_PREFIX = re.compile(r"\A(?:the\s+)?(?:final\s+)?answer\s*(?:is\s*:|[:=])\s*", re.IGNORECASE)
_BULLET = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"\|?[\s:]*+-{3}[\s:|-]*+")


def readings(text: str, answer_type: AnswerType) -> Iterator[list[list[Read]]]:
    """Every set of rows that `text` may stand for, as an answer of that type. A scalar is one row of one cell."""
    read = _READERS.get(answer_type, _read_scalar)
    return (rows for bare in _bare_texts(text) for rows in read(bare))


def _bare_texts(text: str) -> list[str]:
    """The text itself, and without code fence and 'Answer:', the ways in which models dress an answer."""
    texts = [text.strip()]
    for _ in range(2):
        last = texts[-1]
        if len(last) >= 6 and last.startswith("```") and last.endswith("```"):
            bare = _LANGUAGE.sub("", last[3:-3], count=1).strip()
        else:
            bare = _PREFIX.sub("", last, count=1)
        if bare == last:
            break
        texts.append(bare)
    return texts


def _read_scalar(text: str) -> Iterator[list[list[Read]]]:
    yield [[text]]
    value = _json(text)
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if _is_cell(value):
        yield [[_cell(value)]]


def _read_list(text: str) -> Iterator[list[list[Read]]]:
    value = _json(text)
    if isinstance(value, list):
        cells = [item[0] if isinstance(item, list) and len(item) == 1 else item for item in value]
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
        yield [[line.removesuffix(",")] for line in lines]
        yield [[line.strip()] for line in text.split("\n")]  # an empty line is an empty text
        return
    yield [[part] for part in text.split(", ")]
    yield [[part] for part in _split_commas(text)]


def _read_table(text: str) -> Iterator[list[list[Read]]]:
    value = _json(text)
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
    else:
        yield [list(_split_commas(line)) for line in lines]
        yield [list(line.split(", ")) for line in lines]


_READERS: dict[AnswerType, Callable[[str], Iterator[list[list[Read]]]]] = {"list": _read_list, "table": _read_table}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _split_bars(line: str) -> list[Read]:
    if line.startswith("|") and line.endswith("|") and len(line) > 1:
        line = line[1:-1]
    return [part.strip() for part in line.split("|")]


def _split_commas(line: str) -> list[str]:
    try:
        return [part.strip() for part in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return [line]


class _Digits(str):
    """A JSON number as it is written: how many digits an answer gives counts."""

    __slots__ = ()


def _json(text: str) -> Any:
    """The JSON value that `text` is, or the text itself. Numbers are `_Digits`."""
    if not text.startswith(("[", '"')):
        return text
    try:
        return json.loads(text, parse_float=_Digits, parse_int=_Digits, parse_constant=_Digits)
    except (ValueError, RecursionError):
        return text


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, str | bool)


def _cell(value: Any) -> Read:
    return str(int(value)) if isinstance(value, bool) else value
