"""Random domains: from a seed, a schema with its words and cell makers that no model has seen.

A domain has one naming style (of tables, keys and columns), two to six tables that refer to one
another, and columns from word lists or made of pseudo-words, so that a model has to read names and
copy them. A column's name is its phrase, or the phrase with a word more or less: the text of a
question does not determine the identifier.
"""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass

from data.domains import values, words
from data.domains.held_out import allowed, fresh_word, without_held_out
from data.domains.spec import Column, Domain, Kind, Maker, Table
from data.domains.words import LISTS, SQL_WORDS, is_plural, plural

# fewest and most
TABLES = (2, 6)
COLUMNS = (2, 6)  # of a table, besides its key and references
ROWS = (30, 200)
PSEUDO_NOUN_SHARE = 0.04  # of tables
PSEUDO_PHRASE_SHARE = 0.04  # of columns
FITTING_SHARE = 0.75  # of the other columns, whose phrase suits the table's noun
ROLE_SHARE = 0.1  # of references to people, named by a role: `coach_id -> people.person_id`
DECORATED_SHARE = 0.45  # of columns whose name is more than the phrase
NULL_SHARE = 0.25  # of columns that have NULLs at all
CODE_SHARE = 0.55  # of text columns; the others hold emails, phone numbers or streets
FIRST_DAY, LAST_DAY = dt.date(1985, 1, 1), dt.date(2024, 12, 31)

# without what is held out
NOUNS, NAMES, ALLOWED = (
    {key: allowed(texts) for key, texts in options.items()}
    for options in (words.NOUNS, words.NAMES, LISTS)
)
LABELS = allowed(tuple(words.LABELS))


@dataclass(frozen=True)
class Style:
    table: str  # a pattern of {one} and {many}, the noun's singular and plural
    key: str  # a pattern of {one}
    ref_as_key: bool  # a reference has the name of its parent's key, unless that is `id`
    prefixed: bool  # columns start with the table's noun
    case: Callable[[str], str]

    def spell(self, name: str) -> str:
        """Return a snake-case name in the domain's case, and no reserved word."""
        return self.case(f"{name}_info" if name.lower() in SQL_WORDS else name)


@dataclass(frozen=True)
class Noun:
    """What a table's rows are. `kind` is a key of words.toml's nouns."""

    kind: str
    singular: str
    plural: str

    @property
    def words(self) -> set[str]:
        return {*self.singular.split(), *self.plural.split()}

    @property
    def one(self) -> str:
        return _snake(self.singular)


