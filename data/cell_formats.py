"""Read cells as people write them: numbers, times, durations and booleans.

A cell has a reading in each spelling that it fits: '1,234' is 1234 with commas that separate
thousands, and 1.234 with a decimal comma. A column is read in a spelling that all of its cells fit,
but for missing ones, if no other such spelling reads them differently; else it stays text.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import islice

from babel import Locale
from babel.numbers import list_currencies

from data.column_names import AS_CODES, Value, is_code
from shared.answers.cells import INVISIBLE

Spelling = tuple[str, ...]  # its kind, and what tells it from others of its kind

KINDS = ("number", "boolean", "date", "time")  # the first that all cells fit counts


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MISSING = (
    {""}
    | _words(
        "- -- – — ? . ... na n/a n.a. nan nat nil null none (null) <null> <na> \\n unknown "
        "0000-00-00 "  # of MySQL
        "#n/a #div/0! #value! #ref! #name? #num! #null! #nv #wert! #bezug! #zahl! #¡div/0! "
        "#¡valor! #¡ref! #¿nombre? #¡num! #valeur! #nom? #nombre! #n/d #valore! #rif! #nome? #n/b "
        "#waarde! #arg! #adr! #liczba! #дел/0! #знач! #ссылка! #имя? #число! #н/д"  # of Excel
    )
    | {"0000-00-00 00:00:00"}
)
# the nine of each script's digits: Arabic, Persian, Hindi, Bengali, Thai and full-width
_DIGITS = {ord(nine) - 9 + digit: str(digit) for nine in "٩۹९৯๙９" for digit in range(10)}
_MARKS = str.maketrans("−–－﹣＋（）．，٫٬：／％’ʼ′＇`´", "----+().,.,:/%''''''")
_SPACES = dict.fromkeys(map(ord, "\t\u00a0\u1680\u2007\u2009\u202f\u205f\u3000"), " ")
_AS_TEXT = re.compile('="[^"]*"')  # as shops and banks write codes for Excel
_ASCII = {**INVISIBLE, **_DIGITS, **_MARKS, **_SPACES}
# what separates thousands, and decimals -> the whole part, in threes or as in India, and decimals
_FORMS = {
    (group, decimal): re.compile(
        rf"((?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:[{group}]\d{{3}})+|[1-9]\d?(?:[{group}]\d\d)*[{group}]\d{{3}})?)"
        rf"(?:[{decimal}](\d*))?"
    )
    for group, decimal in (",.", ".,", " .", " ,", "'.", "',")
}
_AFFIX = r"[^\s\d.,:;'\"()/+-]"
_NUMBER = re.compile(
    rf"(\()?\s*([+-]?)\s*({_AFFIX}[^\d()+\-\"]{{0,5}}?)?\s*([+-]?)\s*"
    rf"(\d[\d.,' ]*|[.,]\d+)(e[+-]?\d+)?(?<! )(\s*)"
    rf"({_AFFIX}[^\s\d()+\-:]{{0,11}})?\s*(-?)\s*(\))?",
    re.IGNORECASE,
)
# that may follow a number without a space, beside longer words in lower case and those of scripts
# that write no spaces; others have one
_UNITS = _words(
    "% ‰ ° °c °f k m b bn g kg mg t lb oz cm mm km mi ft in yd l ml cl s sec ms h hr min d w kw mw "
    "kwh v hz khz mhz ghz px pt kb mb gb tb kib mib gib m² m³ km² ha pa hpa cal kcal kj mph km/h "
    "m/s rpm db st nd rd th x yr"
)
_MONEY = _words("rs rs. kr kr. zł kč fr fr. lei din руб руб. лв rp rp. ksh")
_SHORT_MONEY = _words("r rm")  # and codes: R101
_NO_CENTS = re.compile(r"(?<=\d)(?:([.,])--?|/-)(?=\D*$)")
_PHONE_DIGITS = 8  # of a whole number with a plus sign
_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%y-%m-%d", "%d.%m.%Y", "%d.%m.%y"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y"),
    *("%m/%Y", "%m.%Y", "%m-%Y", "%Y/%m", "%Y-%m"),
)
_DAY = re.compile(r"\d{1,4}([-/.])\d{1,4}(?:\1(\d{1,4}))?")
_NAMED_DATES = ("%d %b %Y", "%b %d %Y", "%d %b %y", "%b %d %y", "%Y %b %d", "%b %Y", "%Y %b")
_SHORT_DATE = re.compile(r"[^\W\d_]+\.?([-'/ ]?)\d\d?|\d\d?([-'/ ]?)[^\W\d_]+\.?")
LAST_SHORT_YEAR = 2029  # of two digits, as Excel reads them: 30 is 1930
_YEARLESS = ("%b %d", "%d %b")
# how people write times beyond `_TIME` and `_DAY`, and what those read
_WRITTEN: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(\d{4}) ?[年년] ?(\d\d?) ?[月월]", r"\1-\2-"),
    (r"(-\d\d?)-(?: ?(\d\d?) ?[日일]|(?=\D*$))", lambda m: m[1] + f"-{m[2]}" * bool(m[2])),
    (
        r"(\d\d?) ?[時时시点] ?(\d\d?) ?[分분](?: ?(\d\d?) ?[秒초])?",
        lambda m: ":".join(part.zfill(2) for part in m.groups() if part),
    ),
    (r"(?:上午|午前|오전) ?(.*)", r"\1 AM"),
    (r"(?:下午|午後|오후) ?(.*)", r"\1 PM"),
    (r"(?<=\d)([./-]) (?=\d)", r"\1"),  # 31. 12. 2024
    (r"^(\d+\.\d+\.\d+)\.", r"\1"),
    (r"\b(\d\d?) ?h ?([0-5]\d)$", r"\1:\2"),
    (r"\b(\d\d?)\.(\d\d) ?(?=[ap]\.?m\.?$)", r"\1:\2 "),
    (r"(?<=\d) (?:uhr|hrs)$", ""),
    (r"^(\D+ \d\d?) ([\d:]{8})( \S+)? (\d{4})$", r"\1 \4 \2\3"),  # of C's ctime
)
# of names that mean one zone -> hours
_ZONES = {
    **{"EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7},
    **{"WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9},
}
_LANGUAGES = (
    *("en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv", "da", "nb", "fi", "cs", "ru", "uk"),
    *("tr", "hu", "ro", "el"),
)
_TIME = re.compile(
    r"(?:^|(?<=\d)T|,? *(?<=[ ,]))(\d{1,2})(?::([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,9}))?)?)?"
    r" *([ap]\.?m\.?)? *(Z|UTC|GMT|(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?"
    rf"|(?:{'|'.join(_ZONES)}))?$",
    re.IGNORECASE,
)
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?")
_CLOCK = re.compile(
    r"(?:(\d{1,6}) days?,? )?(?=\d+:\d+[:.])(?:(\d{1,5}):)?(\d{1,5}):([0-5]\d)(?:[.,](\d{1,9}))?"
)
_DURATION = re.compile(
    r"P?(?:(\d+) ?d(?:ays?)?,? ?)?T?(?:(\d+) ?h(?:(?:ou)?rs?)?,? ?)?"
    r"(?:(\d+) ?m(?:in(?:ute)?s?)?,? ?)?(?:(\d+) ?s(?:ec(?:ond)?s?)?)?",
    re.IGNORECASE,
)
_BOOLEANS: dict[str, dict[Spelling, Value]] = defaultdict(dict)
for _pair in (
    *("true false", "yes no", "t f", "wahr falsch", "ja nein", "vrai faux"),
    *("oui non", "sí no", "si no", "verdadero falso", "sim não", "ja nej", "tak nie", "да нет"),
    *("vero falso", "waar onwaar", "prawda fałsz", "истина ложь", "igaz hamis", "pravda nepravda"),
    *("sant falskt", "sand falsk", "tosi epätosi", "doğru yanliş", "αληθες ψευδες", "так ні"),
    *("ja nei", "kyllä ei", "ano ne", "igen nem", "evet hayır", "ναι όχι", "真 假", "是 否"),
    *("はい いいえ", "예 아니오", "✓ ✗"),
):
    for _number, _word in enumerate(reversed(_pair.split())):
        _BOOLEANS[_word]["boolean", _pair] = _number
_currencies = cache(list_currencies)
_ZEROS = re.compile(r"0\d+")
_ENOUGH = 1_000  # different cells after which a column that is mostly text is not read further


@dataclass(frozen=True)
class Column:
    """How to read a column: `kind` is SQLite's type, `spelling` None for one that stays text.

    `note` is what a user should know: how it is read, or two cells that keep it text. `decimal` is
    the mark of decimals that its numbers show: "" if they show none, None if it may be either.
    `day` reads its numbers further, if they are days.
    """

    kind: str = "TEXT"
    spelling: Spelling | None = None
    note: str = ""
    decimal: str | None = ""
    day: Callable[[Value], str] | None = None

    def read(self, cell: str) -> Value | None:
        """Return the value of a cell: NULL for one that is missing, or empty."""
        if self.spelling is None:
            return plain(cell.replace("\0", "")) or None
        if is_missing(cell):
            return None
        value = readings(cell, self.spelling[0])[self.spelling]
        if self.day:
            return self.day(value)
        return float(value) if self.kind == "REAL" else value


def plain(text: str) -> str:
    """Return a text without what Excel doesn't show: invisible characters, spaces at its ends, and
    what makes ="001" a text."""
    text = text.translate(INVISIBLE).strip()
    return text[2:-1] if _AS_TEXT.fullmatch(text) else text


def is_missing(cell: str) -> bool:
    return plain(cell).lower() in MISSING


@lru_cache(maxsize=1 << 15)
def readings(cell: str, kind: str | None = None) -> dict[Spelling, Value]:
    """Return what a cell is in each spelling that it fits, of `kind` if one is given."""
    text = " ".join(cell.translate(_ASCII).split())
    found = dict(_BOOLEANS.get(text.lower(), {}))
    if len(text) < 80 and any(map(str.isdigit, text)):
        if kind in (None, "number"):
            found.update(_numbers(text))
        if kind in (None, "date", "time"):
            found.update(_times(text))
    return {one: value for one, value in found.items() if kind in (None, one[0])}


def column_of(
    cells: Callable[[], Iterable[tuple[str, int]]],
    decimal: str = "",
    sample: Iterable[tuple[str, int]] = (),
    words: str = "",
) -> Column:
    """Return how to read a column: `cells` gives its different cells, each with its number.

    `decimal` is the mark of decimals of the other columns, if they have one, and `words` are the
    column's `name_words`. If most cells of the `sample` can be nothing but text, the others are not
    read.
    """
    first = list(islice((one for one in sample if not is_missing(one[0])), _ENOUGH))
    texts = sum(number for cell, number in first if not readings(cell))
    if texts > sum(number for _, number in first) / 2:
        return Column()
    fits: Counter[Spelling] = Counter()
    kinds: Counter[str] = Counter()
    total = 0
    gaps = False

    def known() -> Iterator[tuple[str, int]]:
        nonlocal gaps
        for cell, number in cells():
            if is_missing(cell):
                gaps = True
            else:
                yield cell, number

    stream = known()
    while some := list(islice(stream, _ENOUGH)):
        for cell, number in some:
            total += number
            found = readings(cell)
            fits.update(dict.fromkeys(found, number))
            kinds.update(dict.fromkeys({one[0] for one in found if is_usual(one)}, number))
        if max([*fits.values(), *kinds.values()], default=0) <= total / 2:
            return Column()
    if fitting := [spelling for spelling in fits if fits[spelling] == total]:
        usual = [one for one in fitting if one[0] == "number" and one[1][1] == decimal]
        column = _settled(lambda: (cell for cell, _ in known()), usual or fitting, gaps)
        code = column.spelling and is_code(words, column.kind, (cell for cell, _ in known()))
        return Column(note=AS_CODES) if code else column
    if not fits:
        return Column()
    best, most = fits.most_common(1)[0]
    odd = list(islice((cell for cell, _ in known() if best not in readings(cell)), _ENOUGH))
    if all(map(_ZEROS.fullmatch, odd)):  # codes
        return Column()
    shown = " and not ".join(map(repr, odd[:2]))
    what = f"{most:,} of {total:,} cells are {best[0]}s in one spelling"
    return Column(note=f"stays text: {what}, and not {shown}")


def is_usual(spelling: Spelling) -> bool:
    """Return whether cells of this spelling look like its kind: '12 Main' is no number."""
    return spelling[0] != "number" or not spelling[2] or _is_unit(spelling[2], spaced=False)


def _settled(cells: Callable[[], Iterable[str]], fitting: list[Spelling], gaps: bool) -> Column:
    """Return the column of cells that all fit; as text if it is open what they are, or if they are
    in ISO's form already, without `gaps`."""
    first, *others = sorted(fitting, key=lambda one: (KINDS.index(one[0]), one))
    rivals = [other for other in others if other[0] == first[0] and other[-1] != "duration"]
    types: set[type] = set()
    bits: set[Value] = set()
    shapes: set[int | None] = set()
    footnotes, example = True, None
    for cell in cells():
        found = readings(cell, first[0])
        value = found[first]
        for rival in rivals:
            if (other := found[rival]) != value:
                note = f"stays text: {cell!r} can be {value} and {other}"
                return Column(note=note, decimal=None if first[0] == "number" else "")
        types.add(type(value))
        if first[0] == "boolean":
            bits.add(value)
        if first[0] == "date" and len(shapes) < 2:
            shapes.add(len(cell) if _ISO.fullmatch(cell) else None)
        footnotes = footnotes and cell.startswith("(")
        if example is None and str(value) != cell:
            example = cell
    if footnotes:
        return Column(note=f"stays text: {example!r} can be a negative number or a note's")
    if first[1] in _YEARLESS:
        return Column(note=f"stays text: {example!r} has no year")
    single = first[0] == "boolean" and first[1] != "true false" and len(bits) < 2
    iso = len(shapes) == 1 and None not in shapes
    if single or (iso and not gaps):
        return Column()
    kind = "TEXT" if str in types else "REAL" if float in types else "INTEGER"
    marks = {one[1][1] for one in fitting if one[0] == "number"}
    column = Column(kind, first, decimal=marks.pop() if len(marks) == 1 else "")
    if example is None:
        return column
    kind = f"{first[0]}s, in seconds" if first[-1] == "duration" else f"{first[0]}s"
    return replace(column, note=f"is read as {kind}: {example!r} is {column.read(example)!r}")


