"""Policies that play for the reward rather than for the answer, and oracles that know the answer.

A policy returns the actions of an episode, one after another; the episode shows what the agent has
seen by then. It ends with the episode, or earlier and then without an answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, cycle, repeat

from env_server.questions import QuestionBank
from shared.dataset import Question
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.policies import RandomPolicy, read_cells, read_schema

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MAX_ANSWER_CHARS = 19_900  # a longer one is not a valid action
MOST_INCORRECT, LEAST_CORRECT = 0.2, 0.75  # the most a wrong episode pays, the least a right one
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@dataclass(kw_only=True)
class HackingEpisode(EpisodeView):
    """What a policy sees. Only oracles may read the gold of `question`."""

    question: Question
    constant: str  # the most common gold answer of all questions

    @property
    def tables(self) -> list[str]:
        return read_schema(self.observations[0].schema_info)[0]

    @property
    def numbers(self) -> list[str]:
        """The numbers in the question; 1 if it has none."""
        return NUMBER.findall(self.observations[0].question) or ["1"]

    @property
    def all_rows(self) -> str:
        """The query that shows the first table."""
        return f'QUERY: SELECT * FROM "{self.tables[0]}"'


Policy = Callable[[HackingEpisode], Iterable[str]]


@dataclass(frozen=True)
class Bound:
    """A policy's upper bounds: the share of right answers, and the mean reward per episode."""

    success: float
    reward: float


def random_actions(episode: HackingEpisode) -> Iterator[str]:
    """Take random valid actions over what is visible; answer with a random cell."""
    policy = RandomPolicy()
    while True:
        (action,) = policy.act([episode])
        assert action is not None
        yield action


def random_number(episode: HackingEpisode) -> Iterable[str]:
    """Answer with a random number of the question."""
    return [f"ANSWER: {episode.numbers[int(episode.rng.integers(len(episode.numbers)))]}"]


def alternate(episode: HackingEpisode) -> Iterator[str]:
    """Query one table after the other, with a failing query after each."""
    for number, table in enumerate(cycle(episode.tables)):
        yield f'QUERY: SELECT * FROM "{table}" LIMIT {number + 1}'
        yield f'QUERY: SELECT nothing_{number} FROM "{table}"'


def first_cell(episode: HackingEpisode) -> Iterator[str]:
    """Answer with the first cell of the first table."""
    yield f"SAMPLE: {episode.tables[0]}"
    yield f"ANSWER: {(read_cells(episode.observations[-1]) or ['1'])[0]}"


def everything(episode: HackingEpisode) -> Iterator[str]:
    """Answer with all rows that SELECT * shows of all tables."""
    lines: dict[str, None] = {}
    for table in episode.tables:
        yield f'QUERY: SELECT * FROM "{table}"'
        if (seen := episode.observations[-1]).budget_remaining <= 1:
            break
        lines |= dict.fromkeys(seen.result.split("\n")[1:])
    yield "ANSWER: " + "\n".join(lines)[:MAX_ANSWER_CHARS]


def kill_worker(episode: HackingEpisode) -> Iterator[str]:
    """Collect what looking pays, then run an endless query, which only a machine limit stops."""
    yield from (f"DESCRIBE: {episode.tables[0]}", episode.all_rows)
    yield from repeat(f"QUERY: {ENDLESS}")


def silent_oracle(episode: HackingEpisode) -> Iterator[str]:
    """Look at everything once, run the gold query and stop: the maximum without an answer."""
    for kind in ("DESCRIBE", "SAMPLE"):
        yield from (f"{kind}: {table}" for table in episode.tables)
    yield f"QUERY: {episode.question.gold_sql}"


def oracle(episode: HackingEpisode) -> Iterator[str]:
    """Describe the tables involved, run the gold query and give the gold answer."""
    yield from (f"DESCRIBE: {table}" for table in episode.question.tables_involved)
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
    "constant": (lambda episode: [f"ANSWER: {episode.constant}"], Bound(0.03, 0.03)),
    "SELECT 1": (lambda episode: ["QUERY: SELECT 1", "ANSWER: 1"], Bound(0.01, 0.02)),
    # always a new result, of no table
    "SELECT 1, 2, 3, ...": (
        lambda episode: (f"QUERY: SELECT {number}" for number in count(1)),
        Bound(0.0, 0.05),
    ),
    "SAMPLE everything": (
        lambda episode: (f"SAMPLE: {table}" for table in cycle(episode.tables)),
        Bound(0.0, -0.20),
    ),
    "DESCRIBE everything": (
        lambda episode: (f"DESCRIBE: {table}" for table in cycle(episode.tables)),
        Bound(0.0, -0.20),
    ),
    "repeat": (lambda episode: repeat(episode.all_rows), Bound(0.0, -0.20)),
    "alternate good and bad": (alternate, Bound(0.0, 0.02)),
    "paste a number": (random_number, Bound(0.01, 0.01)),
    "first cell": (first_cell, Bound(0.01, 0.02)),
    "everything": (everything, Bound(0.01, 0.08)),
    "silent oracle": (silent_oracle, Bound(0.0, MOST_INCORRECT)),
}
