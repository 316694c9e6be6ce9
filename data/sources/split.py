"""Choose the eval questions of an import that names none, by a seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data.likeness import Keyed
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
    that no training question has the same SQL or words, except for a value. If there are two groups
    or more, each side has at least one.
    """
    shuffled = random.Random(splitting.seed).sample(questions, len(questions))
    several = len({question.database_name for question in questions}) > 1
    wanted = splitting.eval_share * len(questions)
    most = min(max(1.0, MAX_OVERSHOOT * wanted), len(questions) - 1)
    chosen: set[str] = set()
    large: list[list[Question]] = []  # left for when the others are too few
    for group in _by_database(shuffled) if several else alike(shuffled):
        if len(chosen) >= wanted:
            return chosen
        if len(group) <= (most if several else max(1.0, wanted / MIN_GROUPS)):
            chosen |= _ids(group) if len(chosen) + len(group) <= most else set()
        else:
            large.append(group)
    for group in sorted(large, key=len)[: len(large) - (not chosen)]:
        if len(chosen) < wanted and (not chosen or len(chosen) + len(group) <= most):
            chosen |= _ids(group)
    return chosen


def _ids(group: Sequence[Question]) -> set[str]:
    return {question.question_id for question in group}


def _by_database(questions: Sequence[Question]) -> Iterator[list[Question]]:
    for name in dict.fromkeys(question.database_name for question in questions):
        yield [question for question in questions if question.database_name == name]


def alike(questions: Sequence[Question]) -> Iterator[list[Question]]:
    """Yield groups of questions that ask the same or nearly the same; see `Keyed.likeness`."""
    left = {question.question_id: Keyed(question) for question in questions}
    while left:
        group = [left.pop(next(iter(left)))]
        for keyed in group:  # grows meanwhile
            twins = [name for name, other in left.items() if keyed.likeness(other)]
            group += [left.pop(name) for name in twins]
        yield [keyed.question for keyed in group]
