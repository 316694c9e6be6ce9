"""What training costs: seconds to a success rate, CPU-seconds per episode, the split of a step.

`Spent` adds up training steps only: no evaluation, no loading, no writing of checkpoints. It is
stored in the checkpoints, so a resumed run counts every step once, also one that was interrupted
and played again.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared.run_files import Cost, MetricsRow
from shared.run_stats import MODES
from trainer.run.folder import read_json, write_json

UNKNOWN = math.nan  # a sum that cannot be measured here; adding to it keeps it unknown
TARGETS = (0.5, 0.75)  # success rates whose time is reported


@dataclass(slots=True)
class Spent:
    """Seconds that training steps took so far; `UNKNOWN` if they could not be measured."""

    train_s: float = 0.0  # wall, whole steps: rollout and update
    rollout_s: float = 0.0  # wall, of train_s: playing the episodes
    generate_s: float = 0.0  # wall, of rollout_s: sampling
    env_wait_s: float = 0.0  # wall, of rollout_s: waiting for the servers
    cpu_s: float = 0.0  # CPU, all threads of all the trainer's processes
    server_cpu_s: float = 0.0  # CPU, the processes of the server that the run started

    def add(self, **seconds: float) -> None:
        """Add one step's seconds, by field name."""
        for name, value in seconds.items():
            setattr(self, name, getattr(self, name) + value)

    def as_dict(self) -> dict[str, float | None]:
        """Return the seconds by field name, None for unknown."""
        return {name: known(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, float | None]) -> "Spent":
        """Return what `as_dict` was made of."""
        return cls(**{name: UNKNOWN if value is None else value for name, value in saved.items()})


class ElapsedTime:
    """Wall seconds and server restarts of a run over all its sessions, saved in a file of the run.

    `own_restarts` returns the server restarts of this session. Leaving its block saves.
    """

    def __init__(self, path: Path, own_restarts: Callable[[], int]) -> None:
        self._path, self._own_restarts = path, own_restarts
        earlier = read_json(path) if path.exists() else {"wall_s": 0.0, "sessions": 0}
        self._earlier_s, self.sessions = float(earlier["wall_s"]), int(earlier["sessions"]) + 1
        self._earlier_restarts = int(earlier.get("server_restarts", 0))
        self._started = time.monotonic()

    def total(self) -> float:
        return self._earlier_s + time.monotonic() - self._started

    def restarts(self) -> int:
        return self._earlier_restarts + self._own_restarts()

    def save(self) -> None:
        total, restarts = round(self.total(), 3), self.restarts()
        saved = {"wall_s": total, "sessions": self.sessions, "server_restarts": restarts}
        write_json(self._path, saved)

    def __enter__(self) -> "ElapsedTime":
        return self

    def __exit__(self, *error: object) -> None:
        self.save()


def known(seconds: float, digits: int = 4) -> float | None:
    """Round; None for unknown."""
    return round(seconds, digits) if math.isfinite(seconds) else None


def seconds_to(rows: Iterable[Mapping[str, Any]], mode: str, target: float) -> float | None:
    """Return the seconds of training at the first point of the eval curve with success >= target.

    `rows` are those of metrics.jsonl. None if no point reached it, or if its time is unknown.
    """
    name = f"eval_{mode}_success"
    reached = [row for row in rows if "eval_n" in row and (row.get(name) or 0.0) >= target]
    first = min(reached, key=lambda row: int(row["step"]), default=None)
    return None if first is None else first.get("train_s")


def cost(
    rows: Iterable[MetricsRow], spent: Spent, *, steps: int, episodes: int, whole_s: float
) -> Cost:
    """Return the `cost` object of summary.json.

    `rows` are those of metrics.jsonl; `steps` and `episodes` were trained in the time of `spent`;
    `whole_s` is what the evaluations of the whole set took. `step` has mean seconds per step: the
    first value is the sum of the next four, and `evaluation_s`, the eval curve's, is on top.
    """
    rows = list(rows)
    curve_s = sum(row.get("eval_s") or 0.0 for row in rows)
    parts = {
        "train_s": spent.train_s,
        "generate_s": spent.generate_s,
        "env_wait_s": spent.env_wait_s,
        "other_rollout_s": spent.rollout_s - spent.generate_s - spent.env_wait_s,
        "update_s": spent.train_s - spent.rollout_s,
        "evaluation_s": curve_s,
    }
    return {
        "seconds_to": {
            mode: {f"{target:g}": seconds_to(rows, mode, target) for target in TARGETS}
            for mode in MODES
        },
        "train_s": known(spent.train_s),
        "train_episodes": episodes,
        "cpu_s": known(spent.cpu_s),
        "server_cpu_s": known(spent.server_cpu_s),
        "cpu_s_per_episode": _per(spent.cpu_s, episodes),
        "server_cpu_s_per_episode": _per(spent.server_cpu_s, episodes),
        "step": {name: _per(value, steps) for name, value in parts.items()},
        "curve_evaluation_s": known(curve_s),
        "whole_evaluation_s": known(whole_s),
    }


def _per(seconds: float, count: int) -> float | None:
    return known(seconds / count) if count else None
