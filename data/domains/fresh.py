"""Random domains: from a seed, a schema with its words and cell makers that nobody has seen.

A domain has one naming style (how tables, keys and columns are called), two to four tables that
refer to one another, and columns drawn from word lists or made of pseudo-words, so that a model has
to read names and copy them. A column's name is its phrase, or the phrase with a word more or less:
what a question says never gives the identifier away.
"""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass

from data.domains import values
from data.domains.held_out import allowed, allowed_by, fresh_word, without_held_out
from data.domains.lexicon import listed
from data.domains.spec import Column, Domain, Kind, Maker, Table
from data.domains.words import SQL_WORDS, WORDS, is_plural, plural

PSEUDO_NOUN_SHARE = 0.04  # of tables
PSEUDO_PHRASE_SHARE = 0.04  # of columns
FITTING_SHARE = 0.75  # of the other columns, that suit the table's noun
# of references to people, that are called by a role: `coach_id -> people.person_id`
ROLE_SHARE = 0.1
DECORATED_SHARE = 0.45  # of columns whose name is not just the phrase
NULL_SHARE = 0.25  # of columns that have NULLs at all
CODE_SHARE = 0.55  # of text columns: the others hold emails, phone numbers or streets
FEW_ROWS, MANY_ROWS = 30, 200
NOUNS, NAMES = allowed_by(WORDS.nouns), allowed_by(WORDS.names)
INTEGERS, REALS, DATES, TEXTS = map(
    allowed, (WORDS.integers, WORDS.reals, WORDS.dates, WORDS.texts)
)
LABELS = allowed(tuple(WORDS.labels))
NUMBER_ADJECTIVES, CATEGORY_ADJECTIVES = (
    allowed(WORDS.number_adjectives),
    allowed(WORDS.category_adjectives),
)
COUNT_ADJUNCTS = allowed(WORDS.count_adjuncts)
FIRST_DAY, LAST_DAY = dt.date(1985, 1, 1), dt.date(2024, 12, 31)


@dataclass(frozen=True)
class Shape:
    """How large a fresh domain is; the bounds are inclusive."""

    tables: tuple[int, int] = (2, 6)
    columns: tuple[int, int] = (2, 6)  # of a table, besides its key and references
    rows: tuple[int, int] = (FEW_ROWS, MANY_ROWS)


@dataclass(frozen=True)
class Style:
    """How one domain writes its identifiers."""

    table: Callable[[str, str], str]  # (singular, plural) -> name
    key: Callable[[str], str]  # singular -> name
    ref: Callable[[str, str], str]  # (parent's singular, parent's key) -> name
    prefixed: bool  # columns start with the table's singular
    case: Callable[[str], str]


def fresh_domain(seed: int, shape: Shape | None = None) -> Domain:
    """The domain of `seed`, the same on every machine. Its `db_id` is `fresh_<seed>_<noun>`."""
    rng = random.Random(f"fresh:{seed}")
    return _Maker(rng, shape or Shape()).domain(seed)


