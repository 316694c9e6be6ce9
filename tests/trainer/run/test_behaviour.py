"""What an episode's actions say about the policy, and the table that shows it."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from trainer.run.behaviour import behaviour, canonical_actions, describes_first, repeats
from trainer.run.console import behaviour_table
from trainer.run.records import Episode, Turn


def episode(*actions: str, outcome: str = "correct", errors: int = 0) -> Episode:
    return Episode(
        question_id="q",
        database="shop",
        difficulty="easy",
        part="seen",
        outcome=outcome,
        steps=len(actions),
        correctness=float(outcome == "correct"),
        progress=0.0,
        operational=0.0,
        reward=0.0,
        parse_failures=0,
        env_errors=errors,
        context_overflow=False,
        turns=tuple(Turn(action, "") for action in actions),
    )


def test_actions_are_compared_as_the_environment_was_sent_them() -> None:
    played = episode(
        "describe orders",
        "QUERY: SELECT 1",
        "DESCRIBE: orders",
        "QUERY: SELECT 1;",
        "DESCRIBE: orders",
    )
    assert canonical_actions(played)[0] == "DESCRIBE: orders"
    assert repeats(played) == 2  # the query differs in its text
    assert repeats(episode("ANSWER: 1")) == repeats(episode()) == 0


@pytest.mark.parametrize(
    ("actions", "first"),
    [
        (("DESCRIBE: orders", "ANSWER: 1"), True),
        (("describe orders",), True),
        (("SAMPLE: orders", "DESCRIBE: orders"), False),
        (("DESCRIBES nothing that is an action",), False),  # it stands as a query
        ((), False),
    ],
)
def test_what_an_episode_begins_with(actions: tuple[str, ...], first: bool) -> None:
    assert describes_first(episode(*actions)) is first


def test_shares_and_means_are_over_what_was_played() -> None:
    played = [
        episode("DESCRIBE: orders", "ANSWER: 1"),
        episode("ANSWER: 2", outcome="wrong"),
        episode("ANSWER: 3", outcome="wrong"),
        episode("QUERY: x", "QUERY: x", "QUERY: x", outcome="budget", errors=3),
        episode("SAMPLE: orders", outcome="sql_killed"),
        episode("DESCRIBE: orders", "DESCRIBE: orders", outcome="infra_failed", errors=9),
    ]
    assert behaviour(played) == {
        "n": 5,
        "n_answered": 3,
        "answered": pytest.approx(3 / 5),
        "accuracy_when_answered": pytest.approx(1 / 3),
        "describe_first": pytest.approx(1 / 5),
        "steps": pytest.approx(8 / 5),
        "repeats": pytest.approx(2 / 5),
        "errors": pytest.approx(3 / 5),
        "truncated": 0.0,
    }


def test_a_shortened_history_is_a_share_of_the_episodes() -> None:
    played = [replace(episode("ANSWER: 1"), context_truncations=count) for count in (0, 2, 1, 0)]
    assert behaviour(played)["truncated"] == 0.5


def test_nothing_measured_says_nothing() -> None:
    found = behaviour([])
    assert (found.pop("n"), found.pop("n_answered")) == (0, 0)
    assert set(found.values()) == {None}
    unanswered = behaviour([episode("SAMPLE: orders", outcome="budget")])
    assert (unanswered["answered"], unanswered["accuracy_when_answered"]) == (0.0, None)


def test_the_table_shows_before_and_after_side_by_side() -> None:
    flailing = behaviour([episode("SAMPLE: orders", "SAMPLE: orders", outcome="budget", errors=1)])
    able = behaviour([episode("DESCRIBE: orders", "QUERY: SELECT 1", "ANSWER: 1")])
    results: dict[str, Any] = {
        "before": {mode: {"behaviour": {"overall": flailing}} for mode in ("greedy", "sampled")},
        "after": {mode: {"behaviour": {"overall": able}} for mode in ("greedy", "sampled")},
    }
    console = Console(width=80)
    with console.capture() as capture:
        console.print(behaviour_table("What changed in behaviour", results))
    lines = capture.get().splitlines()
    assert lines[0].strip() == "What changed in behaviour"
    rows = {
        " ".join(line.split()[:2]): line.split()[2:]
        for line in lines
        if line.startswith(("before", "after"))
    }
    assert list(rows) == ["before greedy", "before sampled", "after greedy", "after sampled"]
    assert rows["before greedy"] == ["0.0", "-", "0.0", "2.00", "1.00", "1.00"]
    assert rows["after sampled"] == ["100.0", "100.0", "100.0", "3.00", "0.00", "0.00"]
