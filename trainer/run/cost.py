"""What training costs, by metrics.jsonl, whose rows have the time of training steps only: no
evaluation, no loading, no writing of checkpoints."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from trainer.run.folder import read_json, write_json

# seconds since the start of a run: wall, CPU of all the trainer's threads and processes, CPU of the
# server that the run started
SINCE_START = ("train_s", "cpu_s", "server_cpu_s")


def spent(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    found = dict.fromkeys(SINCE_START, 0.0)
    for row in rows:
        if "update_s" in row:
            found = {name: math.nan if row[name] is None else row[name] for name in SINCE_START}
    return found


class ElapsedTime(AbstractContextManager["ElapsedTime"]):
    """Wall seconds and server restarts of a run over all its sessions, saved in a file of the run.
    `own_restarts` returns those of this session; `measured` has the seconds of each measurement by
    its name. Leaving its block saves."""

    def __init__(self, path: Path, own_restarts: Callable[[], int]) -> None:
        self._path, self._own_restarts = path, own_restarts
        self._earlier: dict[str, Any] = {"wall_s": 0.0, "sessions": 0, "server_restarts": 0}
        self._earlier |= read_json(path) if path.exists() else {}
        self.measured: dict[str, float] = self._earlier.get("measured", {})
        self._started = time.monotonic()

    def totals(self) -> dict[str, Any]:
        earlier, seconds = self._earlier, time.monotonic() - self._started
        return {
            "wall_s": round(earlier["wall_s"] + seconds, 3),
            "sessions": earlier["sessions"] + 1,
            "server_restarts": earlier["server_restarts"] + self._own_restarts(),
        }

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to those of a measurement, also if it is interrupted."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.measured[name] = self.measured.get(name, 0.0) + time.monotonic() - started

    def save(self) -> None:
        write_json(self._path, {**self.totals(), "measured": self.measured})

    def __exit__(self, *error: object) -> None:
        self.save()


def known(seconds: float) -> float | None:
    return round(seconds, 4) if math.isfinite(seconds) else None


def cost(
    rows: Iterable[Mapping[str, Any]], *, steps: int, episodes: int, whole_s: float
) -> dict[str, Any]:
    """Return the `cost` object of summary.json. `rows` are those of metrics.jsonl, in which `steps`
    and `episodes` were trained; `whole_s` is what the evaluations of the whole set took."""
    rows = list(rows)
    total = spent(rows)
    parts = {
        name: math.fsum(row.get(name) or 0.0 for row in rows)
        for name in ("generate_s", "env_wait_s", "rollout_s", "update_s", "eval_s")
    }
    step = {
        "train_s": total["train_s"],
        "generate_s": parts["generate_s"],
        "env_wait_s": parts["env_wait_s"],
        "other_rollout_s": parts["rollout_s"] - parts["generate_s"] - parts["env_wait_s"],
        "update_s": parts["update_s"],
        "evaluation_s": parts["eval_s"],
    }
    return {
        "train_s": known(total["train_s"]),
        "train_episodes": episodes,
        "cpu_s": known(total["cpu_s"]),
        "server_cpu_s": known(total["server_cpu_s"]),
        "cpu_s_per_episode": _per(total["cpu_s"], episodes),
        "server_cpu_s_per_episode": _per(total["server_cpu_s"], episodes),
        "step": {name: _per(value, steps) for name, value in step.items()},
        "curve_evaluation_s": known(parts["eval_s"]),
        "whole_evaluation_s": known(whole_s),
    }


def _per(seconds: float, count: int) -> float | None:
    return known(seconds / count) if count else None
