"""Running out of memory, with real failing allocations: the error, the checkpoint, resuming."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.conftest import FakeClient, InterruptedClient, short_training
from tests.trainer.small_job import begin, comparable, latest, trainer_of, uninterrupted
from trainer.config.settings import GRPOConfig
from trainer.errors import OOMError, RunError
from trainer.run.folder import read_lines
from trainer.run.resume import resumed_settings
from trainer.runtime.checkpoint import guard_of
from trainer.runtime.out_of_memory import is_out_of_memory, remedies, reporting_out_of_memory
from trainer.runtime.ranks import Ranks
from trainer.runtime.training import run_training_with_metrics

pytestmark = pytest.mark.usefixtures("blank_charts")

TOO_MUCH = 2**46  # float32 numbers: 256 TiB, which no machine maps
REMEDIES = (
    r"To reduce memory: --set per_device_train_batch_size=2 --set gradient_accumulation_steps=4 "
    r".*--set gradient_checkpointing=true.*--set lora_rank=16.*"
    r"--set max_context_tokens=384"
)


def torchs_own() -> None:
    torch.empty(TOO_MUCH)


def numpys_own() -> None:
    np.empty(TOO_MUCH)


def on_a_gpu() -> None:
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 15.77 GiB"
    )


def in_a_kernel() -> None:
    raise RuntimeError("CUDA error: out of memory")


def in_a_fork() -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


@pytest.mark.parametrize("run_out", [torchs_own, numpys_own, on_a_gpu, in_a_kernel, in_a_fork])
def test_every_kind_is_reported_with_remedies(config, run_out):
    with (
        pytest.raises(OOMError, match=rf"^out of memory while thinking: .*{REMEDIES}") as caught,
        reporting_out_of_memory(config, "thinking"),
    ):
        run_out()
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes differ"), OSError(errno.ENOENT, "gone"), ValueError("memory")]
)
def test_other_errors_stay_what_they_are(config, error):
    assert not is_out_of_memory(error)
    with pytest.raises(type(error)) as caught, reporting_out_of_memory(config, "thinking"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("index", range(3))
def test_every_proposed_remedy_is_a_valid_setting(config, index):
    typed = remedies(config)[index].split("--set ")[1:]
    assert typed
    config.override(**dict(one.split()[0].split("=") for one in typed))


@pytest.mark.slow
def test_a_rollout_out_of_memory_leaves_a_checkpoint_to_resume(small, tmp_path):
    with pytest.raises(
        OOMError, match=r"playing the 8 episodes of step 2: .*can't allocate memory"
    ):
        begin(
            small, tmp_path, InterruptedClient(7, torchs_own)
        ).run()  # 1 random, 2 and 3 before, 4 step 1, 5 and 6 its small evals
    run = latest(tmp_path)
    checkpoint = run.last_checkpoint()
    assert checkpoint.name == "checkpoint-1"
    begin(small, tmp_path, FakeClient(), resume=run).run()
    assert comparable(run) == uninterrupted(small, tmp_path)


@pytest.fixture
def settings(config: GRPOConfig, tmp_path: Path) -> GRPOConfig:
    return short_training(
        config, tmp_path, max_steps=3, step_budget=2, max_new_tokens=4, learning_rate=1e-3
    )


def test_an_update_out_of_memory_keeps_the_last_complete_step(settings, model, tokenizer):
    trainer = trainer_of(model, tokenizer, settings)
    compute, calls = trainer._compute_loss, []

    def hungry(*arguments: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 4:  # two micro-batches per step: the second of step 2
            torchs_own()
        loss: torch.Tensor = compute(*arguments)
        return loss

    trainer._compute_loss = hungry
    with pytest.raises(OOMError, match=r"updating the weights in step 2: "):
        run_training_with_metrics(trainer)
    assert (Path(settings.output_dir) / "checkpoint-1" / "trainer_state.json").is_file()
    assert all(parameter.grad is None for parameter in model.parameters())  # their memory is freed


def test_a_process_that_does_not_print_results_prints_its_lack_of_memory(
    settings, model, tokenizer, capsys
):
    """Process 0 only sees that this one is gone."""
    client, other = FakeClient(), Ranks(index=3)
    trainer = trainer_of(model, tokenizer, settings, client=client)
    guard_of(trainer).ranks = other
    trainer._compute_loss = lambda *_: torchs_own()
    with pytest.raises(OOMError):
        run_training_with_metrics(trainer)
    assert "error: process 3: out of memory while updating the weights" in capsys.readouterr().err


def test_an_incomplete_update_leaves_no_checkpoint(settings, model, tokenizer):
    """The optimizer failed among the weights: the last complete state is an earlier checkpoint."""
    trainer = trainer_of(model, tokenizer, settings.override(save_steps=1))
    trainer.create_optimizer()
    step, calls = trainer.optimizer.step, []

    def hungry(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            next(model.parameters()).data.add_(1.0)
            torchs_own()
        return step(*arguments, **more)

    trainer.optimizer.step = hungry
    with pytest.raises(OOMError, match="updating the weights in step 3"):
        run_training_with_metrics(trainer)
    kept = Path(settings.output_dir).glob("checkpoint-*")
    assert sorted(path.name for path in kept) == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.slow
def test_a_run_resumes_with_settings_that_need_less_memory(small, tmp_path):
    """Smaller micro-batches with checkpointing: the same episodes, the same updates to rounding."""
    begin(small, tmp_path / "whole", FakeClient()).run()
    with pytest.raises(OOMError):
        begin(small, tmp_path, InterruptedClient(7, torchs_own)).run()
    run = latest(tmp_path)
    less = {
        "per_device_train_batch_size": "2",
        "gradient_accumulation_steps": "4",
        "gradient_checkpointing": "true",
    }
    config, _ = resumed_settings(run, (), less)
    assert config == replace(
        small,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
    )
    begin(config, tmp_path, FakeClient(), resume=run).run()
    whole = latest(tmp_path / "whole")
    curves = [[row for row in read_lines(one.metrics) if "success" in row] for one in (run, whole)]
    for row, other in zip(*curves, strict=True):
        for name in ("loss", "grad_norm", "reward"):
            assert row[name] == pytest.approx(other[name], rel=1e-3, abs=1e-6)
    played = [
        [line for line in read_lines(one.episodes) if line["phase"] == "train"]
        for one in (run, whole)
    ]
    assert played[0] == played[1]
    with pytest.raises(RunError, match="keeps its 8 rollouts per step"):
        resumed_settings(run, (), {"per_device_train_batch_size": "8"})
