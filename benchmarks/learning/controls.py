"""The controls of one run, in order, each kept as JSON in the run's folder; and the rows of their
table."""

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
    read_kept,
)
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult, PromptRow
from trainer.evaluation.inputs import check_resumed_data, load_inputs
from trainer.evaluation.measure import connected
from trainer.run.folder import Run
from trainer.run.summary import model_digest
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupts
from trainer.runtime.models import load_model_and_tokenizer

CONTROLS = ("expert", "sft", "best_of_8", "shuffled")
FOLDER = "controls"  # of the run, where results are kept


@dataclass(frozen=True)
class Line:
    """One policy of the table. `seconds`: of training, or of further tries; None where there was
    neither."""

    key: str
    modes: Modes
    seconds: float | None = None


@dataclass(frozen=True)
class Controls:
    """A run with its controls: the lines of the table and what each control noted."""

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
    """Measure the controls that aren't kept yet. `only` names some: the others are shown where they
    are kept.

    Raises `RunError` where the run, its data, its model or the server are no longer what it was
    measured with.
    """
    unknown = sorted(set(only) - set(CONTROLS))
    if unknown:
        raise RunError(f"no control {', '.join(unknown)}; the controls are {', '.join(CONTROLS)}")
    found = load_finished(path)
    wanted = list(only or CONTROLS)
    with Interrupts() as interrupts:
        limit_threads()
        inputs = load_inputs(found.config, replace(found.options, eval_limit=0))
        inputs = replace(inputs, evaluation=same_questions(found, inputs.evaluation))
        check_resumed_data(found.run, inputs, found.config)
        if inputs.model_digest != found.digests["model"]:
            raise RunError(
                f"{found.config.model_name} is not the model that {found.run.id} began with: train it again"
            )
        expert_digest = ""
        if "expert" in wanted:
            expert_model, _ = load_model_and_tokenizer(expert_config(found.config, expert))
            expert_digest = model_digest(expert_model)
        folder = found.run.path / FOLDER
        with connected(found.config, (), inputs, folder / "server.log") as there:
            if there.metadata.digest != found.digests["server"]:
                raise RunError(
                    f"the environment server is not the one that {found.run.id} played with: train again"
                )
            bench = Bench(found, there, inputs, console, interrupts)
            settings: dict[str, tuple[dict[str, Any], Callable[[Run], Result]]] = {
                "expert": (
                    {"model": expert_digest},
                    lambda own: expert_control(bench, own, expert),
                ),
                "sft": (
                    {"rates": list(rates), "seconds": round(found.training_s, 3)},
                    lambda own: sft.control(bench, own, rates),
                ),
                "best_of_8": ({"draws": votes.DRAWS}, lambda own: votes.control(bench, own)),
                "shuffled": ({"steps": found.steps}, lambda own: shuffled.control(bench, own)),
            }
            results = {
                name: kept(
                    folder,
                    name,
                    {"digests": found.digests, "settings": settings[name][0]},
                    settings[name][1],
                )
                for name in CONTROLS
                if name in wanted
            }
    others = {
        name: read_kept(folder, name, found.digests) for name in CONTROLS if name not in wanted
    }
    return assemble(
        found, results | {name: result for name, result in others.items() if result is not None}
    )


def same_questions(found: Finished, prompts: Sequence[PromptRow]) -> list[PromptRow]:
    """The prompts that the run's `before` played, in its order, whichever way questions are chosen
    today."""
    played = EvalResult.read(found.run.evaluation("before", "greedy")).episodes
    by_id = {str(row["question_id"]): row for row in prompts}
    missing = [one.question_id for one in played if one.question_id not in by_id]
    if missing:
        raise RunError(
            f"{found.run.id} was measured on {missing[0]}, which is no eval question any more: train again"
        )
    return [by_id[one.question_id] for one in played]


def expert_config(config: GRPOConfig, expert: Path) -> GRPOConfig:
    return replace(config, model_name=str(expert))


def expert_control(bench: Bench, folder: Run, expert: Path) -> Result:
    """The base before it was made untidy, as it stands."""
    model, tokenizer = load_model_and_tokenizer(expert_config(bench.there.config, expert))
    modes = measure_both(bench, folder, "expert", model, tokenizer)
    return Result({"expert": modes}, 0.0, {"model": str(expert)})


def assemble(found: Finished, results: Mapping[str, Result]) -> Controls:
    """The table's lines in order: chance, the start, the controls, the run."""
    lines = [
        Line("random", measured(found.run, "random")),
        Line("before", measured(found.run, "before")),
    ]
    for name in ("best_of_8", "expert", "shuffled", "sft"):
        if name in results:
            result = results[name]
            lines += [
                Line(key, modes, result.seconds or None) for key, modes in result.policies.items()
            ]
    lines.append(Line("grpo", measured(found.run, "after"), found.training_s))
    return Controls(found, lines, {name: result.notes for name, result in results.items()})