class _Maker:
    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng = rng
        self.shape = shape
        self.style = _style(rng)
        self.noun_words: set[str] = set()

    def domain(self, seed: int) -> Domain:
        nouns = self._nouns(self.rng.randint(*self.shape.tables))
        self.noun_words = {word for _, one, many in nouns for word in (*one.split(), *many.split())}
        tables: list[Table] = []
        for kind, singular, many in nouns:
            tables.append(self._table(kind, singular, many, tables))
        label = nouns[0][1].replace(" ", "_")
        return Domain(f"fresh_{seed}_{label}", f"A database of {nouns[0][2]}", tuple(tables))

    def _nouns(self, count: int) -> list[tuple[str, str, str]]:
        """`(kind, singular, plural)` of each table, without a word in common. Things that happen
        come last."""
        found: list[tuple[str, str, str]] = []
        while len(found) < count:
            kind = self.rng.choice(list(NOUNS))
            if self.rng.random() < PSEUDO_NOUN_SHARE:
                noun = fresh_word(self.rng, 1, 3)
            else:
                noun = self.rng.choice(NOUNS[kind])
                if self.rng.random() < 0.12:
                    noun = f"{self.rng.choice(_COMPOUND_HEADS)} {noun}"
            used = {
                word for _, singular, many in found for word in (*singular.split(), *many.split())
            }
            if not used & {*noun.split(), *plural(noun).split()}:
                found.append((kind, noun, plural(noun)))
        return sorted(found, key=lambda noun: noun[0] == "event")

    def _table(self, kind: str, singular: str, many: str, parents: list[Table]) -> Table:
        style, rng = self.style, self.rng
        name = style.case(_safe(style.table(singular.replace(" ", "_"), many.replace(" ", "_"))))
        key = Column(style.case(_safe(style.key(singular.replace(" ", "_")))), Kind.KEY)
        columns: list[Column] = []
        taken = {key.name.lower()}
        count = rng.randint(*self.shape.columns)
        if kind != "event" or rng.random() < 0.4:
            columns.append(self._name(kind, singular, taken))
        for column_kind in self._kinds(count - len(columns)):
            columns.append(self._column(column_kind, kind, singular, taken))
        rest = columns[1:]
        rng.shuffle(rest)
        refs = self._refs(parents, taken)
        columns = [key, *columns[:1], *rest]
        for ref in refs:
            columns.insert(rng.choice((1, len(columns), len(columns))), ref)
        return Table(name, singular, many, tuple(columns), rng.randint(*self.shape.rows))

    def _kinds(self, count: int) -> list[Kind]:
        """A mix that lets most templates ask: a category and a number come first."""
        first = [Kind.CATEGORY, self.rng.choice((Kind.INTEGER, Kind.REAL)), Kind.DATE]
        self.rng.shuffle(first)
        more = self.rng.choices(
            (Kind.CATEGORY, Kind.INTEGER, Kind.REAL, Kind.DATE, Kind.TEXT),
            (4, 3, 3, 2, 2),
            k=max(0, count - 3),
        )
        return (first + more)[: max(1, count)]

    def _refs(self, parents: list[Table], taken: set[str]) -> list[Column]:
        if not parents:
            return []
        count = 1 if len(parents) == 1 or self.rng.random() < 0.7 else 2
        refs = []
        for parent in self.rng.sample(parents, count):
            name = self.style.ref(parent.singular.replace(" ", "_"), parent.key.name)
            phrases: tuple[str, ...] = ()
            if parent.singular in NOUNS["person"] and self.rng.random() < ROLE_SHARE:
                role = self.rng.choice(NOUNS["person"])
                name, phrases = f"{role}_id", (role,)
            name = self.style.case(_safe(name))
            if name.lower() in taken:
                continue
            taken.add(name.lower())
            null = 0.06 if self.rng.random() < 0.2 else 0.0
            refs.append(
                Column(name, Kind.REF, phrases=phrases, references=parent.name, null_share=null)
            )
        return refs

    def _name(self, kind: str, singular: str, taken: set[str]) -> Column:
        phrase = self.rng.choice(NAMES[kind])
        name = phrase.replace(" ", "_")
        if " " not in phrase and (self.style.prefixed or self.rng.random() < 0.3):
            name = f"{singular.replace(' ', '_')}_{name}"
        name = self.style.case(_safe(name))
        taken.add(name.lower())
        return Column(name, Kind.NAME, without_held_out(self._names(kind, phrase)), (phrase,))

    def _names(self, kind: str, phrase: str) -> Maker:
        roll = self.rng.random()
        if phrase in ("code", "reference", "number"):
            return values.codes(_prefix(self.rng), self.rng.choice((3, 4)))
        if roll < 0.35:
            return values.column(_pseudo_name)
        if kind == "person":
            return values.person_names()
        if kind == "organisation":
            return values.company_names()
        if kind == "place" and roll < 0.5:
            return values.column(
                lambda rng: f"{rng.choice(WORDS.objects)} {rng.choice(_PLACE_TAILS)}".title()
            )
        return values.column(_object_name)

    def _column(self, kind: Kind, noun_kind: str, singular: str, taken: set[str]) -> Column:
        """A column whose phrase shares no word with another column of its table, nor with any
        table's noun."""
        while True:
            phrase, maker = self._attribute(kind, noun_kind)
            head = phrase.split()
            used = {part for name in taken for part in name.split("_")}
            if any(word in used for word in head if word != "date") or (
                kind is Kind.DATE and head[0] in used
            ):
                continue
            if set(head) & (set(singular.split()) if kind is Kind.DATE else self.noun_words):
                continue
            identifier = self._identifier(kind, phrase, singular)
            name = self.style.case(_safe(identifier))
            if name.lower() not in taken:
                break
        taken.add("_".join([name.lower(), *head]))
        taken.add(name.lower())
        first, _, rest = identifier.partition("_")
        longer = rest == phrase and first in NUMBER_ADJECTIVES + CATEGORY_ADJECTIVES
        return Column(
            name,
            kind,
            without_held_out(maker),
            (phrase, f"{first} {phrase}") if longer else (phrase,),
        )

    def _identifier(self, kind: Kind, phrase: str, singular: str) -> str:
        """The column's name: the phrase, or it with a prefix or a suffix; always with a word of the
        phrase in it."""
        rng, parts = self.rng, phrase.split()
        if kind is Kind.DATE and parts[-1] == "date" and rng.random() < 0.35:
            parts = [*parts[:-1], rng.choice(("on", "day", "at", "dt"))]
        if kind is Kind.INTEGER and is_plural(phrase):
            parts = rng.choice((parts, parts, ["num", *parts], [*parts, "count"]))
        base = "_".join(parts)
        if self.style.prefixed:
            return f"{singular.replace(' ', '_')}_{base}"
        if rng.random() > DECORATED_SHARE:
            return base
        options = [f"{singular.replace(' ', '_')}_{base}"]
        if len(parts) == 1:
            if kind in (Kind.INTEGER, Kind.REAL):
                options += [f"{rng.choice(NUMBER_ADJECTIVES)}_{base}"] * 2
                options += [f"{base}_{rng.choice(_UNITS)}"] * 2
            elif kind is Kind.CATEGORY:
                options += [f"{rng.choice(CATEGORY_ADJECTIVES)}_{base}"] * 2
                options += [f"{base}_{rng.choice(('name', 'code', 'label', 'kind'))}"]
            elif kind is Kind.TEXT:
                options += [f"{base}_{rng.choice(('text', 'value', 'string'))}", f"contact_{base}"]
        elif kind is not Kind.DATE and len(phrase.split()) > 1:
            options += [phrase.split()[-1]] * 2
        return rng.choice(options)

    def _attribute(self, kind: Kind, noun_kind: str) -> tuple[str, Maker]:
        """A phrase and the maker of its cells."""
        rng = self.rng
        null = rng.choice((0.04, 0.1, 0.2)) if rng.random() < NULL_SHARE else 0.0
        pseudo = fresh_word(rng, 2, 3) if rng.random() < PSEUDO_PHRASE_SHARE else None
        match kind:
            case Kind.INTEGER:
                word = pseudo or self._fitting(INTEGERS, noun_kind)
                if is_plural(word):
                    dressed = (
                        f"{rng.choice(COUNT_ADJUNCTS)} {word}" if rng.random() < 0.25 else word
                    )
                    return dressed, _integers(rng, word, null)
                return self._dressed(word, NUMBER_ADJECTIVES), _integers(rng, word, null)
            case Kind.REAL:
                word = pseudo or self._fitting(REALS, noun_kind)
                return self._dressed(word, NUMBER_ADJECTIVES), _reals(rng, word, null)
            case Kind.DATE:
                first = FIRST_DAY + dt.timedelta(
                    days=rng.randrange((LAST_DAY - FIRST_DAY).days - 900)
                )
                last = min(LAST_DAY, first + dt.timedelta(days=rng.randint(400, 2600)))
                return f"{pseudo or self._fitting(DATES, noun_kind)} date", values.dates(
                    first, last, null
                )
            case Kind.CATEGORY:
                word = self._fitting(LABELS, noun_kind)
                maker = self._labels(word, null)
                return pseudo or self._dressed(word, CATEGORY_ADJECTIVES), maker
            case _:
                phrase = pseudo or rng.choice(TEXTS)
                return phrase, _texts(rng, null)

    def _fitting(self, options: tuple[str, ...], noun_kind: str) -> str:
        suited = [word for word in options if word in WORDS.fitting[noun_kind]]
        return self.rng.choice(suited if suited and self.rng.random() < FITTING_SHARE else options)

    def _dressed(self, word: str, adjectives: tuple[str, ...]) -> str:
        return f"{self.rng.choice(adjectives)} {word}" if self.rng.random() < 0.15 else word

    def _labels(self, label: str, null: float) -> Maker:
        rng = self.rng
        count = rng.randint(3, 7)
        if label == "town" and rng.random() < 0.7:
            return values.cities(count, null=null)
        known = WORDS.labels[label]
        if not known or rng.random() < 0.3:
            drawn = {fresh_word(rng, 1, 3): None for _ in range(count)}
            capital = rng.random() < 0.6
            known = tuple(word.capitalize() if capital else word for word in drawn)
        return values.skewed_choice(rng.sample(known, min(count, len(known))), null)


