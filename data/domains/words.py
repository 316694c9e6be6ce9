"""The words of fresh schemas and of questions, from words.toml, and the English that joins them."""

import random
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from data.domains.lexicon import WordList


class Words(BaseModel):
    """The content of words.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nouns: dict[str, WordList]
    irregular_plurals: dict[str, str]
    singular_with_s: WordList
    integers: WordList
    reals: WordList
    ranges: dict[str, tuple[int, int]]
    number_adjectives: WordList
    labels: dict[str, WordList]
    category_adjectives: WordList
    count_adjuncts: WordList
    dates: WordList
    texts: WordList
    names: dict[str, WordList]
    fitting: dict[str, WordList]
    adjectives: WordList
    objects: WordList
    onsets: WordList
    vowels: WordList
    codas: WordList
    rude: WordList
    sql_words: WordList
    not_additive: WordList
    function_words: WordList
    held_out_pairs: dict[str, str]


WORDS = Words.model_validate(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
)
SQL_WORDS = frozenset(WORDS.sql_words)


def plural(noun: str) -> str:
    """The plural of a noun or of a phrase's last word: `city` -> `cities`, `home city` -> `home
    cities`."""
    head, _, last = noun.rpartition(" ")
    if last in WORDS.irregular_plurals:
        many = WORDS.irregular_plurals[last]
    elif last.endswith("y") and last[-2:-1] not in tuple("aeiou"):
        many = last[:-1] + "ies"
    elif last.endswith(("s", "x", "z", "ch", "sh")):
        many = last + "es"
    else:
        many = last + "s"
    return f"{head} {many}" if head else many


def is_plural(phrase: str) -> bool:
    """Whether a column's phrase takes `are`: `points` and `goals of the season` do, `price` and
    `status` do not."""
    head = phrase.split(" of ")[0].split(" per ")[0].split(" in ")[0].split()[-1].lower()
    return (
        head.endswith("s")
        and not head.endswith(("ss", "us", "is"))
        and head not in WORDS.singular_with_s
    )


def indefinite(phrase: str) -> str:
    """`phrase` with its article: `a price`, `an age`; a plural phrase has none."""
    if is_plural(phrase):
        return phrase
    first = phrase.lower()
    sounds_like_consonant = first.startswith(("uni", "use", "eu", "one", "ur"))
    vowel = first[0] in "aeiou" and not sounds_like_consonant
    return f"{'an' if vowel or first.startswith(('hour', 'honor')) else 'a'} {phrase}"


def pseudo_word(rng: random.Random, least: int, most: int) -> str:
    """A lower-case word of `least` to `most` syllables that is in no dictionary, such as `torvel`."""
    while True:
        parts = [
            rng.choice(WORDS.onsets) + rng.choice(WORDS.vowels) + rng.choice(WORDS.codas)
            for _ in range(rng.randint(least, most))
        ]
        word = "".join(parts)
        if (
            3 <= len(word) <= 9
            and word not in SQL_WORDS
            and not any(part in word for part in WORDS.rude)
        ):
            return word
