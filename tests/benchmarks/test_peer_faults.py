"""A training under faults of its server."""

import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks.measuring import DATA
from tests.chaos.faults import Fault

faults = pytest.importorskip("benchmarks.peers.faults")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_row_without_a_reward_has_no_advantage_and_no_part_in_the_baseline():
    rewards = torch.tensor([[1.0, 0.0, torch.nan], [1.0, 1.0, 1.0]])
    found = faults.advantages(rewards).round(decimals=2)
    assert found.tolist() == [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]


class Game:
    """A client whose second step fails."""

    steps = 0

    def reset(self, **row: object) -> None:
        pass

    def step(self, action: str) -> SimpleNamespace:
        self.steps += 1
        if self.steps == 2:
            raise ConnectionError("no server")
        return SimpleNamespace(observation=SimpleNamespace(result=""), done=False, reward=0.0)


def test_a_call_that_fails_leaves_the_reward_of_trls_examples_at_0():
    watch = faults.Watch()
    watch.begin(SimpleNamespace(pass_step=lambda steps: None))
    tools = faults.OpenEnvTools(faults.WatchedClient(Game(), watch))
    tools.reset()
    tools.describe(table="a")
    assert watch.steps == 1
    with pytest.raises(ConnectionError):
        tools.answer(answer="1")
    assert (tools.get_reward(), tools.done) == (0.0, False)


@pytest.mark.slow
def test_a_killed_server_does_not_change_what_a_model_learns_here(monkeypatch):
    monkeypatch.setattr(faults, "UPDATES", 3)
    monkeypatch.setattr(faults, "FAULTS", {1: Fault("kill", 0, 0.5)})
    found = faults.measure(faults.PEERS["sqlenv"], DATA)
    [_, disturbed, _] = found["disturbed"]
    assert disturbed.pop("fault") == "kill, 0.5 s"
    assert disturbed.pop("seconds") > 0
    assert {*disturbed.values()} == {0}
    assert found["weights_differ"] == 0.0 < found["weights_changed"]
