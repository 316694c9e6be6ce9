"""Read the records of a text file: its encoding, its delimiter, its quotes, and its line breaks.

The delimiter and the quotes are those by which most records are of one width. A cell that starts
with a quote but doesn't end with one is text, with its quote, and ends at the next delimiter.
"""

import codecs
import re
from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import charset_normalizer

from shared.answers.cells import INVISIBLE
from shared.console import counted
from shared.errors import DataError

MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
WESTERN = "cp1252"  # what Windows writes in Western Europe and America
GUESSES = [
    "cp1250", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp932", "gb18030", "big5", "euc_kr"
]  # fmt: skip
# The letters beyond ASCII of languages, by the encoding of their Windows. A text is of the first
# language that has all its letters.
ALPHABETS = [
    (WESTERN, "äöüß"), (WESTERN, "àâçèéêëîïôœùûüÿ"),  # German, French
    (WESTERN, "áéíñóúü"), (WESTERN, "àèéìòù"),  # Spanish, Italian
    (WESTERN, "åäöéü"), (WESTERN, "æøåéöäü"),  # Swedish, Danish
    ("cp1250", "áéíóöőúüű"), (WESTERN, "áâãàçéêíóôõú"),  # Hungarian, Portuguese
    ("cp1254", "âçğıİîöşûü"), ("cp1250", "ąćęłńóśźż"),  # Turkish, Polish
    ("cp1250", "áčďéěíňóřšťúůýž"), ("cp1250", "áäčďéíĺľňóôŕšťúýž"),  # Czech, Slovak
    ("cp1250", "ăâîşţ"), ("cp1250", "čćđšž"),  # Romanian, Croatian
    (WESTERN, "áðéíóúýþæö"), ("cp1257", "ąčęėįšųūž"),  # Icelandic, Lithuanian
    ("cp1257", "āčēģīķļņšūž"), ("cp1257", "äõöüšž"),  # Latvian, Estonian
]  # fmt: skip
IN_WORDS = "\xa0’–"  # beyond ASCII, in texts of any language
# of cp1252, in no word, such as a pound sign before a number; a letter in other encodings
SYMBOL = re.compile(rb"(?<![A-Za-z\x80-\xff])[\x80-\xbf](?![A-Za-z\x80-\xff])")
GUESSED_BYTES, LEAST_GUESSED = 1 << 16, 5  # bytes beyond ASCII that a guess needs
CHUNK_CHARS = 1 << 20
MAX_LINE_CHARS = 1 << 26
MAX_CONTROLS, MIN_CONTROLS = 0.01, 8  # of the characters; a file that has more is no text
_CONTROLS = dict.fromkeys([*range(9), *range(0x0E, 0x20)])
DELIMITERS = ",;\t|^~"
RARE_DELIMITERS = "::", ":"  # only if all lines have as many
_NAME = re.compile(r"[^\W\d]\S*")
NO_DELIMITER = "\x1f"  # a control character, which no text has
SAMPLE_LINES = 1_000
LEAST_SHARE = 0.5  # of records with more than the one cell that the first has
MOST_ALIKE = 0.9  # of the lines inside a quoted cell; if more could be records, its quote is odd
R_HEADER = re.compile(r'"[^"]*"(?: "[^"]*")*')  # as R's write.table writes it


class Record(NamedTuple):
    """The cells of a record, the line or row where it starts, and whether a quote in it is odd."""

    line: int
    cells: list[str]
    odd: bool = False


class Dialect(NamedTuple):
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'  # what stands before a quote inside of quotes: another, or a backslash


R_TABLE = Dialect(" ", escape="\\")


