"""Read the names of tables and columns as English words: `tblCarMakers` as `car makers`."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from data.domains.question_forms.asker import NUMBERS
from data.domains.spec import Kind
from data.domains.words import IRREGULAR_PLURALS, is_plural, plural, word_lists

_FILE = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
LISTS = {name: frozenset(words) for name, words in word_lists(_FILE["lists"]).items()}
ABBREVIATIONS: dict[str, str] = _FILE["abbreviations"]
VERBS, PREPOSITIONS = LISTS["verbs"], LISTS["prepositions"]
_ABBREVIATION = re.compile(rf"\b({'|'.join(ABBREVIATIONS)})\b")


def words_of(name: str) -> list[str]:
    """Split a name in any case style into lower-case words, with abbreviations spelled out."""
    gaps = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)"
    words = [word.lower() for word in re.findall(r"[^\W_]+", re.sub(gaps, " ", name))]
    text = " ".join(words) or "unnamed"  # '?' has no letter
    return _ABBREVIATION.sub(lambda found: ABBREVIATIONS[found[0]], text).split()


def singular(word: str) -> str:
    for one, many in IRREGULAR_PLURALS.items():
        if word == many:
            return one
    if word in LISTS["uncountable"] or not is_plural(word):
        return word
    if word.endswith("ies") and word not in LISTS["plurals_of_ie"]:
        return word[:-3] + "y"
    cut_es = word.endswith(("sses", "xes", "ches", "shes", "zzes", "uses", "oes"))
    keeps_e = word.endswith(("ouses", "auses", "shoes", "caches"))
    return word[:-2] if cut_es and not keeps_e else word[:-1]


def core_of(words: Sequence[str]) -> list[str]:
    """Return a table's words without such as `tbl` and `data`, if others are left."""
    core = list(words)
    while len(core) > 1 and core[0] in LISTS["table_prefixes"]:
        core = core[1:]
    while len(core) > 1 and core[-1] in LISTS["table_suffixes"]:
        core = core[:-1]
    return core


def nouns_of(words: Sequence[str]) -> tuple[str, str]:
    """Return the singular and plural noun for a table's rows: `has-pet records` if it is none."""
    at = words.index("of") if "of" in words[1:-1] else len(words)
    head, tail = list(words[:at]), list(words[at:])
    if awkward([*tail[1:], *head]):
        return record_nouns("-".join(words) or "table")
    last = singular(head[-1])
    many = last if last in LISTS["uncountable"] else plural(last)
    return " ".join([*head[:-1], last, *tail]), " ".join([*head[:-1], many, *tail])


def awkward(words: Sequence[str]) -> bool:
    """Return whether words make no noun: `lives in`, `assigned to`, `t1`."""
    last = words[-1] if words else ""
    return (
        is_clause(words)
        or not all(word.isascii() and word.isalpha() for word in words)
        or len(last) < 3
        or (last.endswith("ing") and last not in LISTS["nouns_in_ing"])
    )


def is_clause(words: Sequence[str]) -> bool:
    """Return whether words say something of a thing that they do not name: `lives in`."""
    parts = VERBS | PREPOSITIONS
    return not parts.isdisjoint(words) or _is_participle(words[-1] if words else "")


def _is_participle(word: str) -> bool:
    return len(word) > 4 and word.endswith("ed") and not word.endswith("eed")


def record_nouns(text: str) -> tuple[str, str]:
    """Return nouns for the rows of a table that is called `text`."""
    return f"{text} record", f"{text} records"


def without_prefix(words: Sequence[str], noun: Sequence[str]) -> list[str]:
    """Return a column's words without the table's noun, or its last word, at the start."""
    ones = [singular(word) for word in words]
    for prefix in (noun, noun[-1:]):
        rest = list(words[len(prefix) :])
        starts = rest and ones[: len(prefix)] == [singular(word) for word in prefix]
        if starts and (len(rest) > 1 or rest[0] not in LISTS["bare"] | PREPOSITIONS | VERBS):
            return rest
    return list(words)


def phrase_of(words: Sequence[str], kind: Kind) -> str | None:
    """Return what questions call a column of these words; None if they read badly."""
    words = list(words)
    if kind is Kind.DATE:
        if len(words) > 1 and words[-1] in PREPOSITIONS:
            words = words[:-1]
        if len(words) == 2 and words[0] == "date":
            words = words[::-1]
        if LISTS["dates"].isdisjoint(words) and not words[-1].endswith("date"):
            words.append("date")
    if not _reads_well(words, kind):
        return None
    head = words[:-1] if words[-1] in LISTS["units"] else words
    if kind in NUMBERS and head and head[-1] in LISTS["amounts"]:
        words = ["amount", "of", *words]
    if kind in NUMBERS and words[0] == "number" and words[-1] not in LISTS["uncountable"]:
        words[-1] = plural(singular(words[-1]))
    if words[0] in ("number", "count") and len(words) > 1 and words[1] != "of":
        words = ["number", "of", *words[1:]]
    if len(words) > 1 and words[-1] in LISTS["units"]:
        words = [*words[:-1], "in", words[-1]]
    return " ".join(words)


def _reads_well(words: Sequence[str], kind: Kind) -> bool:
    """Return whether words make a noun phrase: not `directed by`, `meter 100`, `date closed by`."""
    if VERBS.intersection(words) or {words[0], words[-1]} & PREPOSITIONS:
        return False
    if words[-1] in LISTS["adjectives"] or {"and", "or"} & set(words):
        return False
    if LISTS["units"].intersection(words[:-1]):
        return False
    if kind in (Kind.TEXT, Kind.CATEGORY) and (is_plural(words[-1]) or _is_participle(words[-1])):
        return False  # `whose details is 'x'`, `the different counties representeds`
    if kind in NUMBERS and PREPOSITIONS.intersection(words[1:-1]):
        return False
    if len(words) > 1 and any(map(str.isdecimal, words)):
        return False
    unread = (word for word in words if word.isascii() and word not in LISTS["short"])
    if any(len(word) == 2 or (len(word) == 1 and len(words) > 1) for word in unread):
        return False
    if words[0] == "date" and len(words) > 1 and words[1] != "of":
        return False
    # `weeks on top`, `years working`
    counts = kind in NUMBERS and is_plural(words[0]) and not is_plural(words[-1])
    return not counts or words[-1] in LISTS["units"]
