"""Whether a run's learning curve and its result follow from its episodes: pure functions of what its files hold."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared.models import Outcome
from shared.run_files import RecordedEpisode

# What trl logs of a step's rewards, as means in float32: its key -> the episode's field.
LOGGED = {
    "reward": "reward",
    "rewards/reward_correctness/mean": "correctness",
    "rewards/reward_progress/mean": "progress",
    "rewards/reward_operational/mean": "operational",
}
LOGGED_TOLERANCE = 1e-5
MEAN_TOLERANCE = 1e-12  # relative: the last digit of a sum of floats depends on Python's version
PHASES = ("random", "before", "after")
PARTS = ("overall", "seen", "unseen")

Row = tuple[int, Mapping[str, Any]]  # (line number, object) of metrics.jsonl
Difference = tuple[int, str]  # (line number, what differs)


def metrics_differences(rows: Iterable[Row], episodes: Sequence[RecordedEpisode]) -> Iterator[Difference]:
    """Where metrics.jsonl says other than the episodes do.

    A row with `episodes` is of the training episodes since the row before it; one with `eval_n` is a point of the eval
    curve. The points before and after training are of those questions of the whole evaluations that the others ask.
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


def training_row(episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
    """What metrics.jsonl says of the training episodes of one log event."""
    finished = [one for one in episodes if not one.lost]
    row: dict[str, Any] = {
        "episodes": len(episodes),
        "episodes_lost": len(episodes) - len(finished),
        "success": _mean([one.outcome == Outcome.CORRECT for one in finished]),
        "steps_per_episode": _mean([one.steps for one in finished]),
        "parse_failures": sum(one.parse_failures for one in episodes),
        "env_errors": sum(one.env_errors for one in episodes),
    }
    if len(finished) == len(episodes):
        row |= {key: _mean([getattr(one, name) for one in episodes]) for key, name in LOGGED.items()}
    return row


def eval_row(episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
    """What metrics.jsonl says of one point of the eval curve."""
    row: dict[str, Any] = {}
    for mode in dict.fromkeys(one.mode for one in episodes):
        finished = [one for one in episodes if one.mode == mode and not one.lost]
        row["eval_n"] = sum(one.mode == mode for one in episodes)
        row[f"eval_{mode}_success"] = _mean([one.outcome == Outcome.CORRECT for one in finished])
        row[f"eval_{mode}_reward"] = _mean([one.reward for one in finished if one.reward is not None])
    return row


def summary_differences(summary: Mapping[str, Any], episodes: Sequence[RecordedEpisode]) -> Iterator[str]:
    """Where summary.json says other than the episodes do: success by phase, mode and part, and the counts."""
    for phase in PHASES:
        modes = summary.get(f"eval_success_{phase}")
        if not isinstance(modes, dict):
            yield f"eval_success_{phase} is {modes!r}"
            continue
        for mode, parts in modes.items():
            played = [one for one in episodes if (one.phase, one.mode) == (phase, mode) and not one.lost]
            for part in PARTS:
                of_part = [one.outcome == Outcome.CORRECT for one in played if part in ("overall", one.part)]
                found = {"rate": _mean(of_part), "n": len(of_part)}
                said = parts.get(part) if isinstance(parts, dict) else None
                yield from (
                    f"eval_success_{phase}.{mode}.{part}: {text}"
                    for text in _differences(said or {}, found, needed=True)
                )
    yield from _differences(summary, _counts(episodes), needed=True)


def _counts(episodes: Sequence[RecordedEpisode]) -> dict[str, int]:
    counts = Counter[str]()
    for one in episodes:
        counts["episodes_lost"] += one.lost
        counts["env_errors"] += one.env_errors
        counts["parse_failures"] += one.parse_failures
        counts["context_overflows"] += one.context_overflow
    return {"episodes": len(episodes), **counts}


def _of_point(episodes: Sequence[RecordedEpisode], step: int, last: int, asked: set[str]) -> list[RecordedEpisode]:
    """The episodes of an eval curve's point; none where they can't be told."""
    if small := [one for one in episodes if (one.phase, one.step) == ("eval", step)]:
        return small
    phase = "before" if step == 0 else "after" if step == last else ""
    return [one for one in episodes if one.phase == phase and one.question_id in asked]


def _differences(said: Mapping[str, Any], found: Mapping[str, Any], needed: bool = False) -> Iterator[str]:
    """`needed`: what is not said differs too."""
    for key, value in found.items():
        if key in said and not _same(key, said[key], value):
            yield f"{key} is {said[key]!r}, and {value!r} by the episodes"
        elif needed and key not in said:
            yield f"{key} is missing, and {value!r} by the episodes"


def _same(key: str, said: Any, found: Any) -> bool:
    if isinstance(said, float) and isinstance(found, float):
        tolerance = LOGGED_TOLERANCE if key in LOGGED else MEAN_TOLERANCE
        return math.isclose(said, found, rel_tol=tolerance, abs_tol=tolerance)
    return bool(said == found)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
