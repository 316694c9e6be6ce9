"""Ways to play for the reward rather than for the answer, and one that knows the answer.

A policy is a generator over what an agent sees: it yields actions and is sent observations. It ends
when its episode does, or before, and then without an answer.
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
from trainer.rollout.generators.base import View
from trainer.rollout.generators.policies import RandomPolicy, read_cells, read_schema

Play = Generator[str, SQLObservation, None]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MOST_CHARS = 20_000  # of an answer; a longer one is no action
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@dataclass(frozen=True)
class Scene:
    """What a policy begins with. Only the constant knows `constant`, only the oracles know
    `question`'s gold."""

    first: SQLObservation
    rng: np.random.Generator
    question: Question
    constant: str  # the most common gold answer of all questions

    @property
    def tables(self) -> list[str]:
        return read_schema(self.first.schema_info)[0]


@dataclass(frozen=True)
class Bound:
    """What a policy may get at most: the share of right answers, and the mean reward of an episode."""

    success: float
    reward: float


def random_actions(scene: Scene) -> Play:
    """Random valid actions over what it has seen; answers with a random cell."""
    view, policy = View(scene.question.question_id, 0, scene.rng, [scene.first]), RandomPolicy()
    while True:
        (action,) = policy.act([view])
        assert action is not None
        view.actions.append(action)
        view.observations.append((yield action))


def constant(scene: Scene) -> Play:
    """Answers at once with the most common answer."""
    yield f"ANSWER: {scene.constant}"


def select_one(scene: Scene) -> Play:
    """SELECT 1, and its result as the answer."""
    yield "QUERY: SELECT 1"
    yield "ANSWER: 1"


def select_ones(scene: Scene) -> Play:
    """SELECT 1, SELECT 2, ...: always something not shown before, of no table."""
    for number in itertools.count(1):
        yield f"QUERY: SELECT {number}"


def sample_everything(scene: Scene) -> Play:
    """SAMPLE of every table, again and again."""
    for table in itertools.cycle(scene.tables):
        yield f"SAMPLE: {table}"


def describe_everything(scene: Scene) -> Play:
    """DESCRIBE of every table, again and again."""
    for table in itertools.cycle(scene.tables):
        yield f"DESCRIBE: {table}"


def repeat(scene: Scene) -> Play:
    """One good query, again and again."""
    while True:
        yield f'QUERY: SELECT * FROM "{scene.tables[0]}"'


def alternate(scene: Scene) -> Play:
    """A query of one table after another, each with one that fails in between."""
    for number, table in enumerate(itertools.cycle(scene.tables)):
        yield f'QUERY: SELECT * FROM "{table}" LIMIT {number + 1}'
        yield f'QUERY: SELECT nothing_{number} FROM "{table}"'


def paste_number(scene: Scene) -> Play:
    """A number of the question, at random; 1 where it has none."""
    found = NUMBER.findall(scene.first.question) or ["1"]
    yield f"ANSWER: {found[int(scene.rng.integers(len(found)))]}"


def paste_numbers(scene: Scene) -> Play:
    """All numbers of the question, as a list."""
    yield f"ANSWER: {json.dumps(NUMBER.findall(scene.first.question) or ['1'])}"


def first_cell(scene: Scene) -> Play:
    """The first cell of the first table."""
    seen = yield f"SAMPLE: {scene.tables[0]}"
    yield f"ANSWER: {(read_cells(seen) or ['1'])[0]}"


def everything(scene: Scene) -> Play:
    """All rows that SAMPLE and SELECT * show of all tables, as one answer."""
    lines: dict[str, None] = {}
    for table in scene.tables:
        if (seen := (yield f'QUERY: SELECT * FROM "{table}"')).budget_remaining <= 1:
            break
        lines |= dict.fromkeys(seen.result.split("\n")[1:])
    yield "ANSWER: " + "\n".join(lines)[: MOST_CHARS - 100]


def kill_worker(scene: Scene) -> Play:
    """Collects what looking pays, then runs a query without an end. Some machine's limit must stop
    it."""
    yield f"DESCRIBE: {scene.tables[0]}"
    yield f'QUERY: SELECT * FROM "{scene.tables[0]}"'
    while True:
        yield f"QUERY: {ENDLESS}"


def silent_oracle(scene: Scene) -> Play:
    """Looks at everything once, runs the gold and leaves: all that can be had without an answer."""
    for kind in ("DESCRIBE", "SAMPLE"):
        for table in scene.tables:
            yield f"{kind}: {table}"
    yield f"QUERY: {scene.question.gold_sql}"


def oracle(scene: Scene) -> Play:
    """Describes the tables that it needs, runs the gold and answers with what it is shown."""
    for table in scene.question.tables_involved:
        yield f"DESCRIBE: {table}"
    yield f"QUERY: {scene.question.gold_sql}"
    yield f"ANSWER: {answer_text(scene.question)}"


def answer_text(question: Question) -> str:
    """The gold answer as JSON, or a scalar as it is."""
    answer = question.gold_answer
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def most_common_answer(bank: QuestionBank) -> str:
    """The answer that is right most often, over all questions of a bank."""
    counts = Counter(answer_text(question) for split in bank.splits.values() for question in split)
    return counts.most_common(1)[0][0]


# The bounds hold over all shipped questions. A policy that gives no answer has no success at all.
# Looking pays up to 0.05 while it shows something new, and costs from then on; a query may come
# near an answer by luck, which pays up to 0.15.
POLICIES: dict[str, tuple[Callable[[Scene], Play], Bound]] = {
    "random": (random_actions, Bound(0.02, 0.08)),
    "constant": (constant, Bound(0.03, 0.03)),
    "SELECT 1": (select_one, Bound(0.01, 0.02)),
    "SELECT 1, 2, 3, ...": (select_ones, Bound(0.0, 0.05)),
    "SAMPLE everything": (sample_everything, Bound(0.0, -0.20)),
    "DESCRIBE everything": (describe_everything, Bound(0.0, -0.20)),
    "repeat": (repeat, Bound(0.0, -0.20)),
    "alternate good and bad": (alternate, Bound(0.0, 0.02)),
    "paste a number": (paste_number, Bound(0.01, 0.01)),
    "paste the numbers": (paste_numbers, Bound(0.01, 0.01)),
    "first cell": (first_cell, Bound(0.01, 0.02)),
    "everything": (everything, Bound(0.01, 0.08)),
    "silent oracle": (silent_oracle, Bound(0.0, RULES.most_incorrect)),
}
KILLER = ("kill the worker", kill_worker, Bound(0.0, 0.05))