def _numbers(text: str) -> Iterator[tuple[Spelling, Value]]:
    text = _NO_CENTS.sub(lambda mark: f"{mark[1]}00" if mark[1] else "", text)
    text = re.sub(r"^(\D{1,6})\((.+)\)$", r"(\1\2)", text)  # $(5.00)
    found = _NUMBER.fullmatch(text)
    if not found:
        return
    opened, *signs, digits, exponent, space, behind, after, closed = (
        found[number] or "" for number in (1, 2, 4, 5, 6, 7, 8, 9, 10)
    )
    front = (found[3] or "").strip()
    sign = "".join((*signs, after))
    if len(sign) + len(opened) > 1 or bool(opened) != bool(closed) or (front and behind):
        return
    short = front.lower() in _SHORT_MONEY and re.search(r"\d[., ]\d", digits)
    if front and not short and not _is_money(front):
        return
    if behind and not _is_unit(behind, bool(space)):
        return
    if sign == "+" and sum(map(str.isdigit, digits)) >= _PHONE_DIGITS and "." not in digits:
        return
    unit = re.sub(
        r"(?<=[^\W\d_]{2})s$|^(?:st|nd|rd)$", lambda m: "" if m[0] == "s" else "th", front + behind
    )
    for (group, decimal), form in _FORMS.items():
        parts = form.fullmatch(digits)
        if not parts or not (parts[1] or parts[2]):
            continue
        whole = parts[1].replace(group, "")
        if exponent or parts[2] is not None:
            number: int | float = float(f"{whole or 0}.{parts[2] or 0}{exponent}")
        else:
            number = int(whole)
        if math.isfinite(number) and (isinstance(number, float) or number < 2**63):
            yield ("number", group + decimal, unit), -number if sign == "-" or opened else number


