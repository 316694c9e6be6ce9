"""Read the number in one cell of an answer, with its unit, and compare it with the gold's."""

import re
from decimal import Decimal

MIN_SIGNIFICANT_DIGITS = 3
FLOAT_TOLERANCE = 1e-9  # relative: the last digits of a sum depend on the order of the scan
MAX_NUMBER_CHARS = 64

_THOUSANDS = ",\u00a0\u2009\u202f"  # a comma or a no-break space
_NUMBER = re.compile(
    rf"[+-]?(?:[0-9]{{1,3}}(?:[{_THOUSANDS}][0-9]{{3}})++(?![0-9])|[0-9]++)?"
    r"(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]{1,3})?"
)
# dashes that stand for a minus before a number, where a space would make them a bullet
_DASH = re.compile("\\A[\u2010-\u2013\ufe63\uff0d](?=[0-9.$€£¥₹])")
_CURRENCY = re.compile(r"([+-]?)[$€£¥₹]\s?([+-]?)(?=[0-9.])")
_WORDS = re.compile(r"[^\W\d_]{3,}")

_LENGTHS = (
    "mm cm m km in inch inches ft foot feet yd yard yards mi mile miles "
    "millimeter millimeters millimetre millimetres centimeter centimeters centimetre centimetres "
    "meter meters metre metres kilometer kilometers kilometre kilometres"
)
_OTHERS = """
    % percent per\u00a0cent pct
    $ € £ ¥ ₹ usd eur gbp jpy chf cad aud cny inr dollar dollars euro euros pound pounds yen
    rupee rupees cent cents
    mg g kg t lb lbs oz gram grams gramme grammes kilo kilos kilogram kilograms milligram milligrams
    tonne tonnes ton tons ounce ounces
    ml cl dl l liter liters litre litres gallon gallons
    ms s sec secs second seconds min mins minute minutes h hr hrs hour hours day days week weeks
    month months year years yr yrs
    km/h kph mph m/s knots °c °f ° degree degrees
    hp w kw mw wh kwh v hz khz mhz ghz kb mb gb tb byte bytes kib mib gib
    m² km² cm² ft² m³ cm³ m2 km2 m3 ha hectare hectares acre acres sqm sqft
    point points pt pts times item items unit units piece pieces row rows people persons
"""
_LENGTH_UNITS = frozenset(_LENGTHS.split())
_OTHER_UNITS = re.split(r"[ \n]+", _OTHERS.strip())  # not at the no-break space within one
UNITS = _LENGTH_UNITS.union(unit.replace("\u00a0", " ") for unit in _OTHER_UNITS)
_AREA = re.compile(r"(?:square|sq\.?|cubic|cu\.?) (.+)")

# Never units, even if the question has them: they change the meaning of the number before them.
_NOT_UNITS = (
    "hundred thousand million billion trillion dozen lakh crore half halves third quarter tenth "
    "more less fewer than least most not over under above below about around without except minus "
    "plus and"
)

# full-width forms of ASCII
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


def unit_words(question: str) -> frozenset[str]:
    """Return the stems of the question's words that may follow a number as its unit."""
    stems = map(_stem, _WORDS.findall(question.casefold()))
    return frozenset(stems) - frozenset(map(_stem, _NOT_UNITS.split()))


def read_number(text: str, words: frozenset[str] = frozenset()) -> Decimal | None:
    """Return the number that `text` is, with all digits given, or None.

    '42 %' is 42, never 0.42; '5 kg' is 5, never 5000: a unit does not change the number. Only the
    `UNITS` and the stems in `words` count as units. A word that scales ('5 million') or compares
    ('5 or more') makes the text not a number.
    """
    if len(text) > MAX_NUMBER_CHARS:
        return None
    if not text.isascii():
        text = text.translate(FULL_WIDTH)
    text = _DASH.sub("-", text.removesuffix("."), count=1).replace("\u2212", "-")
    number = _CURRENCY.sub(r"\1\2", text, count=1)
    match = _NUMBER.match(number)
    if match is None or not any(char.isdigit() for char in match[0]):
        return None
    unit = number[match.end() :].strip()
    if unit and (number != text or not _is_unit(unit, words)):
        return None
    try:
        return Decimal(re.sub(f"[{_THOUSANDS}]", "", match[0]))
    except ArithmeticError:
        return None


def is_value(given: Decimal, gold: float) -> bool:
    """Return whether `given` is the gold, up to the tolerance, or rounded to the decimals given,
    which needs three significant digits or more."""
    if abs(float(given) - gold) <= FLOAT_TOLERANCE * abs(gold):
        return True
    half_unit = rounding(given)
    if half_unit is None:
        return False
    return abs(given - Decimal(gold)) <= half_unit * (1 + Decimal(FLOAT_TOLERANCE))


def rounding(given: Decimal) -> Decimal | None:
    """Return how far a number may be from what it was rounded from; None if it is too short."""
    _, digits, exponent = given.as_tuple()
    if len(digits) < MIN_SIGNIFICANT_DIGITS or not isinstance(exponent, int) or not any(digits):
        return None
    return Decimal(5).scaleb(min(exponent, 0) - 1)


def _is_unit(text: str, words: frozenset[str]) -> bool:
    unit = " ".join(text.casefold().split())
    if unit in UNITS:
        return True
    if match := _AREA.fullmatch(unit):
        return match[1] in _LENGTH_UNITS
    return all(_WORDS.fullmatch(word) and _stem(word) in words for word in unit.split())


def _stem(word: str) -> str:
    """Return what singular and plural share: 'singer(s)', 'citi' of city and cities, 'match(es)',
    'movi' of movie and movies."""
    stem = word if word.endswith("ss") else word.removesuffix("s")
    return re.sub("y$", "i", stem).removesuffix("e")
