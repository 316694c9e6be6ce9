"""Is an ANSWER the gold answer? Text is read in every form that models write; the comparison itself is strict.

An answer's type is the gold's. Values: 1 is 1.0; text is compared without letter case, outer white space, outer quotes
and a final full stop; NULL is NULL; a float is right where it is the gold rounded to as many decimals as it has, given
three significant digits or more. Lists and tables are bags: order counts only where the gold SQL's top level has
ORDER BY. Columns are compared by position. Whole texts are compared: 'It is 42' is not 42.
"""

import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from shared.models import AnswerType

VERIFIER_VERSION = "1"

Scalar = int | float | str | None
Read = str | None  # a cell as an answer writes it; None is JSON's null
MIN_SIGNIFICANT_DIGITS = 3
FLOAT_TOLERANCE = 1e-9  # relative: a sum of floats changes in its last digits with the order of the scan
MAX_UNLIKE_ROWS = 200  # rows that need a matching, those with an exact partner aside
MAX_MARKS = 500  # combining characters of one cell; sorting a run of 20,000 of them takes Unicode's rules seconds


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer. `rows`: a scalar is one row of one cell, a list rows of one cell. `ordered`: order counts."""

    answer_type: AnswerType
    rows: tuple[tuple[Scalar, ...], ...]
    ordered: bool

    @classmethod
    def of(cls, answer: Any, answer_type: AnswerType, sql: str) -> "Gold":
        """From a question's `gold_answer`, `answer_type` and `gold_sql`. ValueError where answer and type disagree."""
        if answer_type == "table":
            rows = answer
        elif answer_type == "list":
            rows = [[cell] for cell in answer] if isinstance(answer, list) else None
        else:
            rows = [[answer]]
        if not (isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)):
            raise ValueError(f"not a {answer_type}: {str(answer)[:80]!r}")
        if not all(cell is None or isinstance(cell, int | float | str) for row in rows for cell in row):
            raise ValueError(f"a cell is neither number, text nor null: {str(answer)[:80]!r}")
        return cls(answer_type, tuple(map(tuple, rows)), len(rows) > 1 and is_ordered(sql))


def verify(answer_text: str, gold: Gold) -> bool:
    """Whether any reading of `answer_text` as the gold's type is the gold answer."""
    read = _READERS.get(gold.answer_type, _read_scalar)
    readings = (rows for text in _bare_texts(answer_text) for rows in read(text))
    return any(_same_rows(rows, gold) for rows in readings)


@cache
def is_ordered(sql: str) -> bool:
    """Whether the top level of a statement has ORDER BY. A subquery's does not count."""
    if not re.search(r"\border\s+by\b", sql, re.IGNORECASE):  # spares the parser for four in five
        return False
    import sqlglot  # slow to import, and only the server's reset needs it
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(sql, read="sqlite").args.get("order") is not None
    except SqlglotError:
        return _order_outside_parentheses(sql)


def _order_outside_parentheses(sql: str) -> bool:
    text = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "''", sql)
    while (shorter := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = shorter
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None


# -- reading ----------------------------------------------------------------------------------------------------------

# The server reads answers on its event loop, so each pattern takes linear time, whatever the text.
_LANGUAGE = re.compile(r"\A[\w-]*+[ \t]*+\n")
_PREFIX = re.compile(r"\A(?:the\s+)?(?:final\s+)?answer\s*(?:is\s*:|[:=])\s*", re.IGNORECASE)
_BULLET = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"\|?[\s:]*+-{3}[\s:|-]*+")
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’"}


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


# -- comparing --------------------------------------------------------------------------------------------------------


def _same_rows(rows: list[list[Read]], gold: Gold) -> bool:
    if len(rows) != len(gold.rows) or any(len(row) != len(right) for row, right in zip(rows, gold.rows, strict=True)):
        return False
    if gold.ordered or len(rows) == 1:
        return all(map(_same_row, rows, gold.rows))
    return _same_bag(rows, gold.rows)


def _same_bag(rows: list[list[Read]], gold: Sequence[Sequence[Scalar]]) -> bool:
    """Whether rows and gold rows can be paired one to one."""
    exact: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        exact.setdefault(tuple(_plain("NULL" if cell is None else cell) for cell in row), []).append(index)
    unlike = []
    for right in gold:
        partners = exact.get(tuple(_plain("NULL" if cell is None else str(cell)) for cell in right))
        if partners:
            partners.pop()
        else:
            unlike.append(right)
    left = [rows[index] for indices in exact.values() for index in indices]
    if len(unlike) > MAX_UNLIKE_ROWS:
        return False
    fits = [[index for index, row in enumerate(left) if _same_row(row, right)] for right in unlike]
    return _can_match(fits)


def _can_match(fits: list[list[int]]) -> bool:
    """Whether each gold row can have a row of its own among those that fit it (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(right: int, tried: set[int]) -> bool:
        for index in fits[right]:
            if index not in tried:
                tried.add(index)
                if index not in owner or place(owner[index], tried):
                    owner[index] = right
                    return True
        return False

    return all(place(right, set()) for right in range(len(fits)))


def _same_row(row: Sequence[Read], gold: Sequence[Scalar]) -> bool:
    return all(map(_same_cell, row, gold))


def _same_cell(text: Read, gold: Scalar) -> bool:
    if gold is None:
        return text is None or _plain(text) in ("null", "none", "")
    if text is None:
        return False
    if isinstance(gold, str):
        return _same_text(text, gold)
    return _same_number(_unquote(text.strip()), gold)


def _same_text(text: str, gold: str) -> bool:
    right = _plain(gold)
    return right in (_plain(text), _plain(_unquote(text.strip()))) or (
        not right.endswith(".") and right == _plain(_unquote(text.strip().removesuffix(".")))
    )


_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.([0-9]*))?(?:[eE][+-]?[0-9]{1,3})?")


def _same_number(text: str, gold: int | float) -> bool:
    match = _NUMBER.fullmatch(text.removesuffix(".")) if len(text) <= 64 else None
    if match is None or not any(char.isdigit() for char in match[0]):
        return False
    try:
        given = Decimal(match[0].replace(",", ""))
    except ArithmeticError:
        return False
    if given == gold:  # exact, also between Decimal and float
        return True
    if isinstance(gold, int):
        return False
    if abs(float(given) - gold) <= FLOAT_TOLERANCE * abs(gold):
        return True
    _, digits, exponent = given.as_tuple()
    if len(digits) < MIN_SIGNIFICANT_DIGITS or not isinstance(exponent, int) or not any(digits):
        return False
    return abs(given - Decimal(gold)) <= Decimal(5).scaleb(min(exponent, 0) - 1) * (1 + Decimal(FLOAT_TOLERANCE))


def _unquote(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    return text


def _plain(text: str) -> str:
    """For comparing: one Unicode form, one letter case, single spaces. An escaped line end counts as a space."""
    if text.isascii() or sum(map(bool, map(unicodedata.combining, text))) <= MAX_MARKS:
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.replace("\\n", " ").replace("\\r", " ").casefold().split())
