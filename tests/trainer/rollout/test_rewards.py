"""The reward functions as TRL calls them, each field of the rollout a keyword argument, and with
the metadata of episodes."""

from typing import Any

import pytest

from trainer.rollout.rewards import reward_correctness, reward_operational, reward_progress

FIELDS: dict[str, Any] = {
    "prompts": [[], [], []],
    "completions": [[], [], []],
    "completion_ids": [[1], [1], [1]],
    "correctness": [1.0, 0.0, None],
    "progress": [1, 0.25, None],
    "operational": [-0.04, 0.01, None],
    "trainer_state": None,
}
TEXTS = ["ANSWER: 42", "ANSWER: 7", ""]
METADATA = [
    {"correct": True, "progress": 1.0, "operational": -0.04, "outcome": "correct"},
    {"correct": False, "progress": 0.25, "operational": 0.01, "outcome": "wrong"},
    {"correct": None, "progress": None, "operational": None, "outcome": "infra_failed"},
]


def test_reward_correctness() -> None:
    assert reward_correctness(**FIELDS) == [1.0, 0.0, None]
    assert reward_correctness(TEXTS, correct=[True, False, None]) == [1.0, 0.0, None]
    assert reward_correctness(TEXTS, metadata=METADATA) == [1.0, 0.0, None]


def test_reward_progress() -> None:
    assert reward_progress(**FIELDS) == [1.0, 0.25, None]
    assert reward_progress(TEXTS, metadata=METADATA) == [1.0, 0.25, None]


def test_reward_operational() -> None:
    assert reward_operational(**FIELDS) == [-0.04, 0.01, None]
    assert reward_operational(TEXTS, metadata=METADATA) == [-0.04, 0.01, None]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"prompts": TEXTS}, "needs correctness or correct .* metadata .* got only prompts"),
        ({"correct": [True]}, "1 values"),
        ({"metadata": METADATA[:2]}, "2 values"),
        ({"metadata": [{}, {}, {}]}, "needs correctness or correct"),
    ],
)
def test_missing_results_are_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reward_correctness(TEXTS, **kwargs)
