"""Recompute a run's metrics and summary from its episodes, and yield the differences."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared import run_stats
from shared.dataset import OPEN
from shared.run_files import EpisodeLine, RunSummary
from shared.run_stats import PHASES, counts, mean, measurement, rates, success_rate

LAYERS = ("correctness", "progress", "operational")  # of the reward, in the order of their weights
# float32 means
LOGGED = ("reward", *(f"reward_{layer}" for layer in LAYERS))
LOGGED_TOLERANCE = 1e-5
MEAN_TOLERANCE = 1e-12  # relative: older runs hold sums whose last digit is Python's version's
UNCHECKED = "wall_s"  # of a measurement

Row = tuple[int, Mapping[str, Any]]  # with its line number
Differences = Iterator[tuple[int, str]]  # (line number, what differs)
Episodes = Sequence[EpisodeLine]
Values = Mapping[str, object]


def metrics_differences(
    rows: Iterable[Row], episodes: Episodes, finished: bool, weights: Sequence[float]
) -> Differences:
    """Yield where metrics.jsonl differs from the episodes; `weights` are those of `LAYERS`.

    A row with `episodes` covers the training episodes since the row before it, one with `eval_n` is
    a point of the eval curve: before and after training, of the questions that other points ask.
    """
    train = [episode for episode in episodes if episode.phase == "train"]
    asked = {episode.question_id for episode in episodes if episode.phase == "eval"}
    last = max((episode.step for episode in train), default=0)
    logged = 0
    for number, row in rows:
        step = row.get("step")
        if not isinstance(step, int):
            yield number, f"its step is {step!r}"
            continue
        if "episodes" in row:
            played = [one for one in train if logged < one.step <= step]
            recomputed = training_row(played, weights)
            if "reward_progress" not in row:  # an older run
                recomputed = {key: one for key, one in recomputed.items() if key not in LOGGED[1:]}
            logged = step
        elif "eval_n" in row:
            recomputed = eval_row(_of_point(episodes, step, last, asked))
        else:
            continue
        yield from ((number, text) for text in _differences(row, recomputed))
    if finished and logged < last:
        yield 0, f"no row covers the training episodes after step {logged}"


def training_row(episodes: Episodes, weights: Sequence[float]) -> dict[str, Any]:
    row = run_stats.training_row(episodes)
    if episodes and not row["episodes_lost"]:
        for layer, weight in zip(LAYERS, weights, strict=True):
            row[f"reward_{layer}"] = weight * (mean(getattr(one, layer) for one in episodes) or 0.0)
        row["reward"] = sum(row[f"reward_{layer}"] for layer in LAYERS)
    return row


def eval_row(episodes: Episodes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for mode, of_mode in _by("mode", episodes).items():
        row |= {"eval_n": len(of_mode), **run_stats.eval_row(mode, of_mode)}
    return row


def summary_differences(summary: RunSummary, episodes: Episodes) -> Iterator[str]:
    """Yield where summary.json differs from the episodes: rates, intervals, means and counts."""
    by_phase = _by("phase", episodes)
    measured = {
        phase: {mode: measurement(played) for mode, played in _by("mode", by_phase[phase]).items()}
        for phase in PHASES
        if phase in by_phase
    }
    recomputed: dict[str, Any] = {
        **{f"eval_success_{phase}": rates(measured.get(phase, {})) for phase in PHASES},
        **counts(episodes),
        "by_phase": {phase: counts(played) for phase, played in by_phase.items()},
        "evaluations": measured,
    }
    wanted = _flat(recomputed)
    written = _flat({key: value for key, value in summary.items() if key in recomputed})
    for key in written:
        if key not in wanted and not key.endswith(UNCHECKED):
            yield f"{key}: no episode gives this key"
    if "cost" in summary:
        wanted["cost.train_episodes"] = len(by_phase.get("train", ()))
        written |= _flat(summary["cost"], "cost")
    yield from _differences(written, wanted)


def evaluation_differences(result: Mapping[str, Any], episodes: Episodes) -> Iterator[str]:
    """Yield where the rates of evaluation.json differ from the episodes; of open questions, it has
    none."""
    try:
        samples, written = int(result["samples"]), _flat(result["success"])
        judged = result["split"] != OPEN
    except (KeyError, TypeError, ValueError) as error:
        yield f"samples, split or success is missing or damaged: {error!r}"
        return
    known = [one for one in episodes if one.finished and one.sample < samples]
    groups = {"overall": known, **_by("part", known)}
    groups |= {f"by_difficulty.{name}": one for name, one in _by("difficulty", known).items()}
    for name, group in groups.items() if judged else ():
        tries = _by("question_id", group).values()
        shares = [sum(one.correct for one in played) / len(played) for played in tries]
        rate = success_rate(math.fsum(shares), len(shares))
        yield from _differences(written, _flat(rate, f"{name}.success"))


def _by(name: str, episodes: Episodes) -> dict[str, list[EpisodeLine]]:
    groups: dict[str, list[EpisodeLine]] = {}
    for episode in episodes:
        groups.setdefault(getattr(episode, name), []).append(episode)
    return groups


def _of_point(episodes: Episodes, step: int, last: int, asked: set[str]) -> list[EpisodeLine]:
    """Return the episodes of a point of the eval curve; none if they can't be determined."""
    if small := [one for one in episodes if (one.phase, one.step) == ("eval", step)]:
        return small
    phase = "before" if step == 0 else "after" if step == last else ""
    return [one for one in episodes if one.phase == phase and one.question_id in asked]


def _flat(value: object, path: str = "") -> dict[str, object]:
    """Return the values of nested objects by their dotted paths."""
    if not isinstance(value, Mapping):
        return {path: value}
    found: dict[str, object] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{path}.{key}" if path else key)
    return found


def _differences(written: Values, recomputed: Values) -> Iterator[str]:
    for key, value in recomputed.items():
        if key not in written:
            yield f"{key} is missing; recomputed from the episodes: {value!r}"
        elif not _same(key, written[key], value):
            yield f"{key} is {written[key]!r}; recomputed from the episodes: {value!r}"


def _same(key: str, written: object, recomputed: object) -> bool:
    if isinstance(written, float) and isinstance(recomputed, float):
        tolerance = LOGGED_TOLERANCE if key in LOGGED else MEAN_TOLERANCE
        return math.isclose(written, recomputed, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(written, list) and isinstance(recomputed, list):
        pairs = zip(written, recomputed, strict=False)
        return len(written) == len(recomputed) and all(_same(key, *pair) for pair in pairs)
    return written == recomputed
