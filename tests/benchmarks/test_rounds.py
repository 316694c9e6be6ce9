"""The benchmark of whole rounds."""

from typing import Any

import pytest

from benchmarks.rounds import EPISODES, SHARES, measure, summary
from tests.trainer import conftest as training
from tests.trainer.conftest import FakeClient
from trainer.config import GRPOConfig

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures
data_dir, small = training.data_dir, training.small


def test_all_ways_sample_the_same_turns(small: GRPOConfig, model: Any, tokenizer: Any) -> None:
    lines = measure(model, tokenizer, small, FakeClient(after={"train-shop-0": 1}), 2, seed=3)
    assert [line["ended_share"] for line in lines] == list(SHARES)
    assert len({line["tokens"] for line in lines}) == 1
    assert all(line["tokens"] > 2 * EPISODES for line in lines)


def test_ratios_are_to_whole_rounds() -> None:
    rounds = [
        [{"cpu_s": 4.0, "tokens": 10}, {"cpu_s": 3.0, "tokens": 10}],
        [{"cpu_s": 8.0, "tokens": 30}, {"cpu_s": 3.0, "tokens": 30}],
    ]
    assert summary(rounds) == [
        {"cpu_s": 6.0, "tokens": 20, "ratio": 1.0},
        {"cpu_s": 3.0, "tokens": 20, "ratio": pytest.approx(0.5)},
    ]