def fresh_domain(seed: int) -> Domain:
    """Return the domain of `seed`, the same on every machine, called `fresh_<seed>_<noun>`."""
    maker = _Maker(random.Random(f"fresh:{seed}"))
    tables: list[Table] = []
    for noun in maker.nouns:
        tables.append(maker.table(noun, tables))
    return Domain(f"fresh_{seed}_{maker.nouns[0].one}", tuple(tables))


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng, self.style = rng, _style(rng)
        self.nouns = self._nouns(rng.randint(*TABLES))
        self.noun_words = {word for noun in self.nouns for word in noun.words}

    def _nouns(self, count: int) -> list[Noun]:
        """Draw nouns without a word in common; events come last."""
        nouns: list[Noun] = []
        while len(nouns) < count:
            kind = self.rng.choice(list(NOUNS))
            if self.rng.random() < PSEUDO_NOUN_SHARE:
                singular = fresh_word(self.rng, 1, 3)
            else:
                singular = self.rng.choice(NOUNS[kind])
                if self.rng.random() < 0.12:
                    singular = f"{self.rng.choice(ALLOWED['compound_heads'])} {singular}"
            noun = Noun(kind, singular, plural(singular))
            if not any(noun.words & other.words for other in nouns):
                nouns.append(noun)
        return sorted(nouns, key=lambda noun: noun.kind == "event")

    def table(self, noun: Noun, parents: list[Table]) -> Table:
        style, rng = self.style, self.rng
        key = Column(style.spell(style.key.format(one=noun.one)), Kind.KEY)
        columns: list[Column] = []
        taken = {key.name.lower()}
        count = rng.randint(*COLUMNS)
        if noun.kind != "event" or rng.random() < 0.4:
            columns.append(self._name(noun, taken))
        for kind in self._kinds(count - len(columns)):
            columns.append(self._column(kind, noun, taken))
        rest = columns[1:]
        rng.shuffle(rest)
        refs = self._refs(parents, taken)
        columns = [key, *columns[:1], *rest]
        for ref in refs:
            columns.insert(rng.choice((1, len(columns), len(columns))), ref)
        name = style.spell(style.table.format(one=noun.one, many=_snake(noun.plural)))
        return Table(name, noun.singular, noun.plural, tuple(columns), rng.randint(*ROWS))

    def _kinds(self, count: int) -> list[Kind]:
        """Draw the columns' kinds, first those that most templates need."""
        first = [Kind.CATEGORY, self.rng.choice((Kind.INTEGER, Kind.REAL)), Kind.DATE]
        self.rng.shuffle(first)
        kinds = (Kind.CATEGORY, Kind.INTEGER, Kind.REAL, Kind.DATE, Kind.TEXT)
        more = self.rng.choices(kinds, (4, 3, 3, 2, 2), k=max(0, count - 3))
        return (first + more)[: max(1, count)]

    def _refs(self, parents: list[Table], taken: set[str]) -> list[Column]:
        if not parents:
            return []
        count = 1 if len(parents) == 1 or self.rng.random() < 0.7 else 2
        refs = []
        for parent in self.rng.sample(parents, count):
            name = f"{_snake(parent.singular)}_id"
            if self.style.ref_as_key and parent.key.name != "id":
                name = parent.key.name
            phrases: tuple[str, ...] = ()
            if parent.singular in NOUNS["person"] and self.rng.random() < ROLE_SHARE:
                role = self.rng.choice(NOUNS["person"])
                name, phrases = f"{role}_id", (role,)
            name = self.style.spell(name)
            if name.lower() in taken:
                continue
            taken.add(name.lower())
            null = 0.06 if self.rng.random() < 0.2 else 0.0
            refs.append(Column(name, Kind.REF, None, phrases, parent.name, null))
        return refs

    def _name(self, noun: Noun, taken: set[str]) -> Column:
        phrase = self.rng.choice(NAMES[noun.kind])
        name = _snake(phrase)
        if " " not in phrase and (self.style.prefixed or self.rng.random() < 0.3):
            name = f"{noun.one}_{name}"
        name = self.style.spell(name)
        taken.add(name.lower())
        roll = self.rng.random()
        if phrase in ("code", "reference", "number"):
            maker = values.codes(_prefix(self.rng), self.rng.choice((3, 4)))
        elif roll < 0.35:
            maker = values.column(_pseudo_name)
        elif noun.kind == "place" and roll < 0.5:
            maker = values.column(_place_name)
        else:
            draws = {"person": values.person, "organisation": values.company}
            maker = values.column(draws.get(noun.kind, _object_name))
        return Column(name, Kind.NAME, without_held_out(maker), (phrase,))

    def _column(self, kind: Kind, noun: Noun, taken: set[str]) -> Column:
        """Draw a column whose phrase shares no word with other columns or nouns."""
        while True:
            phrase, maker = self._attribute(kind, noun.kind)
            words = phrase.split()
            used = {part for name in taken for part in name.split("_")}
            if used & ({*words} - {"date"}) or (kind is Kind.DATE and words[0] in used):
                continue
            nouns = set(noun.singular.split()) if kind is Kind.DATE else self.noun_words
            if nouns & {*words}:
                continue
            identifier = self._identifier(kind, phrase, noun)
            name = self.style.spell(identifier)
            if name.lower() not in taken:
                break
        taken |= {name.lower(), "_".join([name.lower(), *words])}
        first, _, rest = identifier.partition("_")
        adjectives = ALLOWED["number_adjectives"] + ALLOWED["category_adjectives"]
        longer = rest == phrase and first in adjectives
        phrases = (phrase, f"{first} {phrase}") if longer else (phrase,)
        return Column(name, kind, without_held_out(maker), phrases)

    def _identifier(self, kind: Kind, phrase: str, noun: Noun) -> str:
        """Draw the column's name: the phrase or a word of it, mostly with a prefix or suffix."""
        rng, parts = self.rng, phrase.split()
        if kind is Kind.DATE and parts[-1] == "date" and rng.random() < 0.35:
            parts = [*parts[:-1], rng.choice(("on", "day", "at", "dt"))]
        if kind is Kind.INTEGER and is_plural(phrase):
            parts = rng.choice((parts, parts, ["num", *parts], [*parts, "count"]))
        base = "_".join(parts)
        if self.style.prefixed:
            return f"{noun.one}_{base}"
        if rng.random() > DECORATED_SHARE:
            return base
        options = [f"{noun.one}_{base}"]
        if len(parts) == 1:
            if kind in (Kind.INTEGER, Kind.REAL):
                options += [f"{rng.choice(ALLOWED['number_adjectives'])}_{base}"] * 2
                options += [f"{base}_{rng.choice(ALLOWED['units'])}"] * 2
            elif kind is Kind.CATEGORY:
                options += [f"{rng.choice(ALLOWED['category_adjectives'])}_{base}"] * 2
                options += [f"{base}_{rng.choice(('name', 'code', 'label', 'kind'))}"]
            elif kind is Kind.TEXT:
                options += [f"{base}_{rng.choice(('text', 'value', 'string'))}", f"contact_{base}"]
        elif kind is not Kind.DATE and len(phrase.split()) > 1:
            options += [phrase.split()[-1]] * 2
        return rng.choice(options)

    def _attribute(self, kind: Kind, noun_kind: str) -> tuple[str, Maker]:
        rng = self.rng
        null = rng.choice((0.04, 0.1, 0.2)) if rng.random() < NULL_SHARE else 0.0
        pseudo = fresh_word(rng, 2, 3) if rng.random() < PSEUDO_PHRASE_SHARE else None
        match kind:
            case Kind.INTEGER:
                word = pseudo or self._fitting(ALLOWED["integers"], noun_kind)
                if is_plural(word):
                    phrase = self._decorated(word, ALLOWED["count_adjuncts"], 0.25)
                else:
                    phrase = self._decorated(word, ALLOWED["number_adjectives"])
                return phrase, _integers(rng, word, null)
            case Kind.REAL:
                word = pseudo or self._fitting(ALLOWED["reals"], noun_kind)
                return self._decorated(word, ALLOWED["number_adjectives"]), _reals(rng, word, null)
            case Kind.DATE:
                start = rng.randrange((LAST_DAY - FIRST_DAY).days - 900)
                first = FIRST_DAY + dt.timedelta(days=start)
                last = min(LAST_DAY, first + dt.timedelta(days=rng.randint(400, 2600)))
                word = pseudo or self._fitting(ALLOWED["dates"], noun_kind)
                return f"{word} date", values.dates(first, last, null)
            case Kind.CATEGORY:
                word = self._fitting(LABELS, noun_kind)
                maker = self._labels(word, null)
                return pseudo or self._decorated(word, ALLOWED["category_adjectives"]), maker
            case _:
                phrase = pseudo or rng.choice(ALLOWED["texts"])
                if rng.random() < CODE_SHARE:
                    return phrase, values.codes(_prefix(rng), rng.choice((3, 4)), null=null)
                draw = rng.choice((values.email, values.phone, values.street))
                return phrase, values.column(draw, null=null, unique=draw is values.email)

    def _fitting(self, options: tuple[str, ...], noun_kind: str) -> str:
        suited = [word for word in options if word in words.FITTING[noun_kind]]
        return self.rng.choice(suited if suited and self.rng.random() < FITTING_SHARE else options)

    def _decorated(self, word: str, adjectives: tuple[str, ...], share: float = 0.15) -> str:
        return f"{self.rng.choice(adjectives)} {word}" if self.rng.random() < share else word

    def _labels(self, label: str, null: float) -> Maker:
        rng = self.rng
        count = rng.randint(3, 7)
        if label == "town" and rng.random() < 0.7:
            return values.cities(count, null=null)
        known = words.LABELS[label]
        if not known or rng.random() < 0.3:
            drawn = {fresh_word(rng, 1, 3): None for _ in range(count)}
            capital = rng.random() < 0.6
            known = tuple(word.capitalize() if capital else word for word in drawn)
        return values.skewed_choice(rng.sample(known, min(count, len(known))), null)


