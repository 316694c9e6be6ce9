"""What all controls share: a finished run, its questions and servers, and stored results."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from shared.run_files import RunSummary
from shared.run_stats import MODES
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult, PromptRow
from trainer.evaluation.inputs import (
    Inputs,
    JobOptions,
    check_resumed_data,
    load_inputs,
    resumed_settings,
)
from trainer.evaluation.measure import Connection, batch_of, connected, measure, model_play
from trainer.run.folder import Run, how_to_resume, read_json, write_json
from trainer.run.lock import held
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupts

# mode -> `EvalResult.summary()`, of some policies without all its keys; a mode may be absent
Modes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Finished:
    """A finished run of `make train`."""

    run: Run
    config: GRPOConfig
    options: JobOptions
    summary: RunSummary

    @property
    def digests(self) -> dict[str, str]:
        return dict(self.summary["digests"])

    @property
    def steps(self) -> int:
        return self.summary["train_steps"]

    @property
    def cost(self) -> Mapping[str, Any]:
        return self.summary["cost"]

    @property
    def training_s(self) -> float:
        """Seconds of rollouts and updates."""
        return float(self.cost["train_s"])

    @property
    def training_cpu_s(self) -> float:
        """CPU-seconds of rollouts and updates, of all the trainer's processes."""
        return float(self.cost["cpu_s"])


@dataclass(frozen=True)
class Bench:
    """The inputs and the open connection of a finished run."""

    finished: Finished
    connection: Connection
    inputs: Inputs
    console: Console
    interrupts: Interrupts


@dataclass(frozen=True)
class Result:
    """The result of a control: policies by name, and the CPU-seconds of training or sampling."""

    policies: Mapping[str, Modes]
    seconds: float
    notes: Mapping[str, Any]


def load_finished(path: Path) -> Finished:
    """Load the run in a folder. `RunError` if there is none, or if it is not finished."""
    run = Run(path.resolve())
    if not run.config.is_file():
        raise RunError(f"no run at {path}: name the folder of 'make train', such as runs/latest")
    if not run.summary.is_file():
        remedy = f"resume it with {how_to_resume(path, read_json(run.config))}"
        raise RunError(f"the run {path} is not finished: {remedy}")
    config, options = resumed_settings(run, (), {})
    summary: RunSummary = read_json(run.summary)
    return Finished(run, config, options, summary)


@contextmanager
def opened(finished: Finished, folder: Path, console: Console) -> Iterator[Bench]:
    """Load a run's inputs and start a server for the block.

    The server logs to a file of this process in `folder`, which is deleted unless the block fails.
    Raises `RunError` if the run's data, its model or the server have changed since.
    """
    with Interrupts() as interrupts:
        # as each process of the run, because more threads take more CPU time for the same work
        limit_threads(finished.summary["processes"])
        inputs = load_inputs(finished.config, replace(finished.options, eval_limit=0))
        inputs = replace(inputs, evaluation=same_questions(finished, inputs.evaluation))
        check_resumed_data(finished.run, inputs, finished.config)
        if inputs.model_digest != finished.digests["model"]:
            raise RunError(
                f"{finished.config.model_name} is not the model that {finished.run.id} started "
                "from: train it again"
            )
        log_path = folder / f"server-{os.getpid()}.log"
        with connected(finished.config, (), inputs, log_path) as connection:
            if connection.metadata.digest != finished.digests["server"]:
                raise RunError(
                    f"the environment server differs from the one of {finished.run.id}: train again"
                )
            yield Bench(finished, connection, inputs, console, interrupts)
        log_path.unlink(missing_ok=True)


def same_questions(finished: Finished, prompts: Sequence[PromptRow]) -> list[PromptRow]:
    """Return the prompts that the run's `before` played, in its order."""
    played = EvalResult.read(finished.run.evaluation("before", "greedy")).episodes
    by_id = {str(row["question_id"]): row for row in prompts}
    if missing := [one.question_id for one in played if one.question_id not in by_id]:
        raise RunError(
            f"{finished.run.id} was measured on {missing[0]}, which is no longer an eval question: "
            "train again"
        )
    return [by_id[one.question_id] for one in played]


def measured(run: Run, phase: str) -> Modes:
    """Return the run's own measurements of a phase (random, before, after), by mode."""
    paths = {mode: run.evaluation(phase, mode) for mode in MODES}
    return {mode: EvalResult.read(path).summary() for mode, path in paths.items() if path.exists()}


def measure_both(bench: Bench, folder: Run, title: str, model: Any, tokenizer: Any) -> Modes:
    """Measure greedy and sampled on the run's eval questions, and store both under `folder`."""
    config, summaries = bench.connection.config, dict[str, Mapping[str, Any]]()
    for mode in MODES:
        result = measure(
            bench.console,
            f"{title} ({mode})",
            mode,
            model_play(model, tokenizer, config, bench.connection.client, mode),
            bench.inputs.evaluation,
            bench.inputs.book,
            batch=batch_of(model, config),
            max_lost_fraction=config.max_lost_fraction,
        )
        result.write(folder.evaluation("after", mode))
        summaries[mode] = result.summary()
    return summaries


def read_kept(folder: Path, name: str, of: Mapping[str, Any]) -> Result | None:
    """Return the stored result of a control if it is `of` these digests and settings."""
    path = folder / f"{name}.json"
    saved = read_json(path) if path.exists() else None
    if saved is None or saved["of"] != of:
        return None
    return Result(saved["policies"], saved["seconds"], saved["notes"])


def kept(folder: Path, name: str, of: Mapping[str, Any], make: Callable[[Run], Result]) -> Result:
    """Return the result `of` these digests and settings: the stored one, else made and stored.

    `make` gets a folder of its own, `folder`/<name>, with what an interrupted call with the same
    `of` left there. `RunError` if another process makes it.
    """
    path, own = folder / f"{name}.json", Run(folder / name)
    own.path.mkdir(parents=True, exist_ok=True)
    with held(own.path):
        if (stored := read_kept(folder, name, of)) is not None:
            return stored
        path.unlink(missing_ok=True)
        started = own.path / "of.json"
        if not started.exists() or read_json(started) != of:
            for left in own.path.iterdir():  # the folder itself is held
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            write_json(started, dict(of))
        result = make(own)
        write_json(path, {"of": dict(of), **vars(result)})
    return result
