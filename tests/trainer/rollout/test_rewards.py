"""The reward functions as TRL calls them: each extra field of the rollout as a keyword argument."""

from trainer.rollout.rewards import (
    REWARD_FUNCTIONS,
    reward_correctness,
    reward_operational,
    reward_progress,
)

FIELDS = {
    "prompts": [[], [], []],
    "completions": [[], [], []],
    "completion_ids": [[1], [1], [1]],
    "correctness": [1.0, 0.0, None],
    "progress": [1, 0.25, None],
    "operational": [-0.04, 0.01, None],
    "trainer_state": None,
}


def test_reward_correctness() -> None:
    assert reward_correctness(**FIELDS) == [1.0, 0.0, None]


def test_reward_progress() -> None:
    assert reward_progress(**FIELDS) == [1.0, 0.25, None]


def test_reward_operational() -> None:
    assert reward_operational(**FIELDS) == [-0.04, 0.01, None]


def test_a_lost_episode_gets_none_from_every_function() -> None:
    assert [function(**FIELDS)[2] for function in REWARD_FUNCTIONS] == [None, None, None]