_COMPOUND_HEADS = allowed(
    listed("guest night local winter summer field street sea sky master junior senior spare custom")
)
_PLACE_TAILS = listed("house hall park hill bay point square lodge court ridge")
_UNITS = allowed(listed("eur usd kg cm km pct value amount num total sum"))


def _style(rng: random.Random) -> Style:
    mark = fresh_word(rng, 1, 2)
    suffix = rng.choice(("info", "data", "list", "records", "details"))
    tables: tuple[Callable[[str, str], str], ...] = (
        lambda one, many: many,
        lambda one, many: one,
        lambda one, many: f"tbl_{many}",
        lambda one, many: f"{mark}_{many}",
        lambda one, many: f"{one}_{suffix}",
    )
    keys: tuple[Callable[[str], str], ...] = (
        lambda one: f"{one}_id",
        lambda one: "id",
        lambda one: f"{one}_no",
    )
    refs: tuple[Callable[[str, str], str], ...] = (
        lambda parent, key: f"{parent}_id",
        lambda parent, key: f"{parent}_id" if key == "id" else key,
    )
    return Style(
        table=rng.choices(tables, (50, 25, 5, 10, 10))[0],
        key=rng.choices(keys, (60, 30, 10))[0],
        ref=rng.choice(refs),
        prefixed=rng.random() < 0.12,
        case=rng.choices((_same, _camel), (96, 4))[0],
    )


