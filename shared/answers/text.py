"""The parts of an answer's text: what wraps it, its lines and cells, JSON and Python literals.

The server reads them on its event loop, so each pattern takes linear time, whatever the text.
"""

import csv
import json
import re
from collections.abc import Callable
from typing import Any

from shared.answers.cells import Read

MAX_PYTHON_TOKENS = 4_000  # quotes and parentheses of a Python literal, at 1 us each

_LANGUAGE = re.compile(r"\A[\w-]*+[ \t]*+\n")
_PREFIX = re.compile(
    r"\A(?:\*\*)?(?:the\s+)?(?:final\s+)?answer(?:\*\*)?\s*(?:is\s*:|[:=])(?:\*\*)?\s*",
    re.IGNORECASE,
)
_BOLD = re.compile(r"(?<![\w*])\*\*([^*\n]++)\*\*(?![\w*])")
_BOXED = re.compile(r"\$?\\boxed\{(?:\\text\{([^{}]*+)\}|([^{}]*+))\}\$?\.?")
_ONE_BULLET = re.compile(r"[-*•][ \t]++([^\n]++)")
BULLET = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+")
RULE = re.compile(r"\|?[\s:]*+-{3}[\s:|-]*+")
BAR = re.compile(r"(?<!\\)\|")
_THOUSANDS = re.compile(r"[-+\u2212\u2013$€£¥₹ ]*+[0-9]{1,3}(?:,[0-9]{3})++(?![0-9,])")
_PYTHON = re.compile(
    r"""'(?P<text>(?:[^'\\]|\\.)*+)'|(?P<kept>"(?:[^"\\]|\\.)*+")|\b(?P<word>None|True|False)\b"""
    r"""|(?P<open>\()|(?P<close>\))|(?P<last>,(?=\s*+[)\]]))|(?P<unclosed>['"])""",
    re.DOTALL,
)
# what JSON does not allow between texts: full-width digits and no-break spaces
_AS_ASCII = {0xFF10 + digit: str(digit) for digit in range(10)}
_AS_ASCII |= dict.fromkeys((0xA0, 0x2007, 0x202F, 0x3000), " ")
_WORDS = {"None": "null", "True": "true", "False": "false"}


def unwrapped_texts(text: str) -> list[str]:
    r"""Return the text, then what remains without fence, 'Answer:', bold face, \boxed{}, bullet."""
    texts = [text.strip()]
    for _ in range(3):
        last = texts[-1]
        if len(last) >= 6 and last.startswith("```") and last.endswith("```"):
            inner = _LANGUAGE.sub("", last[3:-3], count=1).strip()
        elif (plain := _BOLD.sub(r"\1", last)) != last:
            inner = plain.strip()
        elif match := _BOXED.fullmatch(last):
            inner = (match[1] or match[2] or "").strip()
        elif match := _ONE_BULLET.fullmatch(last):
            inner = match[1].strip()
        else:
            inner = _PREFIX.sub("", last, count=1)
        if inner == last:
            break
        texts.append(inner)
    return texts


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def split_bars(line: str, bar: re.Pattern[str] | None = None) -> list[Read]:
    if line.startswith("|") and line.endswith("|") and len(line) > 1:
        line = line[1:-1]
    if bar is None:
        return [part.strip() for part in line.split("|")]
    return [part.strip().replace("\\|", "|") for part in bar.split(line)]


def split_commas(line: str) -> list[str]:
    try:
        return [part.strip() for part in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return [line]


def has_thousands(parts: list[str]) -> bool:
    return any(map(_THOUSANDS.match, parts))


# numbers as they are written: the number of digits that an answer gives counts
_AS_WRITTEN: Any = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), str)


def read_json(text: str) -> Any:
    """Parse JSON, JSON lines or a Python literal, with numbers as texts; else return `text`."""
    if not text.startswith(("[", "{", "(", '"')):
        return text
    forms: list[Callable[[str], str]] = [str]
    if text[0] != '"':
        short = sum(map(text.count, "'\"()")) <= MAX_PYTHON_TOKENS
        as_json: Callable[[str], str] = _python_as_json if short else str
        forms += [as_json, lambda lines: as_json(f"[{','.join(lines_of(lines))}]")]
    for form in forms:
        try:
            return json.loads(form(text), **_AS_WRITTEN)
        except (ValueError, RecursionError):
            continue
    ascii_text = text.translate(_AS_ASCII)
    return text if ascii_text == text else read_json(ascii_text)


def _python_as_json(text: str) -> str:
    """Rewrite a Python literal (lists, tuples, strings, None, True, False) as JSON."""

    def token(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return '"' + match["text"].replace("\\'", "'").replace('"', '\\"') + '"'
        if match["unclosed"]:  # as each further one would be looked for up to the end
            raise ValueError("a quote is not closed")
        if match["word"]:
            return _WORDS[match["word"]]
        if match["open"] or match["close"]:
            return "[" if match["open"] else "]"
        return "" if match["last"] else match[0]

    return _PYTHON.sub(token, text)


def unboxed(value: Any) -> Any:
    """Return the only item of a list or an object of one item; any other value as it is."""
    if not (isinstance(value, list | dict) and len(value) == 1):
        return value
    return next(iter(value.values())) if isinstance(value, dict) else value[0]


def rows_of_object(value: dict[str, Any]) -> list[Any]:
    """Return an object of columns as rows; any other object is one row, or a name for the rows."""
    columns = list(value.values())
    if columns and all(isinstance(column, list) for column in columns):
        if len(columns) == 1 and any(isinstance(item, list | dict) for item in columns[0]):
            return columns[0]  # type: ignore[no-any-return]
        if len(set(map(len, columns))) == 1:
            return [list(row) for row in zip(*columns, strict=True)]
    return [value]


def is_cell(value: Any) -> bool:
    return value is None or isinstance(value, str | bool)


def cell_text(value: Any) -> Read:
    return str(value).lower() if isinstance(value, bool) else value
