"""What every control works with: a finished run, the same questions and servers, and results that
are kept."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shared.run_stats import MODES
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult
from trainer.evaluation.inputs import Inputs, JobOptions, resumed_settings
from trainer.evaluation.measure import Connection, batch_of, measure, model_play
from trainer.run.folder import Run, read_json, read_lines, write_json
from trainer.runtime.interrupt import Interrupts

# mode -> `EvalResult.summary()`; a mode that makes no sense is absent
Modes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Finished:
    """A run that `make train` ended. `training_s`: rollouts and updates, without evaluations."""

    run: Run
    config: GRPOConfig
    options: JobOptions
    summary: Mapping[str, Any]
    training_s: float

    @property
    def digests(self) -> dict[str, str]:
        return dict(self.summary["digests"])

    @property
    def steps(self) -> int:
        return int(self.summary["train_steps"])


@dataclass(frozen=True)
class Bench:
    """Open servers and inputs of a finished run. `there.config` has the servers' URLs."""

    finished: Finished
    there: Connection
    inputs: Inputs
    console: Console
    interrupts: Interrupts


@dataclass(frozen=True)
class Result:
    """What a control found: policies by name, the seconds it took beyond one episode a question,
    and how."""

    policies: Mapping[str, Modes]
    seconds: float
    notes: Mapping[str, Any]


def training_seconds(run: Run) -> float:
    """Seconds of a run's rollouts and updates, from metrics.jsonl."""
    return sum(
        (row.get("rollout_s") or 0.0) + (row.get("update_s") or 0.0)
        for row in read_lines(run.metrics)
    )


def load_finished(path: Path) -> Finished:
    """The run in a folder, or `RunError` saying why it can't be compared with."""
    run = Run(path.resolve())
    if not run.config.is_file():
        raise RunError(
            f"no run at {path}: name the folder that 'make train' left, such as runs/latest"
        )
    if not run.summary.is_file():
        raise RunError(
            f"the run {path} has no end yet: go on with  python -m trainer train --resume {path}"
        )
    config, options = resumed_settings(run, (), {})
    return Finished(run, config, options, read_json(run.summary), training_seconds(run))


def measured(run: Run, phase: str) -> dict[str, dict[str, Any]]:
    """mode -> summary of what a run keeps of `phase` (random, before, after)."""
    paths = {mode: run.evaluation(phase, mode) for mode in MODES}
    return {mode: EvalResult.read(path).summary() for mode, path in paths.items() if path.exists()}


def measure_both(
    bench: Bench, folder: Run, title: str, model: Any, tokenizer: Any
) -> dict[str, dict[str, Any]]:
    """Greedy and sampled over the run's eval questions, with its prompts and seed. Kept in full
    under `folder`."""
    config, summaries = bench.there.config, dict[str, dict[str, Any]]()
    for mode in MODES:
        play = model_play(model, tokenizer, config, bench.there.client, mode)
        result = measure(
            bench.console,
            f"{title} ({mode})",
            mode,
            play,
            bench.inputs.evaluation,
            bench.inputs.book,
            batch=batch_of(model, config),
            max_lost_fraction=config.max_lost_fraction,
        )
        result.write(folder.evaluation("after", mode))
        summaries[mode] = result.summary()
    return summaries


def read_kept(folder: Path, name: str, digests: Mapping[str, str]) -> Result | None:
    """The result in `folder`/<name>.json, whatever its settings, where it is of these digests."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found = read_json(path)
    if found["of"]["digests"] != digests:
        return None
    return Result(found["policies"], found["seconds"], found["notes"])


def kept(folder: Path, name: str, of: Mapping[str, Any], make: Callable[[Run], Result]) -> Result:
    """The result in `folder`/<name>.json where it is one `of` these digests and settings; else made
    and written.

    `make` gets a folder of its own, `folder`/<name>, in which an earlier, interrupted call with the
    same `of` may have left something to go on from.
    """
    path, own = folder / f"{name}.json", Run(folder / name)
    if path.exists():
        found = read_json(path)
        if found["of"] == of:
            return Result(found["policies"], found["seconds"], found["notes"])
        path.unlink()
    begun = own.path / "of.json"
    if not begun.exists() or read_json(begun) != of:
        shutil.rmtree(own.path, ignore_errors=True)
        write_json(begun, dict(of))
    result = make(own)
    write_json(
        path,
        {
            "of": dict(of),
            "seconds": result.seconds,
            "notes": dict(result.notes),
            "policies": result.policies,
        },
    )
    return result
