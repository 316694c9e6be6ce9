"""Is this cell that value? `Read` is a cell as an answer writes it, `Scalar` a value of the gold."""

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

Scalar = int | float | str | None
Read = str | None  # None is JSON's null

MIN_SIGNIFICANT_DIGITS = 3
FLOAT_TOLERANCE = 1e-9  # relative: a sum of floats changes in its last digits with the order of the scan
MAX_MARKS = 500  # combining characters of one cell; sorting a run of 20,000 of them takes Unicode's rules seconds

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’"}
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.([0-9]*))?(?:[eE][+-]?[0-9]{1,3})?")


def same_row(row: Sequence[Read], gold: Sequence[Scalar]) -> bool:
    """Whether each cell is the gold's at its place; as many as the shorter has."""
    return all(map(same_cell, row, gold))


def same_cell(text: Read, gold: Scalar) -> bool:
    """Whether an answer's cell is a gold value."""
    if gold is None:
        return text is None or plain(text) in ("null", "none", "")
    if text is None:
        return False
    if isinstance(gold, str):
        return _same_text(text, gold)
    return _same_number(unquote(text.strip()), gold)


def text_key(row: Sequence[Read]) -> tuple[str, ...]:
    """Equal keys of `text_key` and `value_key` are rows that are surely the same."""
    return tuple(plain("NULL" if cell is None else cell) for cell in row)


def value_key(row: Sequence[Scalar]) -> tuple[str, ...]:
    return tuple(plain("NULL" if cell is None else str(cell)) for cell in row)


def _same_text(text: str, gold: str) -> bool:
    right = plain(gold)
    return right in (plain(text), plain(unquote(text.strip()))) or (
        not right.endswith(".") and right == plain(unquote(text.strip().removesuffix(".")))
    )


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


def unquote(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    return text


def plain(text: str) -> str:
    """For comparing: one Unicode form, one letter case, single spaces. An escaped line end counts as a space."""
    if text.isascii() or sum(map(bool, map(unicodedata.combining, text))) <= MAX_MARKS:
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.replace("\\n", " ").replace("\\r", " ").casefold().split())
