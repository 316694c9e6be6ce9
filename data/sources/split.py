"""Choose the eval questions of an import that names none, by a seed."""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from data.choose import Keyed
from shared.dataset import Question

MAX_OVERSHOOT = 1.5  # most held-out questions per wanted one, since groups are not divided
MIN_GROUPS = 4  # held out of one database, if it has as many small enough ones


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
