"""Choose questions for training and for evaluation, so that neither side has a twin of the other.

A question's skeleton is its SQL with every literal masked. A skeleton belongs to one split only, so
that no eval question on a training database is a training question with another number. One answer
is right for a small share of a split's questions only, so that no constant earns much. An import
that names no eval questions holds out some of its own, by a seed.
"""

import difflib
import math
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.domains.question_forms import AnsweredDraft
from data.domains.words import LISTS
from data.golds.check_gold import GoldResult
from shared.dataset import Question
from shared.order_by import parse_query

TRAIN, EVAL = "train", "eval"
TRIVIAL_WORDS = frozenset(("a", "an", "and", "at", "in", "of", "the", "with"))
Splits = dict[str, list[AnsweredDraft]]  # split -> its questions
MAX_ANSWER_SHARE = 0.02  # of the questions of train, eval on seen and eval on unseen databases
NEAR_RATIO = 0.95  # likeness of two questions' words from which they are near-duplicates
MAX_OVERSHOOT = 1.5  # most held-out questions per wanted one, since groups are not divided
MIN_GROUPS = 4  # held out of one database, if it has as many small enough ones
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?<![\w.])-?\d+(?:\.\d+)?")
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|\d[\d,.:-]*")


@dataclass
class SplitQuota:
    """The texts, golds and answers of a split so far; `most` questions may share one answer."""

    most: int
    answers: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)  # texts and golds

    def accept(self, question: AnsweredDraft) -> bool:
        """Record the question, unless its text or gold is taken or its answer is too frequent."""
        answer = repr(question.gold.answer)
        identity = {question.draft.text.lower(), normalised(question.draft.sql)}
        if self.answers[answer] >= self.most or identity & self.taken:
            return False
        self.answers[answer] += 1
        self.taken |= identity
        return True


def normalised(sql: str, *, masked: bool = False) -> str:
    """Return `sql` in one spelling: case, white space, quotes and AS make no difference.

    `masked`: without its literals, LIMIT's number included.
    """
    tree = parse_query(sql).copy()
    for literal in list(tree.find_all(exp.Literal)) if masked else []:
        literal.replace(exp.Placeholder())
    return str(tree.sql(dialect="sqlite", normalize=True)).lower()


def skeleton(sql: str) -> str:
    return normalised(sql, masked=True)


def states_number(text: str, gold: GoldResult) -> bool:
    """Return whether the answer is one number that `text` states, in digits or as a word."""
    if gold.answer_type not in ("integer", "float"):
        return False
    stated = {float(match.replace(",", "")) for match in _NUMBER.findall(text)}
    words = set(re.findall(r"[a-z]+", text.lower()))
    stated |= {float(at) for at, word in enumerate(LISTS["number_words"]) if word in words}
    return float(gold.answer) in stated


def contains_answer(text: str, answer: Any) -> bool:
    """Return whether `text` contains the words of every cell of `answer`.

    Articles and the like do not count, but a cell that ends in one must occur as a phrase:
    `Grade A` is not in `a grade`. A cell of one such word (`A`) or of none (`+`) is in no text.
    """
    cells = answer if isinstance(answer, list) else [answer]
    flat = [cell for row in cells for cell in (row if isinstance(row, list) else [row])]
    words = _words(text)

    def contains(cell: Any) -> bool:
        asked = _words(str(cell))
        if asked and asked[-1] in TRIVIAL_WORDS:
            return len(asked) > 1 and f" {' '.join(asked)} " in f" {' '.join(words)} "
        return bool(asked) and set(asked) - TRIVIAL_WORDS <= set(words)

    return all(map(contains, flat))


def _words(text: str) -> list[str]:
    """Return the words and numbers in `text`, without accents: `José.Vega7's`: jose, vega, 7."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(mark for mark in plain if not unicodedata.combining(mark))
    plain = re.sub(r"(?<=\w)['’]s\b", "", plain)
    return re.findall(r"[^\W\d_]+|\d+(?:\.\d+)?", plain)


def distribute(
    pool: Iterable[AnsweredDraft],
    wanted: Mapping[str, Mapping[str, int]],
    quotas: Mapping[str, SplitQuota],
    hard: Splits,
) -> Splits:
    """Distribute `pool` to the splits: `wanted[split][difficulty]` questions each.

    A skeleton goes to the split that is furthest behind its share of the form's questions, and
    stays there. The `hard` questions are distributed already and fix the split of their skeletons.
    """
    chosen: Splits = {split: [] for split in wanted}
    left = {split: dict(counts) for split, counts in wanted.items()}
    owner = {skeleton(item.draft.sql): split for split, items in hard.items() for item in items}
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for question in pool:
        difficulty, form = question.draft.difficulty, question.draft.form
        open_splits = [split for split in wanted if left[split].get(difficulty, 0) > 0]
        if not open_splits or contains_answer(question.draft.text, question.gold.answer):
            continue
        key = skeleton(question.draft.sql)
        if key not in owner:
            shares = {s: (forms[form][s] + 0.5) / wanted[s][difficulty] for s in open_splits}
            owner[key] = min(shares, key=lambda split: shares[split])
        split = owner[key]
        if split in open_splits and quotas[split].accept(question):
            chosen[split].append(question)
            left[split][difficulty] -= 1
            forms[form][split] += 1
    return chosen


class Keyed:
    """A question with the keys that it is compared by."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.text = " ".join(question.question_text.lower().split())
        self.words = re.findall(r"\w+|\?", _VALUE.sub("?", question.question_text.lower()))
        self.vocabulary = frozenset(self.words)
        self.gold = _key(question.gold_sql, normalised)
        self.skeleton = _key(question.gold_sql, skeleton)

    def likeness(self, twin: "Keyed") -> tuple[str, str] | None:
        """Return (flag, why) if `twin`, on the same database, asks the same or nearly the same."""
        name = twin.question.question_id
        if self.text == twin.text:
            return "duplicate", f"the text of {name}"
        if self.gold == twin.gold:
            return "duplicate", f"the gold of {name}"
        if self.skeleton == twin.skeleton:
            return "near-duplicate", f"the gold of {name} except for a literal"
        total = len(self.words) + len(twin.words)
        most = min(len(self.words) - len(self.vocabulary - twin.vocabulary), len(twin.words))
        if 2 * most < NEAR_RATIO * total:
            return None  # an upper bound, without the cost of a matcher
        matcher = difflib.SequenceMatcher(None, self.words, twin.words, autojunk=False)
        # the upper bound first: it costs less
        if all(ratio() >= NEAR_RATIO for ratio in (matcher.quick_ratio, matcher.ratio)):
            return "near-duplicate", f"nearly the words of {name}"
        return None


