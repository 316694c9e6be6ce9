"""Renaming: which tokens are symbols, and that a renamed episode keeps its meaning."""

import random
from dataclasses import replace

import pytest

from trainer.pretraining.imitation import Row
from trainer.pretraining.symbol_renaming import Renamer, find_symbols
from trainer.pretraining.tokenizer import train_tokenizer

NOUNS = [
    "baker",
    "singer",
    "rocket",
    "castle",
    "violin",
    "lemon",
    "harbor",
    "ticket",
    "pirate",
    "garden",
    "window",
    "marble",
]
FIELDS = [
    "price",
    "height",
    "colour",
    "weight",
    "region",
    "income",
    "rating",
    "length",
    "volume",
    "rank",
    "depth",
    "power",
]
FRAME = "<|im_start|>system\nUse the tools.<|im_end|>\n"


def episode(noun: str, field: str) -> list[tuple[str, bool]]:
    """(text, whether the demonstrator wrote it) pieces."""
    return [
        (
            f"{FRAME}<|im_start|>user\nQuestion: What is the highest {field} of the {noun}s?\n"
            f"Tables: {noun}s\n",
            False,
        ),
        (f"DESCRIBE: {noun}s<|im_end|>", True),
        (f"\n{noun}s: 9 rows\n{noun}_id INTEGER primary key\n{field} REAL\n", False),
        (f"QUERY: SELECT MAX({field}) FROM {noun}s<|im_end|>", True),
        (f"\nMAX({field})\n12.5\n", False),
        ("ANSWER: 12.5<|im_end|>", True),
    ]


EPISODES = [episode(noun, field) for noun in NOUNS for field in FIELDS]
TOKENIZER = train_tokenizer(["".join(text for text, _ in pieces) for pieces in EPISODES], 700, 512)


def row_of(pieces: list[tuple[str, bool]]) -> Row:
    ids, learn = [], []
    for text, learned in pieces:
        found = TOKENIZER.encode(text, add_special_tokens=False)
        ids += found
        learn += [int(learned)] * len(found)
    return Row(ids, learn, True)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row_of(pieces) for pieces in EPISODES]


@pytest.fixture(scope="module")
def renamer(rows: list[Row]) -> Renamer:
    return find_symbols(rows, TOKENIZER)


def token(word: str) -> int:
    (only,) = TOKENIZER.encode(word, add_special_tokens=False)
    return only


def test_names_are_symbols_and_the_language_is_not(renamer: Renamer) -> None:
    assert {token(word) for word in (*NOUNS, *FIELDS)} <= renamer.symbols
    for word in ("id", "SELECT", "MAX", "s", "What", "tools"):
        found = TOKENIZER.encode(word, add_special_tokens=False)
        assert not renamer.symbols.intersection(found), word


def test_a_symbol_becomes_the_same_everywhere_and_nothing_else_changes(
    rows: list[Row], renamer: Renamer
) -> None:
    renamed = renamer.rename(rows[0], random.Random(3))
    text = TOKENIZER.decode(renamed.ids)
    noun = text.split("DESCRIBE: ")[1].split("<")[0]
    field = text.split("MAX(")[1].split(")")[0]
    assert (noun, field) != ("bakers", "price")
    original = "".join(piece for piece, _ in EPISODES[0])
    assert text == original.replace("baker", noun.removesuffix("s")).replace("price", field)


def test_a_word_in_both_cases_stays(rows: list[Row], renamer: Renamer) -> None:
    """`Ticket` and `ticket` would become two unrelated names."""
    low, high = sorted((token("ticket"), token("castle")))
    cased = replace(renamer, twins=frozenset({(low, high)}))
    both = row_of([*episode("ticket", "price"), ("castle", False)])
    assert cased.rename(both, random.Random(0)) == both
    assert cased.rename(row_of(episode("ticket", "price")), random.Random(0)) != row_of(
        episode("ticket", "price")
    )


def test_what_is_learned_stays_marked(rows: list[Row], renamer: Renamer) -> None:
    for seed in range(20):
        renamed = renamer.rename(rows[seed], random.Random(seed))
        assert len(renamed.ids) == len(renamed.learn)
        learned = TOKENIZER.decode(
            [t for t, on in zip(renamed.ids, renamed.learn, strict=True) if on]
        )
        assert learned.startswith("DESCRIBE:")
        assert learned.endswith("ANSWER: 12.5<|im_end|>")
        assert renamed.ids[: renamer.prefix_length] == rows[seed].ids[: renamer.prefix_length]


def test_two_renamings_differ(rows: list[Row], renamer: Renamer) -> None:
    assert (
        renamer.rename(rows[0], random.Random(1)).ids
        != renamer.rename(rows[0], random.Random(2)).ids
    )
    assert renamer.rename(rows[0], random.Random(1)) == renamer.rename(rows[0], random.Random(1))
