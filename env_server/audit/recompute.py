"""Whether a run's learning curve and its result follow from its episodes: pure functions of what
its files hold."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared import run_stats
from shared.run_files import EpisodeLine
from shared.run_stats import PHASES, counts, mean, measurement, rates

# What trl logs of a step's rewards, as means in float32: its key -> the episode's field.
LOGGED = {
    "reward": "reward",
    "rewards/reward_correctness/mean": "correctness",
    "rewards/reward_progress/mean": "progress",
    "rewards/reward_operational/mean": "operational",
}
LOGGED_TOLERANCE = 1e-5
MEAN_TOLERANCE = 1e-12  # relative: the last digit of a sum of floats depends on Python's version
UNCHECKED = ("wall_s",)  # of a measurement
# where a run's files don't have these, there were none
COUNTED = ("episodes_truncated", "truncated")

Row = tuple[int, Mapping[str, Any]]  # (line number, object) of metrics.jsonl
Difference = tuple[int, str]  # (line number, what differs)


def metrics_differences(
    rows: Iterable[Row], episodes: Sequence[EpisodeLine], finished: bool
) -> Iterator[Difference]:
    """Where metrics.jsonl says other than the episodes do. `finished`: every training episode must
    be in a row.

    A row with `episodes` is of the training episodes since the row before it; one with `eval_n` is
    a point of the eval curve. The points before and after training are of those questions of the
    whole evaluations that the others ask.
    """
    train = [one for one in episodes if one.phase == "train"]
    asked = {one.question_id for one in episodes if one.phase == "eval"}
    last = max((one.step for one in train), default=0)
    logged = 0
    for number, row in rows:
        step = row.get("step")
        if not isinstance(step, int):
            yield number, f"its step is {step!r}"
            continue
        if "episodes" in row:
            found = training_row([one for one in train if logged < one.step <= step])
            logged = step
        elif "eval_n" in row:
            found = eval_row(_of_point(episodes, step, last, asked))
        else:
            continue
        yield from ((number, text) for text in _differences(row, found))
    if finished and logged < last:
        yield 0, f"no row has the training episodes after step {logged}"


def training_row(episodes: Sequence[EpisodeLine]) -> dict[str, Any]:
    """Return what metrics.jsonl reports of the training episodes of one log event."""
    row: dict[str, Any] = {**run_stats.training_row(episodes)}
    # rows of older runs have neither
    if any(one.context_truncations is None for one in episodes):
        del row["context_overflows"], row["episodes_truncated"]
    if not row["episodes_lost"]:
        row |= {key: mean(getattr(one, name) for one in episodes) for key, name in LOGGED.items()}
    return row


def eval_row(episodes: Sequence[EpisodeLine]) -> dict[str, Any]:
    """Return what metrics.jsonl reports of one point of the eval curve."""
    row: dict[str, Any] = {}
    for mode in _modes(episodes):
        of_mode = [one for one in episodes if one.mode == mode]
        row |= {"eval_n": len(of_mode), **run_stats.eval_row(mode, of_mode)}
    return row


def summary_differences(
    summary: Mapping[str, Any], episodes: Sequence[EpisodeLine]
) -> Iterator[str]:
    """Where summary.json says other than the episodes do: rates, intervals, means and counts, but
    for `UNCHECKED`."""
    by_phase: dict[str, list[EpisodeLine]] = {}
    for one in episodes:
        by_phase.setdefault(one.phase, []).append(one)
    measured = {
        phase: {
            mode: measurement([one for one in played if one.mode == mode])
            for mode in _modes(played)
        }
        for phase in PHASES
        if (played := by_phase.get(phase))
    }
    found: dict[str, Any] = {
        **{f"eval_success_{phase}": rates(measured.get(phase, {})) for phase in PHASES},
        **counts(episodes),
        "by_phase": {phase: counts(played) for phase, played in by_phase.items()},
        "evaluations": measured,
    }
    yield from _nested({key: summary[key] for key in found if key in summary}, found)
    cost, trained = summary.get("cost"), len(by_phase.get("train", ()))
    if isinstance(cost, dict) and cost.get("train_episodes") != trained:
        yield f"cost.train_episodes is {cost.get('train_episodes')!r}, and {trained} by the episodes"


def _modes(episodes: Sequence[EpisodeLine]) -> list[str]:
    return list(dict.fromkeys(one.mode for one in episodes))


def _of_point(
    episodes: Sequence[EpisodeLine], step: int, last: int, asked: set[str]
) -> list[EpisodeLine]:
    """The episodes of an eval curve's point; none where they can't be told."""
    if small := [one for one in episodes if (one.phase, one.step) == ("eval", step)]:
        return small
    phase = "before" if step == 0 else "after" if step == last else ""
    return [one for one in episodes if one.phase == phase and one.question_id in asked]


def _differences(said: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        if key not in said:
            if key in COUNTED and not value:
                continue
            yield f"{key} is missing, and {value!r} by the episodes"
        elif not _same(key, said[key], value):
            yield f"{key} is {said[key]!r}, and {value!r} by the episodes"


def _nested(said: Any, found: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """`_differences` at every depth. What is said and not found differs too, but for `UNCHECKED`."""
    if not isinstance(said, dict):
        yield f"{path.removesuffix('.')} is {said!r}"
        return
    values = {key: value for key, value in found.items() if not isinstance(value, dict)}
    yield from (path + text for text in _differences(said, values))
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _nested(said.get(key), value, f"{path}{key}.")
    yield from (
        f"{path}{key} is of no episode" for key in said if key not in found and key not in UNCHECKED
    )


def _same(key: str, said: Any, found: Any) -> bool:
    if isinstance(said, float) and isinstance(found, float):
        tolerance = LOGGED_TOLERANCE if key in LOGGED else MEAN_TOLERANCE
        return math.isclose(said, found, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(said, list) and isinstance(found, list):
        return len(said) == len(found) and all(
            _same(key, one, other) for one, other in zip(said, found, strict=True)
        )
    return bool(said == found)