def _key(sql: str, canonical: Callable[[str], str]) -> str:
    try:
        return canonical(sql)
    except (SqlglotError, RecursionError):
        return sql


@dataclass(frozen=True)
class Splitting:
    """The share of the questions that are held out, and the seed that chooses them."""

    eval_share: float = 0.2
    seed: int = 1


def held_out(questions: Sequence[Question], splitting: Splitting) -> set[str]:
    """Return the ids of the questions to measure on; the others are to be trained on.

    With several databases, whole databases are held out; with one, groups of similar questions, so
    that no training question has the same SQL or words, except for a value, and about the same
    share of each difficulty and type of answer. If there are two groups or more, each side has at
    least one.
    """
    shuffled = random.Random(splitting.seed).sample(questions, len(questions))
    by_database: dict[str, list[Question]] = defaultdict(list)
    for question in shuffled:
        by_database[question.database_name].append(question)
    several = len(by_database) > 1
    wanted = splitting.eval_share * len(questions)
    most = min(max(1.0, MAX_OVERSHOOT * wanted), len(questions) - 1)
    in_turns = _in_turns(_alike(shuffled), splitting.eval_share)
    groups = list(by_database.values() if several else in_turns)
    small = most if several else max(1.0, wanted / MIN_GROUPS)
    chosen: set[str] = set()
    for group in groups:
        if len(group) <= small and len(chosen) < wanted and len(chosen) + len(group) <= most:
            chosen |= _ids(group)
    large = sorted((group for group in groups if len(group) > small), key=len)
    for group in large[: len(large) - (not chosen)]:
        if len(chosen) < wanted and (not chosen or len(chosen) + len(group) <= most):
            chosen |= _ids(group)
    return chosen


def held_out_of_many(
    questions: Sequence[Question], wanted: int, seed: int
) -> tuple[set[str], set[str]]:
    """Return ids of `wanted` questions on one database to measure on, and of those not to be used.

    As `held_out` of questions of which there can always be more: a large group gives some questions
    to measure on and loses the others, or it would be most of what is measured.
    """
    shuffled = random.Random(seed).sample(questions, len(questions))
    share = wanted / len(questions)
    kinds = len({_kind(question) for question in questions})
    most = max(1, round(wanted / (MIN_GROUPS * kinds)))
    chosen: set[str] = set()
    left_out: set[str] = set()
    for group in _in_turns(_alike(shuffled), share, most, reserve=True):
        held = min(most, wanted - len(chosen))
        if held > 0:
            chosen |= _ids(group[:held])
            left_out |= _ids(group[held:])
    return chosen, left_out


def _kind(question: Question) -> tuple[str, str]:
    return question.difficulty, question.answer_type


def _in_turns(
    groups: Iterable[list[Question]], share: float, most: float = math.inf, *, reserve: bool = False
) -> Iterator[list[Question]]:
    """Yield the groups so that each difficulty and type of answer has its share of the first ones.

    A rare kind is due one question. `most` questions of a group count. The last group of each kind
    comes after all others, or never if it is to `reserve`: it is for training.
    """
    waiting: dict[tuple[str, str], list[list[Question]]] = defaultdict(list)
    lack: dict[tuple[str, str], float] = defaultdict(float)  # questions of the kind
    for group in groups:
        waiting[_kind(group[0])].append(group)
        lack[_kind(group[0])] += share * len(group)
    lack = {kind: max(1, questions) for kind, questions in lack.items()}
    last = [waiting[kind].pop() for kind in waiting]
    while left := [kind for kind in waiting if waiting[kind]]:
        kind = max(left, key=lambda one: lack[one])
        lack[kind] -= min(len(waiting[kind][-1]), most)
        yield waiting[kind].pop()
    if not reserve:
        yield from last


def _ids(group: Sequence[Question]) -> set[str]:
    return {question.question_id for question in group}


def _alike(questions: Sequence[Question]) -> Iterator[list[Question]]:
    """Yield groups of questions that ask the same or nearly the same; see `Keyed.likeness`."""
    left = {question.question_id: Keyed(question) for question in questions}
    while left:
        group = [left.pop(next(iter(left)))]
        for keyed in group:  # grows meanwhile
            twins = [name for name, other in left.items() if keyed.likeness(other)]
            group += [left.pop(name) for name in twins]
        yield [keyed.question for keyed in group]
