"""A number as an answer writes it: thousands separators, a currency sign, a unit.

The number counts as it is written: '42 %' is 42, never 0.42; '5 kg' is 5, never 5000. So a unit
says nothing that is compared, and only what is surely one is taken for one: those in `UNITS`, and a
word that the question itself has ('7 singers'). A word that scales ('5 million') or compares ('5 or
more') makes the text no number at all.
"""

import re
from decimal import Decimal

MIN_SIGNIFICANT_DIGITS = 3
# relative: a sum of floats changes in its last digits with the order of the scan
FLOAT_TOLERANCE = 1e-9
MAX_CHARS = 64

_THOUSANDS = ",\u00a0\u2009\u202f"  # a comma, or a space that doesn't break
_NUMBER = re.compile(
    rf"[+-]?(?:[0-9]{{1,3}}(?:[{_THOUSANDS}][0-9]{{3}})++(?![0-9])|[0-9]++)?(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]{{1,3}})?"
)
_CURRENCY = re.compile(r"([+-]?)[$€£¥₹]\s?([+-]?)(?=[0-9.])")
_WORDS = re.compile(r"[^\W\d_]{3,}")

_LENGTHS = (
    "mm cm m km in inch inches ft foot feet yd yard yards mi mile miles millimeter millimeters millimetre millimetres "
    "centimeter centimeters centimetre centimetres meter meters metre metres kilometer kilometers kilometre kilometres"
)
_OTHERS = """
    % percent per\u00a0cent pct
    $ € £ ¥ ₹ usd eur gbp jpy chf cad aud cny inr dollar dollars euro euros pound pounds yen rupee rupees cent cents
    mg g kg t lb lbs oz gram grams gramme grammes kilo kilos kilogram kilograms milligram milligrams
    tonne tonnes ton tons ounce ounces
    ml cl dl l liter liters litre litres gallon gallons
    ms s sec secs second seconds min mins minute minutes h hr hrs hour hours day days week weeks month months
    year years yr yrs
    km/h kph mph m/s knots °c °f ° degree degrees
    hp w kw mw wh kwh v hz khz mhz ghz kb mb gb tb byte bytes kib mib gib
    m² km² cm² ft² m³ cm³ m2 km2 m3 ha hectare hectares acre acres sqm sqft
    point points pt pts times item items unit units piece pieces row rows people persons
"""
_LENGTH_UNITS = frozenset(_LENGTHS.split())
UNITS = _LENGTH_UNITS.union(
    unit.replace("\u00a0", " ") for unit in re.split(r"[ \n]+", _OTHERS.strip())
)
_AREA = re.compile(r"(?:square|sq\.?|cubic|cu\.?) (.+)")

# No units, also where the question has them: they change what the number before them says.
_SCALES = (
    "hundred thousand million billion trillion dozen lakh crore half halves third quarter tenth"
)
_COMPARISONS = "more less fewer than least most not over under above below about around without except minus plus and"


def unit_words(question: str) -> frozenset[str]:
    """Stems of the question's words that an answer may write after a number."""
    return frozenset(map(_stem, _WORDS.findall(question.casefold()))) - _NO_UNITS


def read_number(text: str, words: frozenset[str] = frozenset()) -> Decimal | None:
    """The number that `text` is, with all the digits given, or None. `words`: stems that count as
    units too."""
    if len(text) > MAX_CHARS:
        return None
    text = text.removesuffix(".").replace("\u2212", "-")
    bare = _CURRENCY.sub(r"\1\2", text, count=1)
    match = _NUMBER.match(bare)
    if match is None or not any(char.isdigit() for char in match[0]):
        return None
    unit = bare[match.end() :].strip()
    if unit and (bare != text or not _is_unit(unit, words)):
        return None
    try:
        return Decimal(re.sub(f"[{_THOUSANDS}]", "", match[0]))
    except ArithmeticError:
        return None


def is_value(given: Decimal, gold: int | float) -> bool:
    """Whether `given` is the gold, or a float gold rounded to the decimals given, three significant
    digits or more."""
    if given == gold:  # exact, also between Decimal and float
        return True
    if isinstance(gold, int):
        return False
    if abs(float(given) - gold) <= FLOAT_TOLERANCE * abs(gold):
        return True
    _, digits, exponent = given.as_tuple()
    if len(digits) < MIN_SIGNIFICANT_DIGITS or not isinstance(exponent, int) or not any(digits):
        return False
    return abs(given - Decimal(gold)) <= Decimal(5).scaleb(min(exponent, 0) - 1) * (
        1 + Decimal(FLOAT_TOLERANCE)
    )


def _is_unit(text: str, words: frozenset[str]) -> bool:
    unit = " ".join(text.casefold().split())
    if unit in UNITS:
        return True
    if match := _AREA.fullmatch(unit):
        return match[1] in _LENGTH_UNITS
    return _WORDS.fullmatch(unit) is not None and _stem(unit) in words


def _stem(word: str) -> str:
    """The singular, roughly: 'singers' and 'singer' are one, as are 'cities' and 'city'."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


_NO_UNITS = frozenset(map(_stem, f"{_SCALES} {_COMPARISONS}".split()))