def _is_money(text: str) -> bool:
    text = text.partition("/")[0]
    symbol = len(text) < 4 and any(unicodedata.category(char) == "Sc" for char in text)
    return symbol or text in _currencies() or text.lower() in _MONEY


def _is_unit(text: str, spaced: bool) -> bool:
    lower = text.lower().strip(".")
    word = spaced or (len(text) > 2 and text.islower()) or unicodedata.category(text[0]) == "Lo"
    free = word and text[0].isalpha() and lower not in ("am", "pm", "a.m", "p.m", *months())
    return free or lower in _UNITS or _is_money(text)


@cache
def months() -> dict[str, str]:
    """Return the words of dates in several languages, in lower case: months -> '%b' in English,
    and those that say nothing more -> ''."""
    found: dict[str, str] = {"sept": "Sep"}
    for kind in ("months", "days"):
        for language in _LANGUAGES:
            for form in ("format", "stand-alone"):
                for width in ("wide", "abbreviated"):
                    for number, name in getattr(Locale(language), kind)[form][width].items():
                        month = datetime(2000, number, 1).strftime("%b") if kind == "months" else ""
                        found.setdefault(name.lower().rstrip("."), month)
    return {**found, **dict.fromkeys(_words("de del of the at le den um à г року"), "")}


def _times(text: str) -> Iterator[tuple[Spelling, Value]]:
    for written, usual in _WRITTEN:
        text = re.sub(written, usual, text, flags=re.IGNORECASE)
    if (clock := _CLOCK.fullmatch(text)) or (clock := _DURATION.fullmatch(text)):
        parts, factors = clock.groups()[:4], (86_400, 3_600, 60, 1)
        seconds = sum(int(part or 0) * size for part, size in zip(parts, factors, strict=True))
        fraction = clock.re is _CLOCK and clock[5]
        if clock.re is not _CLOCK or not clock[2] or int(clock[3]) < 60:
            yield ("time", "duration"), float(f"{seconds}.{fraction}") if fraction else seconds
    found = _TIME.search(text)
    if not found or not (found[2] or found[5]):
        for form, day in _days(text).items():
            yield ("date", form), day
        return
    hour, half, zone = int(found[1]), found[5], found[6]
    if (hour > 23) if not half else not 1 <= hour <= 12:
        return
    if half:
        hour = hour % 12 + 12 * half.lower().startswith("p")
    time, clock_of = f"{hour:02}:{found[2] or '00'}", "12" if half else "24"
    fraction = f".{found[4][:6]}".rstrip("0.") if found[4] else ""
    if not (date := text[: found.start()].rstrip(" ,")):
        if not zone:
            yield ("time", clock_of), f"{time}:{found[3]}{fraction}" if found[3] else time
        return
    for form, day in _days(date).items():
        if len(day) == 10:
            value = f"{day} {time}:{found[3] or '00'}{fraction}"
            with suppress(OverflowError):  # the first or the last day of all
                if zone:
                    offset = f"{_ZONES.get(zone.upper(), 0):+03}00"
                    if re.search(r"\d", zone):
                        offset = re.sub(r"[^\d+-]", "", zone).ljust(5, "0")
                    moment = datetime.fromisoformat(value + offset).astimezone(UTC)
                    value = moment.replace(tzinfo=None).isoformat(" ")
                yield ("date", form, clock_of, "zone" * bool(zone)), value


