"""One learning curve of runs that followed one another, with evaluations of their start and end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning.bench import Finished
from trainer.errors import RunError
from trainer.evaluation.records import EvaluationFolder
from trainer.run.folder import metrics_rows, read_json
from trainer.run.plots import headline, learning_curve


def joined_curve(
    runs: Sequence[Finished], before: Sequence[Path], after: Sequence[Path], model: str
) -> bytes:
    """Return a PNG of the training episodes of `runs`, each started from the previous one's model.

    `before` and `after` are folders of `python -m trainer evaluate`, one per mode. The title names
    the seed of the first run. Raises `RunError` if an evaluation is unfinished or of other data or
    another number of questions than the rest, if a mode comes twice, or if no training step was
    logged.
    """
    rows = joined_rows(runs)
    check_same_questions([*before, *after])
    summaries = {"before": measurements(before), "after": measurements(after)}
    title = headline(model, runs[0].config.seed, summaries)
    return learning_curve(rows, summaries, title=title, steps=rows[-1]["step"])


def joined_rows(runs: Sequence[Finished]) -> list[dict[str, Any]]:
    """Return success and reward of every training step, numbered through all runs."""
    rows, done = [], 0
    for one in runs:
        rows += [
            {"step": done + row["step"], "success": row["success"], "reward": row["reward"]}
            for row in metrics_rows(one.run.metrics)
            if "success" in row
        ]
        done += one.steps
    if not rows:
        raise RunError("these runs have logged no training step")
    return rows


def measurements(evaluations: Sequence[Path]) -> dict[str, Any]:
    """Return the evaluations by mode, in the form of summary.json."""
    found = {}
    for folder in evaluations:
        result = read_result(folder)
        overall, mode = result["success"]["overall"], result["mode"]
        if mode in found:
            raise RunError(f"{folder} is a second {mode} evaluation: name one per mode")
        found[mode] = {"overall": overall["success"], "mean_reward": overall["mean_reward"]}
    return found


def check_same_questions(evaluations: Sequence[Path]) -> None:
    """Raise `RunError` unless all evaluations are of the same data and number of questions."""
    measured = {(r["digests"]["data"], r["questions"]) for r in map(read_result, evaluations)}
    if len(measured) > 1:
        names = ", ".join(map(str, evaluations))
        raise RunError(f"these evaluations are of different questions: {names}")


def read_result(folder: Path) -> Any:
    """Return the evaluation.json of a folder of `python -m trainer evaluate`."""
    path = EvaluationFolder(folder).result
    if not path.is_file():
        raise RunError(f"{folder} holds no finished evaluation: repeat its command")
    return read_json(path)
