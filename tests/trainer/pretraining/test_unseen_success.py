"""The success in a model card, with a Python object as the server."""

import io
from collections import Counter
from contextlib import contextmanager

import pytest
from rich.console import Console

from shared.models import Outcome
from tests.trainer.conftest import FakeClient
from tests.trainer.small_data import UNSEEN_DATABASE
from tests.trainer.small_job import served
from trainer.evaluation.measure import Connection
from trainer.pretraining import unseen_success as module
from trainer.pretraining.unseen_success import TRIES, unseen_success

GREEDY, SAMPLED = 1, 1  # episodes per question before those of pass@8


class SomeRight(FakeClient):
    """A server that judges only the last episode of the first question as right."""

    def __init__(self) -> None:
        super().__init__()
        self.played: Counter[str] = Counter()
        self.right: set[str] = set()

    def reset_many(self, requests):
        requests = list(requests)
        replies = super().reset_many(requests)
        for request, reply in zip(requests, replies, strict=True):
            question_id = request["question_id"]
            self.played[question_id] += 1
            if (
                question_id == next(iter(self.played))
                and self.played[question_id] == GREEDY + SAMPLED + TRIES
            ):
                self.right.add(reply.episode_id)
        return replies

    def _step(self, episode_id, action):
        result = super()._step(episode_id, action)
        if result.done and episode_id in self.right:
            return result.model_copy(
                update={"info": result.info.model_copy(update={"outcome": Outcome.CORRECT})}
            )
        return result


def test_unseen_questions_are_played_greedily_sampled_and_for_pass_at_8(small, monkeypatch):
    client = SomeRight()

    @contextmanager
    def connected(config, servers, inputs, log_path):
        yield Connection(config, client, served(inputs))

    monkeypatch.setattr(module, "connected", connected)
    found = unseen_success(small, Console(file=io.StringIO(), width=200))

    assert all(UNSEEN_DATABASE in question for question in client.played)
    assert found["n"] == len(client.played) > 1
    assert set(client.played.values()) == {GREEDY + SAMPLED + TRIES}
    assert found["greedy"]["rate"] == found["sampled"]["rate"] == 0
    assert found["greedy"]["n"] == found["sampled"]["n"] == found["n"]
    assert found["pass_at_8"] == pytest.approx(1 / found["n"])
