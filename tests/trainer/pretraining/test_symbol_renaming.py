"""Renaming: which tokens are symbols, and that a renamed episode keeps its meaning."""

import random
from dataclasses import replace
from string import ascii_lowercase

import pytest
from transformers import PreTrainedTokenizerFast

from trainer.pretraining.imitation import PretrainConfig, Row
from trainer.pretraining.model import train_tokenizer
from trainer.pretraining.symbol_renaming import ACCENTED, Renamer, find_symbols

NOUNS = ["baker", "singer", "rocket", "castle", "violin", "lemon", "harbor", "ticket", "pirate"]
NOUNS += ["garden", "window", "marble"]
FIELDS = ["price", "height", "colour", "weight", "region", "income", "rating", "length", "volume"]
FIELDS += ["rank", "depth", "power"]
ONE_TOKEN = PretrainConfig(name_lengths=(1,))
THREE_TOKENS = PretrainConfig(name_lengths=(0, 0, 1))
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


def row_of(pieces: list[tuple[str, bool]], tokenizer: PreTrainedTokenizerFast = TOKENIZER) -> Row:
    ids, learn = [], []
    for text, learned in pieces:
        found = tokenizer.encode(text, add_special_tokens=False)
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


def test_names_are_symbols_and_the_language_is_not(renamer):
    assert {token(word) for word in (*NOUNS, *FIELDS)} <= renamer.symbols
    for word in ("id", "SELECT", "MAX", "s", "What", "tools"):
        found = TOKENIZER.encode(word, add_special_tokens=False)
        assert not renamer.symbols.intersection(found), word


def test_a_symbol_becomes_the_same_everywhere_and_nothing_else_changes(rows, renamer):
    renamed = renamer.rename(rows[0], ONE_TOKEN, random.Random(3))
    text = TOKENIZER.decode(renamed.ids)
    noun = text.split("DESCRIBE: ")[1].split("<")[0]
    field = text.split("MAX(")[1].split(")")[0]
    assert (noun, field) != ("bakers", "price")
    original = "".join(piece for piece, _ in EPISODES[0])
    assert text == original.replace("baker", noun.removesuffix("s")).replace("price", field)


def test_case_is_kept_and_a_word_in_both_cases_stays():
    """`Ticket` and `ticket` would become two unrelated names."""
    ticket = ("Ticket", False)
    given = [[*one, ticket] if "ticket" in one[0][0] else one for one in EPISODES]
    tokenizer = train_tokenizer(["".join(text for text, _ in one) for one in given], 700, 512)
    renamer = find_symbols([row_of(one, tokenizer) for one in given], tokenizer)

    def renamed(pieces: list[tuple[str, bool]], seed: int) -> str:
        row = renamer.rename(row_of(pieces, tokenizer), THREE_TOKENS, random.Random(seed))
        return tokenizer.decode(row.ids)

    both = [*episode("ticket", "price"), ticket]
    assert renamed(both, 0) == "".join(text for text, _ in both)
    for seed in range(20):
        name = renamed([*episode("baker", "price"), ticket], seed).rpartition("<|im_end|>")[2]
        assert name[0].isupper()
        assert name != "Ticket"


def test_no_two_symbols_of_a_row_get_one_name(rows, renamer):
    few = replace(renamer, lower=renamer.lower[:6])
    for seed in range(50):
        text = TOKENIZER.decode(few.rename(rows[0], ONE_TOKEN, random.Random(seed)).ids)
        noun = text.split("DESCRIBE: ")[1].split("s<")[0]
        assert noun != text.split("MAX(")[1].split(")")[0]


def names_of(
    row: Row, renamed: Row, renamer: Renamer, length: int = 3
) -> dict[int, tuple[int, ...]]:
    """Return each symbol's new name of `length` tokens; check that all else is unchanged."""
    names: dict[int, tuple[int, ...]] = {}
    at = 0
    for index, (old, marked) in enumerate(zip(row.ids, row.learn, strict=True)):
        symbol = index >= renamer.prefix_length and old in renamer.symbols
        end = at + (length if symbol else 1)
        new = tuple(renamed.ids[at:end])
        assert new == (names.setdefault(old, new) if symbol else (old,))
        assert set(renamed.learn[at:end]) == {marked}
        at = end
    assert at == len(renamed.ids) == len(renamed.learn)
    return names


def test_a_longer_name_is_the_same_everywhere_and_learned_as_the_symbol_was(rows, renamer):
    for seed, row in enumerate(rows):
        renamed = renamer.rename(row, THREE_TOKENS, random.Random(seed))
        assert len(names_of(row, renamed, renamer)) == 2
        assert renamed == renamer.rename(row, THREE_TOKENS, random.Random(seed))


def alike(rows: list[Row], renamer: Renamer, share: float) -> float:
    """Return how often the two names of a row begin alike; check that hardly any are equal."""
    # of many tokens, so that names seldom begin alike or are equal by chance
    tokens = {(token,) for token in range(len(TOKENIZER))}
    renamer = replace(renamer, lower=tuple(sorted(tokens - set(renamer.capital))))
    config, pairs = replace(THREE_TOKENS, alike_share=share), []
    for seed in range(400):
        row = rows[seed % len(rows)]
        names = names_of(row, renamer.rename(row, config, random.Random(seed)), renamer)
        pairs.append(tuple(names.values()))
    assert sum(one == other for one, other in pairs) < 0.01 * len(pairs)
    return sum(one[0] == other[0] for one, other in pairs) / len(pairs)


def test_a_share_of_the_names_begin_with_the_tokens_of_another(rows, renamer):
    assert alike(rows, renamer, 0.0) < 0.02
    assert 0.15 < alike(rows, renamer, 0.25) < 0.35
    assert alike(rows, renamer, 1.0) == 1


def test_a_row_that_would_not_fit_the_window_stays(rows, renamer):
    renamed = renamer.rename(rows[0], THREE_TOKENS, random.Random(1))
    fits = replace(THREE_TOKENS, window_tokens=len(renamed.ids))
    assert renamer.rename(rows[0], fits, random.Random(1)) == renamed
    tight = replace(fits, window_tokens=len(renamed.ids) - 1)
    assert renamer.rename(rows[0], tight, random.Random(1)) == rows[0]


def test_a_share_of_the_rows_is_renamed(rows, renamer):
    def renamed(share: float) -> int:
        config, stream = replace(ONE_TOKEN, renamed_share=share), random.Random(5)
        return sum(renamer.rename_some(config, row, stream) != row for row in rows)

    assert renamed(0.0) == 0
    assert 0.35 * len(rows) < renamed(0.5) < 0.65 * len(rows)
    assert renamed(1.0) > 0.95 * len(rows)  # a name may become itself


def test_longer_names_may_have_any_letters(rows, renamer):
    """Real names have parts that are never renamed, such as `s`, and accents."""
    part = (token("s"),)
    assert part not in renamer.lower
    assert part in renamer.any_lower
    config = replace(THREE_TOKENS, any_letters=True, alike_share=1.0)
    letters = set[str]()
    for seed in range(300):
        renamed = renamer.rename(rows[0], config, random.Random(seed))
        letters.update(TOKENIZER.decode(renamed.ids).split("MAX(")[1].split(")")[0])
    assert set(ascii_lowercase) <= letters
    assert len(letters & set(ACCENTED)) > 10
    assert letters <= {*ascii_lowercase, *ACCENTED}, "no accented letter is cut in half"