def as_utf8(path: Path, target: Path, shown: str) -> list[str]:
    """Write the text of `path` to `target`: in UTF-8, with plain line breaks, and without invisible
    and control characters. Return notes. Raise `DataError` if it is no text.
    """
    problems = []
    for name in _encodings(path):
        size = dropped = 0
        try:
            with (
                path.open(encoding=name, newline=None) as file,
                target.open("w", encoding="utf-8", newline="") as copy,
            ):
                while text := file.read(CHUNK_CHARS):
                    plain = text.translate(_CONTROLS)
                    size, dropped = size + len(text), dropped + len(text) - len(plain)
                    dropped -= text.endswith("\x1a")  # where DOS ends a file
                    copy.write(plain.translate(INVISIBLE))
        except UnicodeError as error:
            problems.append(f"{shown} is not {name.upper()} ({error}): save it as UTF-8")
            continue
        if dropped > max(MIN_CONTROLS, MAX_CONTROLS * size):
            raise DataError(f"{shown} is no text: {dropped:,} of {size:,} characters are controls")
        file_name = Path(shown).name
        notes = [f"{file_name} is no UTF-8: it is read as {name}"] if problems else []
        if dropped:
            notes.append(
                f"{file_name}: {counted(dropped, 'control character')} left out, such as NUL"
            )
        return notes
    raise DataError(problems[0])


def _encodings(path: Path) -> list[str]:
    """Return the encodings to try: a byte order mark's, or UTF-8 and what the bytes look like."""
    with path.open("rb") as file:
        start = file.read(GUESSED_BYTES)
    if marked := next((name for mark, name in MARKS.items() if start.startswith(mark)), None):
        return [marked]
    for name, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if zeros.count(0) > len(zeros) / 2:
            return [name]
    start = SYMBOL.sub(b"", start)
    beyond = sum(byte > 127 for byte in start)
    letters = sum(chr(byte).isalpha() for byte in start)
    western = [WESTERN] if 2 * beyond < letters else []  # the others write few letters beyond ASCII
    guess = None
    if beyond >= LEAST_GUESSED:
        for name, alphabet in ALPHABETS if western else []:
            usual = alphabet + alphabet.upper() + IN_WORDS
            text = set(start.decode(name, "replace"))
            if all(letter.isascii() or letter in usual for letter in text):
                return ["utf-8", name]
        found = charset_normalizer.from_bytes(start, cp_isolation=[*western, *GUESSES])
        guess = found.best()
        for one in found:
            equal = guess and (one.chaos, one.coherence) == (guess.chaos, guess.coherence)
            if one.encoding == WESTERN and equal:
                guess = one
    same = guess is None or str(guess) == start.decode(WESTERN, "replace")
    return ["utf-8", WESTERN if guess is None or same else guess.encoding]


def lines_of(utf8: Path) -> Iterator[str]:
    """Yield the lines of what `as_utf8` wrote."""
    with utf8.open(encoding="utf-8", newline="\n") as file:
        while line := file.readline(MAX_LINE_CHARS):
            yield line.removesuffix("\n")


def text_records(utf8: Path, suffix: str) -> Iterator[Record]:
    """Yield the records of what `as_utf8` wrote, in the dialect that fits its first lines best."""
    sample = list(islice(lines_of(utf8), SAMPLE_LINES))
    first, marks = 0, DELIMITERS
    excel = re.compile(r'"?sep=(\\t|.)"?', re.IGNORECASE)  # its first line
    if sample and (named := excel.fullmatch(sample[0].strip(" "))):
        first, marks = 1, named[1].replace("\\t", "\t")
    if suffix in (".tsv", ".tab") and any("\t" in line for line in sample):
        marks = "\t"
    found = records(lines_of(utf8), _dialect(sample[first:], marks))
    return (record for record in found if record.line > first)


def _dialect(lines: list[str], marks: str) -> Dialect:
    if lines and R_HEADER.fullmatch(lines[0]):
        first, *rows = (len(one.cells) for one in records(iter(lines), R_TABLE) if any(one.cells))
        if len(set(rows)) == 1 and rows[0] > 1 and rows[0] - first in (0, 1):
            return R_TABLE
    text = "\n".join(lines)
    quotes = [('"', '"')] + [('"', "\\")] * ('\\"' in text) + [("'", "'")] * ("'" in text)
    dialects = [Dialect(mark, *quote) for quote in quotes for mark in marks if mark in text]
    fits = {dialect: _fit(lines, dialect) for dialect in dialects}
    best = max(fits, key=lambda one: fits[one], default=None)
    if best and fits[best][0]:
        return best
    for mark in RARE_DELIMITERS:
        counts = {line.count(mark) for line in lines if line}
        names = lines[0].split(mark) if lines else []
        if len(counts) == 1 and counts != {0} and (mark != ":" or all(map(_NAME.match, names))):
            return Dialect(mark)
    return Dialect(NO_DELIMITER)


