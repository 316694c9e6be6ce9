"""FSDP in two processes on a CPU, over a real server."""

import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.trainer.chat_server import VLLM, served
from tests.trainer.grpo.test_job import ROOT, arguments, check_audit
from tests.trainer.grpo.test_job_ranks import TIMEOUT_S, check_same, start
from tests.trainer.small_job import check_summary, latest
from trainer.config import GRPOConfig
from trainer.presets import OFFLINE_MODEL
from trainer.run.folder import read_json, read_lines
from trainer.run.summary import model_digest

pytestmark = pytest.mark.timeout(900)


def train(*options: str) -> "subprocess.Popen[str]":
    """Start `python -m trainer train` in two processes."""
    return start("trainer", "train", "--processes", "2", *options)


def check_ended(process: "subprocess.Popen[str]") -> None:
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output


@pytest.mark.slow
def test_sharded_processes_train_and_resume_to_the_weights_of_data_parallel_ones(
    small: GRPOConfig, tmp_path: Path, data_dir: Path
) -> None:
    """The same episodes, losses and norms, and after a resume the same weights, up to rounding:
    gradients are added up per micro-batch instead of per step, and prompts are not shared. The
    gradient is clipped in every one of the two updates of a step.
    """
    small = small.override(updates_per_batch=2)
    folders = {name: tmp_path / name for name in ("whole", "sharded")}
    for folder in folders.values():
        folder.mkdir()
    options = ["--set", "max_grad_norm=0.05"]
    whole = train(*arguments(small, folders["whole"], data_dir, 3), *options)
    options += ["--set", "sharding=fsdp"]
    check_ended(train(*arguments(small, folders["sharded"], data_dir, 2), *options))
    run = latest(folders["sharded"])
    checkpoint = run.checkpoints / "checkpoint-2"
    assert (checkpoint / "pytorch_model_fsdp.bin").exists()  # accelerate has not ignored it
    before = load_file(checkpoint / "model.safetensors")
    check_ended(train("--resume", str(run.path), "--steps", "3"))
    check_ended(whole)
    summary = read_json(run.summary)
    check_summary(summary, run, steps=3, questions=12)
    assert summary["processes"] == 2
    check_audit(run)
    check_same(run, latest(folders["whole"]))
    model = AutoModelForCausalLM.from_pretrained(run.model, dtype=torch.float32)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model_digest(model) == summary["digests"]["trained_model"]
    moved = [(model.state_dict()[name] - value).abs().max() for name, value in before.items()]
    assert max(moved) > 1e-4  # the third step started from, and changed, the second one's weights


@pytest.mark.slow
def test_a_model_server_gets_the_whole_weights_of_sharded_processes(
    small: GRPOConfig, tmp_path: Path, data_dir: Path
) -> None:
    """After each update, it samples with the log-probabilities of the shards."""
    base = ROOT / OFFLINE_MODEL  # its actions earn different rewards, a random model's do not
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(base)
    options = ["--set", "sharding=fsdp", "--eval-every", "0"]
    options += ["--set", "per_device_train_batch_size=1", "--eval-limit", "4"]
    options += ["--set", "system_prompt=short", "--set", "max_new_tokens=24"]
    settings = small.override(model_name=base)
    with served(VLLM(model, tokenizer)) as fake:
        job = [*arguments(settings, tmp_path, data_dir, 2), "--generation-url", fake.url]
        check_ended(train(*job, *options))
    rows = [
        row
        for row in read_lines(latest(tmp_path).metrics)
        if "sampling/logp_difference/mean" in row
    ]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert row["sampling/logp_difference/mean"] < 1e-4
