"""Statistics of episodes: rates with intervals, behaviour, the exact numbers of summary.json."""

import json
from typing import Any

import pytest

from shared.run_stats import (
    Behaviour,
    behaviour,
    counts,
    eval_row,
    mean,
    measurement,
    success_rate,
    training_row,
    wilson_interval,
)
from tests.trainer.conftest import record
from trainer.run.records import EpisodeRecord


def episode(*actions: str, **changes: Any) -> EpisodeRecord:
    return record(actions=actions, **changes)


def test_shares_and_means_are_over_finished_episodes():
    played = [
        episode("DESCRIBE: orders", "ANSWER: 1", context_truncations=2),
        episode("SAMPLE: orders", "DESCRIBE: orders", "ANSWER: 2", outcome="wrong"),
        episode("QUERY: DESCRIBE: orders", "ANSWER: 3", outcome="wrong"),
        # two repeats: the texts of the other queries differ
        episode("QUERY: x", "QUERY: x;", "QUERY: x", "QUERY: x", outcome="budget", env_errors=4),
        episode("SAMPLE: orders", outcome="sql_killed"),
        episode("DESCRIBE: orders", "DESCRIBE: orders", outcome="infra_failed", env_errors=9),
    ]
    assert behaviour(played) == {
        "n": 5,
        "n_answered": 3,
        "answered": pytest.approx(3 / 5),
        "accuracy_when_answered": pytest.approx(1 / 3),
        "describe_first": pytest.approx(1 / 5),
        "steps": pytest.approx(12 / 5),
        "repeats": pytest.approx(2 / 5),
        "errors": pytest.approx(4 / 5),
        "truncated": pytest.approx(1 / 5),
    }


def test_behaviour_of_no_episodes_is_none():
    found = behaviour([])
    assert (found.pop("n"), found.pop("n_answered")) == (0, 0)
    assert set(found.values()) == {None}
    unanswered = behaviour([episode("SAMPLE: orders", outcome="budget")])
    assert (unanswered["answered"], unanswered["accuracy_when_answered"]) == (0.0, None)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # published values of the Wilson score interval at 95 %
        (81, 263, 0.2553, 0.3662),  # Newcombe (1998), table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (10, 10, 0.7225, 1.0),
    ],
)
def test_wilson_interval_matches_published_values(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_the_rate_of_no_episodes_is_none():
    assert success_rate(0, 0) == {"rate": None, "n": 0, "ci95": [0.0, 1.0]}


# seen, easy, correct; and so on: four episodes whose statistics have no exact binary fractions
EPISODES = [
    episode("DESCRIBE: orders", "ANSWER: 1", reward=1.07, parse_failures=1),
    episode(
        *("QUERY: x", "QUERY: x", "ANSWER: 2"),
        outcome="wrong",
        env_errors=2,
        reward=0.1,
        part="unseen",
        difficulty="medium",
        context_truncations=1,
    ),
    episode("SAMPLE: orders", outcome="budget", reward=-0.2, difficulty="medium"),
    episode(outcome="infra_failed", env_errors=1, context_overflow=True),
]


def shares(*values: float) -> dict[str, float]:
    """Return what a group did, with its keys in the order of summary.json."""
    return dict(zip(Behaviour.__annotations__, values, strict=True))


def test_a_measurement_equals_summary_json_to_the_digit():
    third = {"rate": 1 / 3, "n": 3, "ci95": [0.06149194472039615, 0.7923403991979523]}
    half = {"rate": 0.5, "n": 2, "ci95": [0.09453120573423074, 0.9054687942657693]}
    none = {"rate": 0.0, "n": 1, "ci95": [0.0, 0.7934506856227626]}
    expected = {
        "overall": third,
        "seen": half,
        "unseen": none,
        "by_difficulty": {
            "easy": {"rate": 1.0, "n": 1, "ci95": [0.20654931437723745, 1.0]},
            "medium": {"rate": 0.0, "n": 2, "ci95": [0.0, 0.6576197724933469]},
        },
        "behaviour": {
            "overall": shares(3, 2, 2 / 3, 0.5, 1 / 3, 2.0, 1 / 3, 2 / 3, 1 / 3),
            "seen": shares(2, 1, 0.5, 1.0, 0.5, 1.5, 0.0, 0.0, 0.0),
            "unseen": shares(1, 1, 1.0, 0.0, 0.0, 3.0, 1.0, 2.0, 1.0),
        },
        "mean_reward": 0.32333333333333336,
        "mean_steps": 2.0,
        "outcomes": {"budget": 1, "correct": 1, "infra_failed": 1, "wrong": 1},
        "episodes_lost": 1,
        "parse_failures": 1,
    }
    assert json.dumps(measurement(EPISODES)) == json.dumps(expected)


def test_a_mean_is_the_same_on_every_python():
    assert mean([0.1] * 10) == 0.1  # by sum(): 0.09999999999999999 before Python 3.12
    assert mean([1e16, 1.0, None, -1e16]) == 1 / 3
    assert mean([None]) is None


def test_the_rows_of_metrics_jsonl_hold_counts_of_all_and_means_of_the_finished():
    counted = {
        "episodes": 4,
        "episodes_lost": 1,
        "env_errors": 3,
        "parse_failures": 1,
        "context_overflows": 1,
        "episodes_too_large": 0,
        "episodes_truncated": 1,
    }
    assert counts(EPISODES) == counted
    assert training_row(EPISODES) == {**counted, "success": 1 / 3, "steps_per_episode": 2.0}
    assert eval_row("greedy", EPISODES) == {
        "eval_greedy_success": 1 / 3,
        "eval_greedy_reward": 0.32333333333333336,
    }
    assert eval_row("sampled", EPISODES[3:]) == {
        "eval_sampled_success": None,
        "eval_sampled_reward": None,
    }
