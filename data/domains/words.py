"""The words of fresh schemas, cells and questions, and the English that joins them."""

import random
import tomllib
from pathlib import Path
from typing import Any

Lists = dict[str, tuple[str, ...]]  # name -> words


def read_toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file in data/domains."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


def word_lists(table: dict[str, str]) -> Lists:
    """Split each text into words at each `|`, or at white space if it has no `|`."""
    split = {name: text.split("|" if "|" in text else None) for name, text in table.items()}
    return {name: tuple(word.strip() for word in words) for name, words in split.items()}


_FILE = read_toml("words.toml")
LISTS, NOUNS, NAMES, LABELS, FITTING = (
    word_lists(_FILE[name]) for name in ("lists", "nouns", "names", "labels", "fitting")
)
RANGES: dict[str, tuple[int, int]] = _FILE["ranges"]
IRREGULAR_PLURALS: dict[str, str] = _FILE["irregular_plurals"]
HELD_OUT_PAIRS: dict[str, str] = _FILE["held_out_pairs"]
SQL_WORDS = frozenset(LISTS["sql_words"])


def plural(noun: str) -> str:
    """Return the plural of a noun or of a phrase's last word: `home city` -> `home cities`."""
    head, _, last = noun.rpartition(" ")
    if last in IRREGULAR_PLURALS:
        many = IRREGULAR_PLURALS[last]
    elif last.endswith("y") and last[-2:-1] not in tuple("aeiou"):
        many = last[:-1] + "ies"
    elif last.endswith(("s", "x", "z", "ch", "sh")):
        many = last + "es"
    else:
        many = last + "s"
    return f"{head} {many}" if head else many


def is_plural(phrase: str) -> bool:
    """Return whether a phrase takes `are`: `goals of the season` does, `price` and `status` not."""
    head = phrase.split(" of ")[0].split(" per ")[0].split(" in ")[0].split()[-1].lower()
    if head in LISTS["singular_with_s"]:
        return False
    return head.endswith("s") and not head.endswith(("ss", "us", "is"))


def indefinite(phrase: str) -> str:
    """Return `phrase` with its article: `a price`, `an age`; a plural phrase has none."""
    if is_plural(phrase):
        return phrase
    first = phrase.lower()
    consonant_sound = first.startswith(("uni", "use", "eu", "one", "ur"))
    vowel = first[0] in "aeiou" and not consonant_sound
    return f"{'an' if vowel or first.startswith(('hour', 'honor')) else 'a'} {phrase}"


def pseudo_word(rng: random.Random, least: int, most: int) -> str:
    """Return a lower-case word of `least` to `most` syllables, in no dictionary: `torvel`."""
    while True:
        word = ""
        for _ in range(rng.randint(least, most)):
            word += "".join(rng.choice(LISTS[part]) for part in ("onsets", "vowels", "codas"))
        rude = any(part in word for part in LISTS["rude"])
        if 3 <= len(word) <= 9 and word not in SQL_WORDS and not rude:
            return word
