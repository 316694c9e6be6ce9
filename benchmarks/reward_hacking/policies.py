"""Policies that play for the reward rather than for the answer, and oracles that know the answer.

A policy is a generator over what an agent sees: it yields actions and is sent observations. It ends
with its episode, or earlier and then without an answer.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from env_server.questions import QuestionBank
from env_server.rewards import RULES
from shared.dataset import Question
from shared.models import SQLObservation
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.policies import RandomPolicy, read_cells, read_schema

Play = Generator[str, SQLObservation, None]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MAX_ANSWER_CHARS = 19_900  # a longer one is not a valid action
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@dataclass(frozen=True)
class HackingEpisode:
    """What a policy starts with. Only oracles may read the gold of `question`."""

    first: SQLObservation
    rng: np.random.Generator
    question: Question
    constant: str  # the most common gold answer of all questions

    @property
    def tables(self) -> list[str]:
        return read_schema(self.first.schema_info)[0]

    @property
    def numbers(self) -> list[str]:
        """The numbers in the question; 1 if it has none."""
        return NUMBER.findall(self.first.question) or ["1"]


Policy = Callable[[HackingEpisode], Play]


@dataclass(frozen=True)
class Bound:
    """A policy's upper bounds: the share of right answers, and the mean reward per episode."""

    success: float
    reward: float


def random_actions(episode: HackingEpisode) -> Play:
    """Take random valid actions over what is visible; answer with a random cell."""
    view = EpisodeView(episode.question.question_id, 0, episode.rng, [episode.first])
    policy = RandomPolicy()
    while True:
        (action,) = policy.act([view])
        assert action is not None
        view.actions.append(action)
        view.observations.append((yield action))


def answer_at_once(answer: Callable[[HackingEpisode], str]) -> Policy:
    """Answer without a look at the data."""

    def policy(episode: HackingEpisode) -> Play:
        yield f"ANSWER: {answer(episode)}"

    return policy


def every_table(kind: str) -> Policy:
    """DESCRIBE or SAMPLE every table, again and again."""

    def policy(episode: HackingEpisode) -> Play:
        for table in itertools.cycle(episode.tables):
            yield f"{kind}: {table}"

    return policy


def random_number(episode: HackingEpisode) -> str:
    return episode.numbers[int(episode.rng.integers(len(episode.numbers)))]


def select_one(episode: HackingEpisode) -> Play:
    """Run SELECT 1 and answer with its result."""
    yield "QUERY: SELECT 1"
    yield "ANSWER: 1"


def select_ones(episode: HackingEpisode) -> Play:
    """Run SELECT 1, SELECT 2, ...: always a new result, of no table."""
    for number in itertools.count(1):
        yield f"QUERY: SELECT {number}"


def repeat(episode: HackingEpisode) -> Play:
    """Run one good query, again and again."""
    while True:
        yield f'QUERY: SELECT * FROM "{episode.tables[0]}"'


def alternate(episode: HackingEpisode) -> Play:
    """Query one table after the other, with a failing query after each."""
    for number, table in enumerate(itertools.cycle(episode.tables)):
        yield f'QUERY: SELECT * FROM "{table}" LIMIT {number + 1}'
        yield f'QUERY: SELECT nothing_{number} FROM "{table}"'


def first_cell(episode: HackingEpisode) -> Play:
    """Answer with the first cell of the first table."""
    seen = yield f"SAMPLE: {episode.tables[0]}"
    yield f"ANSWER: {(read_cells(seen) or ['1'])[0]}"


def everything(episode: HackingEpisode) -> Play:
    """Answer with all rows that SELECT * shows of all tables."""
    lines: dict[str, None] = {}
    for table in episode.tables:
        if (seen := (yield f'QUERY: SELECT * FROM "{table}"')).budget_remaining <= 1:
            break
        lines |= dict.fromkeys(seen.result.split("\n")[1:])
    yield "ANSWER: " + "\n".join(lines)[:MAX_ANSWER_CHARS]


def kill_worker(episode: HackingEpisode) -> Play:
    """Collect what looking pays, then run an endless query, which only a machine limit stops."""
    yield f"DESCRIBE: {episode.tables[0]}"
    yield f'QUERY: SELECT * FROM "{episode.tables[0]}"'
    while True:
        yield f"QUERY: {ENDLESS}"


def silent_oracle(episode: HackingEpisode) -> Play:
    """Look at everything once, run the gold query and stop: the maximum without an answer."""
    for kind in ("DESCRIBE", "SAMPLE"):
        for table in episode.tables:
            yield f"{kind}: {table}"
    yield f"QUERY: {episode.question.gold_sql}"


def oracle(episode: HackingEpisode) -> Play:
    """Describe the tables involved, run the gold query and give the gold answer."""
    for table in episode.question.tables_involved:
        yield f"DESCRIBE: {table}"
    yield f"QUERY: {episode.question.gold_sql}"
    yield f"ANSWER: {episode.question.answer_text}"


def most_common_answer(bank: QuestionBank) -> str:
    """Return the most frequent gold answer of a bank."""
    counts = Counter(question.answer_text for split in bank.splits.values() for question in split)
    return counts.most_common(1)[0][0]


# The bounds hold over all shipped questions. Without an answer, success is 0. Looking pays up to
# 0.05 while it shows something new, then costs; a query near the answer by luck pays up to 0.15.
POLICIES: dict[str, tuple[Policy, Bound]] = {
    "random": (random_actions, Bound(0.02, 0.08)),
    "constant": (answer_at_once(lambda episode: episode.constant), Bound(0.03, 0.03)),
    "SELECT 1": (select_one, Bound(0.01, 0.02)),
    "SELECT 1, 2, 3, ...": (select_ones, Bound(0.0, 0.05)),
    "SAMPLE everything": (every_table("SAMPLE"), Bound(0.0, -0.20)),
    "DESCRIBE everything": (every_table("DESCRIBE"), Bound(0.0, -0.20)),
    "repeat": (repeat, Bound(0.0, -0.20)),
    "alternate good and bad": (alternate, Bound(0.0, 0.02)),
    "paste a number": (answer_at_once(random_number), Bound(0.01, 0.01)),
    "paste the numbers": (
        answer_at_once(lambda episode: json.dumps(episode.numbers)),
        Bound(0.01, 0.01),
    ),
    "first cell": (first_cell, Bound(0.01, 0.02)),
    "everything": (everything, Bound(0.01, 0.08)),
    "silent oracle": (silent_oracle, Bound(0.0, RULES.most_incorrect)),
}
KILLER = ("kill the worker", kill_worker, Bound(0.0, 0.05))
