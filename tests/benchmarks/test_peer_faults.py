"""A training under faults of its server."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

import torch

from benchmarks.chaos.faults import Fault
from benchmarks.peers import training
from benchmarks.peers.faults import rows
from benchmarks.peers.training import PEERS, advantages, measure


def test_a_row_without_a_reward_has_no_advantage_and_no_part_in_the_baseline() -> None:
    rewards = torch.tensor([[1.0, 0.0, torch.nan], [1.0, 1.0, 1.0]])
    assert advantages(rewards).round(decimals=2).tolist() == [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]


class Game:
    """A client whose connection fails at the second step, as OpenEnv's does."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, **row: object) -> None:
        pass

    def step(self, action: str) -> object:
        self.steps += 1
        if self.steps == 2:
            raise ConnectionError("no server")
        observation = type("Observation", (), {"result": "", "action_history": ["SAMPLE: a"]})
        return type("Reply", (), {"observation": observation, "done": False, "reward": 0.0})


def test_a_call_that_fails_leaves_the_reward_of_trls_examples_0() -> None:
    counts = training.Counter[str]()
    tools = training.OpenEnvTools(training.Checked(Game(), counts))
    tools.reset()
    tools.describe("a")
    assert counts["of_another_step"] == 1
    with pytest.raises(ConnectionError):
        tools.answer("1")
    assert (tools.get_reward(), tools.done) == (0.0, False)


@pytest.mark.slow
def test_a_killed_server_does_not_change_what_a_model_learns_here(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "UPDATES", 3)
    monkeypatch.setattr(training, "FAULTS", {1: Fault("kill", 0, 0.5)})
    found = measure(PEERS["sqlenv"], tiny_data)
    [line] = rows("sqlenv", found)
    assert line[:6] == ("sqlenv: kill, 0.5 s", "0", "0", "0", "0", "0")
    assert found["weights_differ"] == 0.0 < found["weights_changed"]
