"""The benchmark of decoding times both ways on a small model."""

import pytest

from benchmarks import decoding
from trainer.config import GRPOConfig


def test_both_ways_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"vocab_size": 600, "hidden_size": 64, "num_hidden_layers": 1}
    monkeypatch.setattr(decoding, "SHAPE", {**decoding.SHAPE, **small, "num_attention_heads": 2})
    config = GRPOConfig.preset("qwen2.5-coder-0.5b", device="cpu", dtype="bfloat16")
    for lora in (False, True):
        model = decoding.load(None, config, lora)
        taken = decoding.measure(model, config, rows=2, tokens=3, rounds=2)
        assert {way: len(times) for way, times in taken.items()} == dict.fromkeys(decoding.WAYS, 2)
        assert min(map(min, taken.values())) > 0