@lru_cache(maxsize=1 << 15)
def _days(text: str) -> dict[str, str]:
    """Return what a date, or a month of a year, is in ISO's form in each format that it fits."""
    formats: tuple[str, ...] = _NAMED_DATES
    if numbers := _DAY.fullmatch(text):
        marks = (numbers[1], 1 + (numbers[2] is not None))
        formats = tuple(one for one in _DATES if (one[2], one.count(one[2])) == marks)
    else:
        words = re.findall(r"\d+|[^\W\d_]+", re.sub(r"(\d)(?:st|nd|rd|th|er|º)\b", r"\1", text))
        if not any(word.lower() in months() for word in words):
            return {}
        if short := _SHORT_DATE.fullmatch(text):
            years = ("%b %y", "%y %b") if {short[1], short[2]} & {"-", "'", "/"} else ()
            formats = (*_YEARLESS, *years)
        text = " ".join(filter(None, (months().get(word.lower(), word) for word in words)))
    found = {}
    for form in formats:
        yearless = form in _YEARLESS
        try:
            day = datetime.strptime(text + " 2000" * yearless, form + " %Y" * yearless)
        except ValueError:
            continue
        if "%y" in form and day.year > LAST_SHORT_YEAR:
            day = day.replace(year=day.year - 100)
        found[form] = day.date().isoformat()[5 * yearless : 10 if "%d" in form else 7]
    return found
