"""Truncated importance ratios: trl's loss and gradients, without its additional forward pass."""

import functools
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.trainer.conftest import short_training
from tests.trainer.grpo.updates import Gradients, measured_step
from trainer.config import GRPOConfig

CAP = 2.0


def update(
    settings: GRPOConfig,
    tokenizer: Any,
    difference: Callable[[], float] | None,
    *,
    trls: bool = False,
    cap: float = CAP,
) -> tuple[dict[str, Any], Gradients]:
    """Do an update of rows whose sampler had log-probabilities lower by `difference()`; without
    one, uncorrected. Return its log and its gradients."""

    def prepare(trainer: Any) -> None:
        if trls:
            trainer.use_vllm, trainer._last_loaded_step = True, -1
            trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
        if difference is not None:
            if not trls:
                trainer._importance_cap = cap  # as with a sampler
            rollout = trainer.rollout_func

            def played(*arguments: Any) -> Any:
                columns = rollout(*arguments)
                for logprobs in columns["logprobs"]:
                    logprobs[:] = [value - difference() for value in logprobs]
                return columns

            trainer.rollout_func = played

    found = measured_step(
        Qwen3ForCausalLM.from_pretrained(Path(settings.output_dir) / "base", dtype=torch.float32),
        tokenizer,
        settings,
        prepare,
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=CAP,
    )
    return found.row, found.gradients


@pytest.fixture
def settings(config: GRPOConfig, model: Any, tmp_path: Path) -> GRPOConfig:
    model.save_pretrained(tmp_path / "base")
    return short_training(config, tmp_path)


def same(ours: Gradients, theirs: Gradients, factor: float = 1.0) -> None:
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient * factor, atol=2e-6, rtol=2e-3)


@pytest.mark.parametrize("options", [{}, {"beta": 0.1}], ids=str)
def test_the_update_is_trls(settings: GRPOConfig, tokenizer: Any, options: dict[str, Any]) -> None:
    settings = settings.override(**options)

    def noise() -> Callable[[], float]:
        return functools.partial(random.Random(5).gauss, 0.0, 0.7)

    ours, gradients = update(settings, tokenizer, noise())
    theirs, trls = update(settings, tokenizer, noise(), trls=True)
    same(gradients, trls)
    for name, own in (
        ("importance_sampling_ratio/mean", "importance_ratio/mean"),
        ("sampling_logp_difference/mean", "logp_difference/mean"),
    ):
        # trl's are means of the generation batch, ours of the micro-batches' means
        assert ours[f"sampling/{own}"] == pytest.approx(theirs[f"sampling/{name}"], rel=0.05)
    # P(z > ln 2 / 0.7)
    assert ours["sampling/importance_ratio/truncated"] == pytest.approx(0.161, abs=0.06)
    if not options:
        _, uncorrected = update(settings, tokenizer, None)
        with pytest.raises(AssertionError):
            same(gradients, uncorrected)


def test_a_constant_ratio_scales_the_gradient(settings: GRPOConfig, tokenizer: Any) -> None:
    _, uncorrected = update(settings, tokenizer, None)
    ratios: list[tuple[float, float, float, float | None]] = [
        (0.0, CAP, 1.0, 0.0),
        (0.5, CAP, math.exp(0.5), 0.0),
        (3.0, CAP, CAP, 1.0),
        (3.0, 0, 1, None),
        (math.nan, CAP, 1, 0.0),  # the sampler lacks the log-probability
    ]
    for difference, cap, factor, truncated in ratios:
        row, gradients = update(settings, tokenizer, itertools.repeat(difference).__next__, cap=cap)
        same(gradients, uncorrected, factor)
        assert row.get("sampling/importance_ratio/truncated") == truncated
        if truncated is not None:
            assert row["sampling/importance_ratio/mean"] == pytest.approx(factor, rel=1e-4)
            known = 0.0 if math.isnan(difference) else difference
            assert row["sampling/logp_difference/mean"] == pytest.approx(known, abs=1e-4)


def test_several_updates_log_how_far_the_sampler_was(settings: GRPOConfig, tokenizer: Any) -> None:
    """The clipped ratio is that to the sampler's probabilities, so it replaces the correction."""
    two = settings.override(updates_per_batch=2, gradient_accumulation_steps=2)
    row, _ = update(two, tokenizer, lambda: 0.5)
    assert row["sampling/logp_difference/mean"] == pytest.approx(0.5, abs=0.05)
    assert row["clip_ratio/region_mean"] > 0.2  # exp(0.5) is above 1.28
