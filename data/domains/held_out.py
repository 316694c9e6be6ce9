"""What pretraining never sees, so that success on the unseen databases is not recall of theirs.

Held out are the unseen databases' schema words, in tables, columns and the phrases for them, save
those that say what a column is (`FUNCTION_WORDS`); the values in their cells, dates and numbers
aside; and, with every shipped database, the pairs of a form of SQL and a word (`PAIRS`): each of
these words occurs with other forms, each form with other words.
"""

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import apsw

from data.domains.shipped import SHIPPED
from data.domains.spec import Kind, Maker, Value
from data.domains.words import WORDS, plural, pseudo_word
from shared.dataset import database_path
from shared.sqltext import quote_identifier

DATA_DIR = Path(__file__).parent.parent
FUNCTION_WORDS = frozenset(WORDS.function_words)
PAIRS = frozenset(WORDS.held_out_pairs.items())


def is_held_out_pair(form: str, text: str) -> bool:
    """Whether a question of `form` says a word that is held out from this form."""
    return any(form == held and re.search(rf"\b{word}\b", text.lower()) for held, word in PAIRS)


@cache
def held_out_words() -> frozenset[str]:
    """Lower-case words of the unseen databases' schemas and phrases and their plurals, without
    `FUNCTION_WORDS`."""
    texts: list[str] = []
    for shipped in SHIPPED:
        for table in shipped.domain.tables if shipped.unseen else ():
            texts += [table.name, table.singular, table.plural]
            texts += [text for column in table.columns for text in (column.name, *column.wordings)]
    found = {word for text in texts for word in words_of(text)} - FUNCTION_WORDS
    return frozenset(found | {plural(word) for word in found})


def words_of(name: str) -> list[str]:
    """Lower-case words of an identifier or a phrase: `ReleaseDate`, `release_date` and `release
    date` have the same."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def allowed(options: Sequence[str]) -> tuple[str, ...]:
    """Those of a word list, nouns or phrases, that share no word with the unseen databases, in
    either number."""
    held = held_out_words()
    return tuple(
        text for text in options if not held.intersection(words_of(text) + words_of(plural(text)))
    )


def fresh_word(rng: random.Random, least: int, most: int) -> str:
    """A pseudo-word that is no held-out word by chance."""
    while (word := pseudo_word(rng, least, most)) in held_out_words():
        pass
    return word


def allowed_by(options: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {kind: allowed(some) for kind, some in options.items()}


@cache
def held_out_values() -> frozenset[str]:
    """Every text in a cell of an unseen database, dates aside."""
    found: set[str] = set()
    for shipped in SHIPPED:
        if not shipped.unseen:
            continue
        path = database_path(DATA_DIR, shipped.domain.db_id)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            for table in shipped.domain.tables:
                for column in table.of_kind(Kind.NAME, Kind.CATEGORY, Kind.TEXT):
                    cells = connection.execute(
                        f"SELECT DISTINCT {quote_identifier(column.name)} FROM {quote_identifier(table.name)}"
                    )
                    found.update(cell for (cell,) in cells if isinstance(cell, str))
        finally:
            connection.close()
    return frozenset(found)


def without_held_out(maker: Maker) -> Maker:
    """`maker` with a pseudo-word in the place of each value that is held out, the same one for all
    its cells."""

    def make(rng: random.Random, count: int) -> list[Value]:
        held = held_out_values()
        instead: dict[str, str] = {}
        cells = maker(rng, count)
        for cell in cells:
            if isinstance(cell, str) and cell in held and cell not in instead:
                instead[cell] = fresh_word(rng, 2, 3).capitalize()
        return [instead.get(cell, cell) if isinstance(cell, str) else cell for cell in cells]

    return make
