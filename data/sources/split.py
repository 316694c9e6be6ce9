"""Choose the eval questions of an import that names none, by a seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data.likeness import Keyed
from shared.dataset import Question

MOST = 1.5  # times the wanted share, what a group may fill


@dataclass(frozen=True)
class Splitting:
    """The share of the questions that are held out, and the seed that chooses them."""

    eval_share: float = 0.2
    seed: int = 1


def held_out(questions: Sequence[Question], splitting: Splitting) -> set[str]:
    """Return the ids of the questions to measure on; the others are to be trained on.

    With several databases whole databases are held out; with one, questions whose SQL and words are
    no training question's, values aside. At least one group stays on either side, if there are two.
    """
    rng = random.Random(splitting.seed)
    shuffled = rng.sample(questions, len(questions))
    several = len({question.database_name for question in questions}) > 1
    wanted = splitting.eval_share * len(questions)
    chosen: set[str] = set()
    passed: list[list[Question]] = []  # groups that were too large
    for group in _by_database(shuffled) if several else _alike(shuffled):
        if len(chosen) >= wanted:
            return chosen
        if len(chosen) + len(group) <= max(1.0, MOST * wanted):
            chosen |= {question.question_id for question in group}
        else:
            passed.append(group)
    if wanted and not chosen and len(passed) > 1:
        return {question.question_id for question in min(passed, key=len)}
    return chosen if passed else set()


def _by_database(questions: Sequence[Question]) -> Iterator[list[Question]]:
    for name in dict.fromkeys(question.database_name for question in questions):
        yield [question for question in questions if question.database_name == name]


def _alike(questions: Sequence[Question]) -> Iterator[list[Question]]:
    """Yield groups of questions that ask the same or nearly the same; see `Keyed.likeness`."""
    left = {question.question_id: Keyed(question) for question in questions}
    while left:
        group = [left.pop(next(iter(left)))]
        for keyed in group:  # grows meanwhile
            twins = [name for name, other in left.items() if keyed.likeness(other)]
            group += [left.pop(name) for name in twins]
        yield [keyed.question for keyed in group]
