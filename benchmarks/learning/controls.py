"""The controls of one run, each stored as JSON in its folder, and the lines of their table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.learning import sft, shuffled, votes
from benchmarks.learning.bench import (
    Bench,
    Finished,
    Modes,
    Result,
    kept,
    load_finished,
    measure_both,
    measured,
    opened,
    read_kept,
)
from trainer.errors import RunError
from trainer.run.folder import Run
from trainer.run.summary import model_digest
from trainer.runtime.models import load_model_and_tokenizer

CONTROLS = ("expert", "sft", "best_of_8", "shuffled")
FOLDER = "controls"  # of the run, for the results


@dataclass(frozen=True)
class Line:
    """One policy of the table; `seconds` of training or of further samples, None without either."""

    key: str
    modes: Modes
    seconds: float | None = None


@dataclass(frozen=True)
class Controls:
    """A run with its controls: the lines of the table, and the notes of each control."""

    finished: Finished
    lines: Sequence[Line]
    notes: Mapping[str, Mapping[str, Any]]

    def modes(self, key: str) -> Modes:
        return next((line.modes for line in self.lines if line.key == key), {})


def run_controls(
    path: Path,
    expert: Path,
    only: Sequence[str] = (),
    *,
    console: Console,
    rates: Sequence[float] = sft.RATES,
) -> Controls:
    """Measure the controls that have no stored result; of those not in `only`, show stored ones.

    Raises `RunError` if the run, its data, its model or the server have changed since.
    """
    if unknown := sorted(set(only) - set(CONTROLS)):
        raise RunError(f"no control {', '.join(unknown)}; the controls are {', '.join(CONTROLS)}")
    finished = load_finished(path)
    wanted = [name for name in CONTROLS if name in (only or CONTROLS)]
    folder = finished.run.path / FOLDER
    with opened(finished, folder, console) as bench:
        expert_config = replace(finished.config, model_name=str(expert))
        digest = ""
        if "expert" in wanted:
            digest = model_digest(load_model_and_tokenizer(expert_config)[0])
        seconds = round(finished.training_s, 3)
        # name -> the settings that it depends on, and how it is measured
        controls: dict[str, tuple[dict[str, Any], Callable[[Run], Result]]] = {
            "expert": ({"model": digest}, lambda own: expert_control(bench, own, expert)),
            "sft": (
                {"rates": list(rates), "seconds": seconds},
                lambda own: sft.control(bench, own, rates),
            ),
            "best_of_8": ({"draws": votes.DRAWS}, lambda own: votes.control(bench, own)),
            "shuffled": ({"steps": finished.steps}, lambda own: shuffled.control(bench, own)),
        }
        results = {}
        for name in wanted:
            settings, make = controls[name]
            of = {"digests": finished.digests, "settings": settings}
            results[name] = kept(folder, name, of, make)
    for name in CONTROLS:
        if name not in wanted and (result := read_kept(folder, name, finished.digests)):
            results[name] = result
    return assemble(finished, results)


def expert_control(bench: Bench, folder: Run, expert: Path) -> Result:
    """Measure the base model before its noisy stage, without training."""
    config = replace(bench.connection.config, model_name=str(expert))
    modes = measure_both(bench, folder, "expert", *load_model_and_tokenizer(config))
    return Result({"expert": modes}, 0.0, {"model": str(expert)})


def assemble(finished: Finished, results: Mapping[str, Result]) -> Controls:
    """Return the table's lines in order: chance, the start, the controls, the run."""
    lines = [Line(phase, measured(finished.run, phase)) for phase in ("random", "before")]
    for name in ("best_of_8", "expert", "shuffled", "sft"):
        if name in results:
            seconds = results[name].seconds or None
            lines += [Line(key, modes, seconds) for key, modes in results[name].policies.items()]
    lines.append(Line("grpo", measured(finished.run, "after"), finished.training_s))
    return Controls(finished, lines, {name: result.notes for name, result in results.items()})
