"""Build summary.json from the files of a run, so that its counts cover all sessions."""

import hashlib
import importlib.metadata
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from shared.run_files import RunSummary, TimedMeasurement
from shared.run_stats import PHASES, counts, rates
from trainer.run.cost import cost
from trainer.run.folder import Run, read_lines
from trainer.run.records import read_records

PACKAGES = (
    *("sqlenv", "torch", "transformers", "trl", "accelerate", "datasets", "tokenizers", "numpy"),
    "httpx",
)
GIT_TIMEOUT_S = 10.0
# seconds of training that metrics.jsonl has and summary.json adds up
TIMES = ("rollout_s", "env_wait_s", "generate_s", "update_s")
RANK_WAIT = "rank_wait_s"  # part of rollout_s, in runs of several processes


def versions(sqlite: str) -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform(), "sqlite": sqlite}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def git_state() -> dict[str, Any] | None:
    """Return the commit of this code, and whether files differ from it; None if unknown. An image
    has no .git: its file `revision` holds the commit, and `dirty` is None."""
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # fails inside another repository
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        revision = here.parents[2] / "revision"
        commit = revision.read_text().strip() if revision.is_file() else ""
        return {"commit": commit, "dirty": None} if commit else None


def model_digest(model: Any) -> str:
    """Return the SHA-256 over a model's parameters and buffers: name, dtype, shape and bytes."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(values.view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def totals(run: Run) -> dict[str, Any]:
    by_phase: dict[str, Counter[str]] = {}
    for episode in read_records(run, seen=False):
        by_phase.setdefault(episode.phase, Counter()).update(counts([episode]))
    total = Counter(counts([]))
    for counter in by_phase.values():
        total.update(counter)
    rows = list(read_lines(run.metrics))
    seconds = {
        name: round(sum(row.get(name) or 0.0 for row in rows), 3) for name in (*TIMES, RANK_WAIT)
    }
    return {
        **total,
        "by_phase": {phase: dict(counter) for phase, counter in by_phase.items()},
        "train_rebuilds": sum(row.get("rebuilds") or 0 for row in rows),
        **{name: value for name, value in seconds.items() if value or name in TIMES},
    }


def build_summary(
    run: Run,
    *,
    evaluations: Mapping[str, Mapping[str, TimedMeasurement]],
    train_steps: int,
    wall_s: float,
    **more: Any,
) -> RunSummary:
    found = totals(run)
    summary: dict[str, Any] = {
        "run": run.id,
        **{f"eval_success_{phase}": rates(evaluations.get(phase, {})) for phase in PHASES},
        "train_steps": train_steps,
        **found,
        "cost": cost(
            read_lines(run.metrics),
            steps=train_steps,
            episodes=found["by_phase"].get("train", {}).get("episodes", 0),
            whole_s=sum(one["wall_s"] for modes in evaluations.values() for one in modes.values()),
        ),
        "wall_s": round(wall_s, 3),
        **more,
        "evaluations": {phase: dict(modes) for phase, modes in evaluations.items()},
    }
    return cast(RunSummary, summary)
