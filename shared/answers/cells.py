"""Read one cell of an answer (`Read`, a text) as a plain text: what shows and what is alike."""

import re
import unicodedata

from shared.answers.numbers import FULL_WIDTH

Scalar = int | float | str | None
Read = str | None  # None is JSON's null; JSON's true and false are these words

# combining characters of one cell; Unicode takes seconds to normalise a run of 20,000 of them
MAX_MARKS = 500
# Characters that nobody sees: a text is the same without them. Marks of direction are among them.
INVISIBLE = dict.fromkeys(
    (
        *(0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF),
        *(*range(0x202A, 0x202F), *range(0x2060, 0x2065), *range(0x2066, 0x206A)),
    )
)
# Characters that are typed for an apostrophe, a quote or a hyphen.
_ALIKE = str.maketrans("\u2018\u2019\u02bc\u00b4`\u201c\u201d\u2010\u2011\u2013", "'''''\"\"---")

NULLS = frozenset(["null", "none", ""])
BOOLEANS = {"true": 1, "false": 0}  # SQLite has no booleans: a comparison gives 1 or 0
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“"}
# What `env_server/render.py` escapes, and how it shows it.
_CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]|\\(?:[nrt]|x[0-9a-f]{2}|u202[89])")
_DIRECTION = re.compile(r"\\u(?:061c|200[ef]|202[a-e]|206[6-9])")


def unquote(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    return text


def visible(text: str) -> str:
    """Return a text without the characters that nobody sees."""
    return text if text.isascii() else text.translate(INVISIBLE)


def plain(text: str) -> str:
    """Normalise a text for comparison: Unicode form, letter case, spaces, invisible and escaped
    characters."""
    text = _DIRECTION.sub("", visible(text))
    if text.isascii() or sum(map(bool, map(unicodedata.combining, text))) <= MAX_MARKS:
        text = unicodedata.normalize("NFC", text)
    return " ".join(_CONTROL.sub(" ", text).casefold().split())


def folded(text: str) -> str:
    """Return a `plain` text in which characters that look alike are one: O’Hara is O'Hara."""
    return text.translate(FULL_WIDTH).translate(_ALIKE)
