"""What pretraining never sees, so that success on the unseen databases is not recall.

Held out are the words of the unseen databases' tables, columns and phrases, except those that say
what a column is (`FUNCTION_WORDS`); the texts in their cells; and, on every shipped database, the
pairs of a form of question and a word (`held_out_pairs` of words.toml): each word occurs with other
forms and each form with other words.
"""

import random
import re
from collections.abc import Sequence
from functools import cache

from data.domains.shipped import SHIPPED
from data.domains.spec import Kind, Maker, Value
from data.domains.words import HELD_OUT_PAIRS, LISTS, plural, pseudo_word

UNSEEN = [shipped for shipped in SHIPPED if shipped.unseen]
FUNCTION_WORDS = frozenset(LISTS["function_words"])


def is_held_out_pair(form: str, text: str) -> bool:
    """Return whether `text` contains the word that is held out from questions of `form`."""
    word = HELD_OUT_PAIRS.get(form)
    return word is not None and re.search(rf"\b{word}\b", text.lower()) is not None


@cache
def held_out_words() -> frozenset[str]:
    """Return the unseen databases' lower-case words and their plurals, but no `FUNCTION_WORDS`."""
    texts: list[str] = []
    for shipped in UNSEEN:
        for table in shipped.domain.tables:
            texts += [table.name, table.singular, table.plural]
            for column in table.columns:
                texts += [column.name, *column.wordings]
    words = {word for text in texts for word in words_of(text)} - FUNCTION_WORDS
    return frozenset(words | {plural(word) for word in words})


def words_of(name: str) -> list[str]:
    """Return the lower-case words of `ReleaseDate`, `release_date` or `release date`."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def allowed(options: Sequence[str]) -> tuple[str, ...]:
    """Return the nouns or phrases that share no word with the unseen databases."""
    held_out = held_out_words()
    forms = [(text, words_of(text) + words_of(plural(text))) for text in options]
    return tuple(text for text, words in forms if held_out.isdisjoint(words))


def fresh_word(rng: random.Random, least: int, most: int) -> str:
    """Return a pseudo-word of `least` to `most` syllables that is not held out."""
    while (word := pseudo_word(rng, least, most)) in held_out_words():
        pass
    return word


@cache
def held_out_values() -> frozenset[str]:
    """Return every text in a cell of an unseen database, dates aside."""
    texts: set[str] = set()
    for shipped in UNSEEN:
        rows = shipped.rows()
        for table in shipped.domain.tables:
            for column in table.of_kind(Kind.NAME, Kind.CATEGORY, Kind.TEXT):
                index = table.columns.index(column)
                cells = (row[index] for row in rows[table.name])
                texts.update(cell for cell in cells if isinstance(cell, str))
    return frozenset(texts)


def without_held_out(maker: Maker) -> Maker:
    """Return `maker` with each held-out text replaced by one pseudo-word in all cells."""

    def make(rng: random.Random, count: int) -> list[Value]:
        held_out = held_out_values()
        substitutes: dict[Value, str] = {}
        cells = maker(rng, count)
        for cell in cells:
            if isinstance(cell, str) and cell in held_out and cell not in substitutes:
                substitutes[cell] = fresh_word(rng, 2, 3).capitalize()
        return [substitutes.get(cell, cell) for cell in cells]

    return make
