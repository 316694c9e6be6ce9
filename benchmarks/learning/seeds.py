"""Several runs that differ in their seed, side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning.bench import Finished
from benchmarks.learning.report import NO_NUMBER, compared, markdown_table, percent
from shared.run_stats import MODES
from trainer.errors import RunError
from trainer.run.console import number

PARTS = ("unseen", "seen")
SAME = ("data", "server", "model")  # digests that runs must share to differ in their seed alone


def check_comparable(runs: Sequence[Finished]) -> None:
    """`RunError` where runs began from other models or data, or repeat a seed."""
    seeds = [run.config.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise RunError(
            f"the runs have seeds {', '.join(map(str, seeds))}: name runs of different seeds"
        )
    for run in runs[1:]:
        for name in SAME:
            if run.digests.get(name) != runs[0].digests.get(name):
                raise RunError(
                    f"{run.run.id} and {runs[0].run.id} differ in their {name}: they do not compare"
                )
        if run.steps != runs[0].steps:
            raise RunError(
                f"{run.run.id} has {run.steps} steps, {runs[0].run.id} {runs[0].steps}: they do not compare"
            )


def rates(run: Finished, phase: str, mode: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.summary["evaluations"].get(phase, {}).get(mode, {})
    return found


def seed_line(run: Finished) -> dict[str, Any]:
    """A run's figures, as seeds.json has them."""
    cost = run.summary.get("cost") or {}
    return {
        "run": run.run.id,
        "seed": run.config.seed,
        "steps": run.steps,
        "training_s": round(run.training_s, 1),
        "wall_s": run.summary["wall_s"],
        "success": {
            part: {
                mode: {phase: rates(run, phase, mode).get(part) for phase in ("before", "after")}
                for mode in MODES
            }
            for part in PARTS
        },
        "seconds_to": cost.get("seconds_to"),
        "cost": cost or None,
        "digests": run.digests,
    }


def success_table(lines: Sequence[Mapping[str, Any]]) -> str:
    headings = ["seed", "databases", "mode", "n", "before", "after", "gain"]
    rows = []
    for line in lines:
        for part in PARTS:
            for mode in MODES:
                found = line["success"][part][mode]
                before, after = found["before"], found["after"]
                rows.append(
                    [
                        str(line["seed"]),
                        part,
                        mode,
                        str((after or {}).get("n", NO_NUMBER)),
                        percent(before),
                        percent(after),
                        compared(after, before) or NO_NUMBER,
                    ]
                )
    return markdown_table(headings, rows)


def cost_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Seconds: of the training alone to each target by mode, of training and of the whole run; CPU
    an episode."""
    targets = sorted(
        {
            target
            for line in lines
            for mode in (line["seconds_to"] or {}).values()
            for target in mode
        }
    )
    headings = [
        "seed",
        *(f"s to {100 * float(target):.0f} %, {mode}" for target in targets for mode in MODES),
        "training s",
        "whole run s",
        "CPU s an episode",
    ]
    rows = []
    for line in lines:
        reached, cost = line["seconds_to"] or {}, line["cost"] or {}
        both = [cost.get("cpu_s_per_episode"), cost.get("server_cpu_s_per_episode")]
        rows.append(
            [
                str(line["seed"]),
                *(
                    number(reached.get(mode, {}).get(target), ",.0f")
                    for target in targets
                    for mode in MODES
                ),
                f"{line['training_s']:,.0f}",
                f"{line['wall_s']:,.0f}",
                " + ".join(number(value, ".3f") for value in both),
            ]
        )
    return markdown_table(headings, rows)


def mean_gain(
    lines: Sequence[Mapping[str, Any]], part: str, mode: str
) -> tuple[float, float, float] | None:
    """Lowest, mean and highest gain in points over the runs; None where one lacks the measurement."""
    gains = []
    for line in lines:
        found = line["success"][part][mode]
        if any(not found[phase] or found[phase]["rate"] is None for phase in ("before", "after")):
            return None
        gains.append(100 * (found["after"]["rate"] - found["before"]["rate"]))
    return min(gains), sum(gains) / len(gains), max(gains)


def page(lines: Sequence[Mapping[str, Any]], command: str) -> str:
    """seeds.md."""
    said = []
    for part in PARTS:
        for mode in MODES:
            if (gain := mean_gain(lines, part, mode)) is not None:
                said.append(
                    f"- {part}, {mode}: {gain[1]:+.1f} points in the mean "
                    f"(lowest {gain[0]:+.1f}, highest {gain[2]:+.1f})"
                )
    runs = ", ".join(f"seed {line['seed']}: {line['run']}" for line in lines)
    return (
        "# The same training with other seeds\n\n"
        f"Runs of `make train SEED=...`, {lines[0]['steps']} steps each, from the same model on the same questions "
        f"({runs}). Success in % with 95 % Wilson intervals.\n\n"
        f"    {command}\n\n{success_table(lines)}\n" + "\n".join(said) + "\n\n"
        "![Eval curves of all seeds](seeds.png)\n\n"
        "Seconds of training, without evaluations, to the first point of the eval curve at a success rate; CPU-seconds "
        f"an episode are of the trainer + of the server.\n\n{cost_table(lines)}"
    )
