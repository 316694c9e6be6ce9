"""summary.json: what a run did, from the files that it wrote. So a resumed run's counts are those
of the whole."""

import hashlib
import importlib.metadata
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from shared.models import Outcome
from trainer.run.cost import Spent, cost
from trainer.run.folder import Run, read_lines

PACKAGES = (
    "sqlenv",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "tokenizers",
    "numpy",
    "httpx",
)
PHASES = ("random", "before", "after")
PARTS = ("overall", "seen", "unseen")
RANK_WAIT = "rank_wait_s"  # a part of rollout_s, in runs of several processes
GIT_TIMEOUT_S = 10.0
TIMES = ("rollout_s", "env_wait_s", "generate_s", "update_s")


def versions(sqlite: str) -> dict[str, str]:
    """Of Python, of the packages that decide a result, and of the servers' SQLite."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "sqlite": sqlite}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def git_state() -> dict[str, Any] | None:
    """The commit of this code and whether any file but ignored ones differs from it; None where git
    has neither."""
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # else it lies in somebody else's repository
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def model_digest(model: Any) -> str:
    """SHA-256 over a model's parameters and buffers, by name, number format, shape and bytes."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(
            tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return total.hexdigest()


def totals(run: Run) -> dict[str, Any]:
    """Counts over every episode, and the seconds of training by what they went to."""
    counts: Counter[str] = Counter()
    by_phase: dict[str, Counter[str]] = {}
    for line in read_lines(run.episodes):
        phase = by_phase.setdefault(line["phase"], Counter())
        for counter in (counts, phase):
            counter["episodes"] += 1
            counter["episodes_lost"] += line["outcome"] == Outcome.INFRA_FAILED
            counter["env_errors"] += line["env_errors"]
            counter["parse_failures"] += line["parse_failures"]
            counter["context_overflows"] += line["context_overflow"]
            counter["episodes_truncated"] += line.get("context_truncations", 0) > 0
    seconds, rebuilds = dict.fromkeys(TIMES, 0.0), 0
    for row in read_lines(run.metrics):
        rebuilds += row.get("rebuilds") or 0
        for name in TIMES:
            seconds[name] += row.get(name) or 0.0
    names = (
        "episodes",
        "episodes_lost",
        "env_errors",
        "parse_failures",
        "context_overflows",
        "episodes_truncated",
    )
    return {
        **{name: counts[name] for name in names},
        "by_phase": {
            phase: {name: counter[name] for name in names} for phase, counter in by_phase.items()
        },
        # times that an episode of training was rebuilt on a server by replay
        "train_rebuilds": rebuilds,
        **{name: round(value, 3) for name, value in seconds.items()},
    }


def waited_s(run: Run) -> float:
    """Seconds that the first of several processes waited for the others' episodes, over the whole
    training."""
    return round(sum(row.get(RANK_WAIT) or 0.0 for row in read_lines(run.metrics)), 3)


def build_summary(
    run: Run,
    *,
    evaluations: Mapping[str, Mapping[str, Mapping[str, Any]]],
    train_steps: int,
    spent: Spent,
    wall_s: float,
    seed: int,
    versions: Mapping[str, str],
    digests: Mapping[str, str],
    **more: Any,
) -> dict[str, Any]:
    """The whole of summary.json. `evaluations` is phase (random, before, after) -> mode ->
    `EvalResult.summary()`.

    `spent` is what the training steps took.
    """
    counts = totals(run)
    return {
        "run": run.id,
        **{f"eval_success_{phase}": rates(evaluations.get(phase, {})) for phase in PHASES},
        "train_steps": train_steps,
        **counts,
        "cost": cost(
            read_lines(run.metrics),
            spent,
            steps=train_steps,
            episodes=counts["by_phase"].get("train", {}).get("episodes", 0),
            whole_s=sum(
                result["wall_s"] for modes in evaluations.values() for result in modes.values()
            ),
        ),
        "wall_s": round(wall_s, 3),
        "seed": seed,
        "versions": dict(versions),
        "digests": dict(digests),
        **more,
        "evaluations": {phase: dict(modes) for phase, modes in evaluations.items()},
    }


def rates(modes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """mode -> overall, seen, unseen -> {rate, n, ci95}: success alone."""
    return {mode: {part: result[part] for part in PARTS} for mode, result in modes.items()}