def _same(name: str) -> str:
    return name


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _safe(name: str) -> str:
    return f"{name}_info" if name.lower() in SQL_WORDS else name


def _pseudo_name(rng: random.Random) -> str:
    parts = [fresh_word(rng, 1, 3).capitalize() for _ in range(rng.choice((1, 1, 2)))]
    return " ".join(parts)


def _object_name(rng: random.Random) -> str:
    first = rng.choice(WORDS.adjectives) if rng.random() < 0.7 else fresh_word(rng, 1, 2)
    number = f" {rng.randint(1, 99)}" if rng.random() < 0.1 else ""
    return f"{first} {rng.choice(WORDS.objects)}".title() + number


def _integers(rng: random.Random, word: str, null: float) -> Maker:
    if word == "year":
        return values.integers(rng.randint(1900, 1990), rng.randint(2000, 2024), null)
    if word in WORDS.ranges:
        return values.integers(*WORDS.ranges[word], null)
    low = rng.choice((0, 1, 1, 5, 10, 50, 100))
    return values.integers(
        low, low + rng.choice((20, 40, 60, 100, 500, 2000, 9000)), null, skew=rng.random() < 0.3
    )


def _reals(rng: random.Random, word: str, null: float) -> Maker:
    decimals = rng.choice((1, 2, 2))
    if word in WORDS.ranges:
        return values.even_reals(*WORDS.ranges[word], decimals, null)
    low = rng.choice((0.5, 1.0, 2.0, 10.0, 40.0))
    high = low + rng.choice((10.0, 50.0, 100.0, 400.0, 2000.0))
    if word in ("price", "cost", "fee", "rent"):
        return values.prices(low, high, null)
    make = values.even_reals if rng.random() < 0.5 else values.reals
    return make(low, high, decimals, null)


def _texts(rng: random.Random, null: float) -> Maker:
    options = (values.emails, values.phones, values.streets)
    if rng.random() < CODE_SHARE:
        return values.codes(_prefix(rng), rng.choice((3, 4)), null=null)
    return rng.choice(options)(null=null)


def _prefix(rng: random.Random) -> str:
    """What all codes of a column start with."""
    return fresh_word(rng, 1, 1)[: rng.randint(1, 3)].upper() + rng.choice(("-", "-", ""))
