"""The controls of one run, each stored as JSON in its folder, and the lines of their table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.learning import imitation, sft, shuffled, votes
from benchmarks.learning.bench import (
    Finished,
    Modes,
    Result,
    kept,
    load_finished,
    measured,
    opened,
    read_kept,
)
from trainer.errors import RunError
from trainer.report.tables import CONTROLS
from trainer.run.folder import Run

FOLDER = "controls"  # of the run, for the results


@dataclass(frozen=True)
class Line:
    """One policy of the table; `seconds` are CPU-seconds of training or sampling, if any."""

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
    path: Path, only: Sequence[str] = (), *, console: Console, rates: Sequence[float]
) -> Controls:
    """Measure the controls that have no stored result; of those not in `only`, show stored ones.

    A stored result is of the same run and the same `rates`. Calls for different controls may run at
    once. Raises `RunError` if the run, its data, its model or the server have changed since.
    """
    if unknown := sorted(set(only) - set(CONTROLS)):
        raise RunError(f"no control {', '.join(unknown)}; the controls are {', '.join(CONTROLS)}")
    finished = load_finished(path)
    folder = finished.run.path / FOLDER
    budget = {"rates": list(rates), "seconds": round(finished.training_cpu_s, 3)}
    results = {}
    with opened(finished, folder, console) as bench:
        # name -> the settings that it depends on, and how it is measured
        controls: dict[str, tuple[dict[str, Any], Callable[[Run], Result]]] = {
            "imitation": (budget, lambda own: imitation.control(bench, own, rates)),
            "sft": (budget, lambda own: sft.control(bench, own, rates)),
            "best_of_8": ({"draws": votes.DRAWS}, lambda own: votes.control(bench, own)),
            "shuffled": ({"steps": finished.steps}, lambda own: shuffled.control(bench, own)),
        }
        for name in CONTROLS:
            settings, make = controls[name]
            of = {"digests": finished.digests, "settings": settings}
            if name in (only or CONTROLS):
                results[name] = kept(folder, name, of, make)
            elif (stored := read_kept(folder, name, of)) is not None:
                results[name] = stored
    return assemble(finished, results)


def assemble(finished: Finished, results: Mapping[str, Result]) -> Controls:
    """Return the table's lines in order: chance, the start, the controls, the run."""
    lines = [Line(phase, measured(finished.run, phase)) for phase in ("random", "before")]
    for name in ("best_of_8", "imitation", "shuffled", "sft"):
        if name in results:
            seconds = results[name].seconds
            lines += [Line(key, modes, seconds) for key, modes in results[name].policies.items()]
    lines.append(Line("grpo", measured(finished.run, "after"), finished.training_cpu_s))
    return Controls(finished, lines, {name: result.notes for name, result in results.items()})
