"""Demonstrators: the expert is right in few steps, the careless ones match their names."""

import random
from collections import Counter

import apsw
import pytest

from data.domains.demonstrations import (
    MAX_ACTIONS,
    SCRIPTS,
    WEIGHTS,
    DemonstrationTask,
    answer_action,
    follow_script,
)
from data.domains.populate import open_memory, populate
from data.domains.question_forms import balanced
from data.domains.random_domains import fresh_domain
from shared.actions import ActionType, parse_action, render_action


@pytest.fixture(scope="module")
def tasks() -> list[DemonstrationTask]:
    found = []
    for seed in range(8):
        domain = fresh_domain(seed)
        rows = populate(domain, random.Random(seed))
        connection = open_memory(domain, rows)
        asked = balanced(domain, rows, connection, random.Random(seed), {"easy": 20, "medium": 20})
        found += [
            DemonstrationTask(domain, item, connection, random.Random(f"{seed}:{item.draft.text}"))
            for item in asked
        ]
    return found


def _failures(task: DemonstrationTask, actions: list[str]) -> int:
    """Count the queries that SQLite refuses."""
    failed = 0
    for action in map(parse_action, actions):
        if action.action_type is ActionType.QUERY:
            try:
                list(task.connection.execute(action.argument))
            except apsw.Error:
                failed += 1
    return failed


def _right(task: DemonstrationTask) -> str:
    return answer_action(task.question.gold.rows)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_action_is_canonical_and_the_last_answers(tasks, name):
    for task in tasks:
        actions = follow_script(SCRIPTS[name], task)
        assert 1 <= len(actions) <= MAX_ACTIONS
        parsed = [parse_action(action) for action in actions]
        assert [render_action(action) for action in parsed] == actions
        assert [action.action_type is ActionType.ANSWER for action in parsed] == [False] * (
            len(parsed) - 1
        ) + [True]


def test_the_expert_is_right_without_an_error(tasks):
    lengths: Counter[int] = Counter()
    for task in tasks:
        actions = follow_script(SCRIPTS["expert"], task)
        assert actions[-1] == _right(task)
        assert _failures(task, actions) == 0
        lengths[len(actions) - len(task.draft.tables) - 1] += 1
        for table in task.draft.tables:
            assert f"DESCRIBE: {table}" in actions
    assert lengths[1] > 0.8 * len(tasks)  # the script and the answer
    assert sum(lengths.values()) > lengths[1]  # and now and then one thing more


def test_careless_demonstrators_recover_or_lose(tasks):
    losers = {
        "guesses_and_gives_up",
        "answers_blindly",
        "describes_then_guesses",
        "takes_wrong_query",
    }
    for name in WEIGHTS:
        ends = [follow_script(SCRIPTS[name], task)[-1] == _right(task) for task in tasks]
        right = sum(ends) / len(tasks)
        assert right < 0.15 if name in losers else right == 1