def _style(rng: random.Random) -> Style:
    mark = fresh_word(rng, 1, 2)
    suffix = rng.choice(("info", "data", "list", "records", "details"))

    def camel(name: str) -> str:
        return "".join(part.capitalize() for part in name.split("_"))

    tables = ("{many}", "{one}", "tbl_{many}", mark + "_{many}", "{one}_" + suffix)
    return Style(
        table=rng.choices(tables, (50, 25, 5, 10, 10))[0],
        key=rng.choices(("{one}_id", "id", "{one}_no"), (60, 30, 10))[0],
        ref_as_key=rng.choice((False, True)),
        prefixed=rng.random() < 0.12,
        case=rng.choices((str, camel), (96, 4))[0],
    )


def _snake(text: str) -> str:
    return text.replace(" ", "_")


def _pseudo_name(rng: random.Random) -> str:
    parts = [fresh_word(rng, 1, 3).capitalize() for _ in range(rng.choice((1, 1, 2)))]
    return " ".join(parts)


def _place_name(rng: random.Random) -> str:
    return f"{rng.choice(LISTS['objects'])} {rng.choice(LISTS['place_tails'])}".title()


def _object_name(rng: random.Random) -> str:
    first = rng.choice(LISTS["adjectives"]) if rng.random() < 0.7 else fresh_word(rng, 1, 2)
    number = f" {rng.randint(1, 99)}" if rng.random() < 0.1 else ""
    return f"{first} {rng.choice(LISTS['objects'])}".title() + number


def _integers(rng: random.Random, word: str, null: float) -> Maker:
    if word == "year":
        return values.integers(rng.randint(1900, 1990), rng.randint(2000, 2024), null)
    if word in words.RANGES:
        return values.integers(*words.RANGES[word], null)
    low = rng.choice((0, 1, 1, 5, 10, 50, 100))
    high = low + rng.choice((20, 40, 60, 100, 500, 2000, 9000))
    return values.integers(low, high, null, skew=rng.random() < 0.3)


def _reals(rng: random.Random, word: str, null: float) -> Maker:
    decimals = rng.choice((1, 2, 2))
    if word in words.RANGES:
        return values.reals(*words.RANGES[word], decimals, null)
    low = rng.choice((0.5, 1.0, 2.0, 10.0, 40.0))
    high = low + rng.choice((10.0, 50.0, 100.0, 400.0, 2000.0))
    if word in ("price", "cost", "fee", "rent"):
        return values.prices(low, high, null)
    return values.reals(low, high, decimals, null, skew=rng.random() >= 0.5)


def _prefix(rng: random.Random) -> str:
    return fresh_word(rng, 1, 1)[: rng.randint(1, 3)].upper() + rng.choice(("-", "-", ""))