def _fit(lines: list[str], dialect: Dialect) -> tuple[float, int, int, int]:
    """Return how well a dialect fits: the share of records of one width, then what breaks a tie."""
    found = [one for one in records(iter(lines), dialect) if any(one.cells)]
    widths = Counter(len(one.cells) for one in found)
    width, number = max(
        ((n, widths[n]) for n in widths if n > 1), key=lambda one: one[1], default=(1, 0)
    )
    share = number / max(1, len(found))
    prose = all(
        mark == " "
        for line in lines
        for mark in re.findall(f"{re.escape(dialect.delimiter)}(.)", line)
    )
    if found and len(found[0].cells) == 1 and (prose or share < LEAST_SHARE):
        share = 0  # a header, and texts with commas
    opens = re.compile(rf"(?:^|{re.escape(dialect.delimiter)}) *{dialect.quote}")
    quoted = sum(len(opens.findall(line)) for line in lines)
    return share, -sum(one.odd for one in found), quoted, width


def records(lines: Iterator[str], dialect: Dialect) -> Iterator[Record]:
    mark, quote = re.escape(dialect.delimiter), dialect.quote
    inner = (
        rf"(?:[^{quote}]|{quote}{quote})*+"
        if dialect.escape == quote
        else rf"(?:[^{quote}\\]|\\.|{quote}{quote})*+"
    )
    opens = re.compile(f" *{quote}")
    whole = re.compile(rf" *{quote}({inner}){quote} *(?:({mark})|\Z)", re.DOTALL)
    runs_on, ends = (
        re.compile(rf"{inner}\Z", re.DOTALL),
        re.compile(rf"{inner}{quote} *(?:{mark}|\Z)", re.DOTALL),
    )
    loose = re.compile(rf" *{quote}(.*?){quote} *(?:({mark})|\Z)")  # with quotes inside
    escaped = re.compile(
        rf"{re.escape(dialect.escape)}({quote}|\\)"
        if dialect.escape != quote
        else f"{quote}({quote})"
    )
    ahead: deque[str] = deque()
    number = 0

    def following() -> Iterator[str]:
        yield from list(ahead)
        for line in lines:
            ahead.append(line)
            yield line

    while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
        number, start = number + 1, number + 1
        if quote not in line:
            yield Record(start, line.split(dialect.delimiter))
            continue
        cells: list[str] = []
        at: int | None = 0
        odd = False
        while at is not None:
            opening = opens.match(line, at)
            if opening and runs_on.match(line, opening.end()):  # over several lines
                taken = _continued(line, following(), dialect.delimiter, runs_on, ends)
                line = "\n".join([line, *(ahead.popleft() for _ in range(taken))])
                number += taken
            if opening and (found := whole.match(line, at) or loose.match(line, at)):
                odd = odd or found.re is loose
                cells.append(escaped.sub(r"\1", found[1]))
                at = found.end() if found[2] else None
                continue
            odd = odd or opening is not None
            end = line.find(dialect.delimiter, at)
            cells.append(line[at:] if end < 0 else line[at:end])
            at = None if end < 0 else end + len(dialect.delimiter)
        yield Record(start, cells, odd)


def _continued(
    first: str, following: Iterator[str], mark: str, runs_on: re.Pattern[str], ends: re.Pattern[str]
) -> int:
    """Return how many of the following lines a cell takes that starts in `first` with a quote.

    0 if the quote never ends, or if these lines are records themselves.
    """
    size = alike = 0
    for taken, line in enumerate(following, 1):
        size += len(line)
        if size > MAX_LINE_CHARS:
            return 0
        if not runs_on.match(line):
            inside = taken - 1
            rows = inside and alike >= MOST_ALIKE * inside
            return 0 if rows or not ends.match(line) else taken
        alike += line.count(mark) == first.count(mark) > 0 and f"{mark} " not in line
    return 0
