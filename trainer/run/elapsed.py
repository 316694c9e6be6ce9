"""How long a run has taken, over all its sessions."""

import time
from collections.abc import Callable
from pathlib import Path

from trainer.run.folder import read_json, write_json


class RunClock:
    """Wall seconds and server restarts of a run over all its sessions, kept in a file of the run.

    `own_restarts` tells those of this session.
    """

    def __init__(self, path: Path, own_restarts: Callable[[], int]) -> None:
        self._path, self._own_restarts = path, own_restarts
        earlier = read_json(path) if path.exists() else {"wall_s": 0.0, "sessions": 0}
        self._earlier_s, self.sessions = float(earlier["wall_s"]), int(earlier["sessions"]) + 1
        self._earlier_restarts = int(earlier.get("server_restarts", 0))
        self._began = time.monotonic()

    def total(self) -> float:
        return self._earlier_s + time.monotonic() - self._began

    def restarts(self) -> int:
        return self._earlier_restarts + self._own_restarts()

    def save(self) -> None:
        kept = {
            "wall_s": round(self.total(), 3),
            "sessions": self.sessions,
            "server_restarts": self.restarts(),
        }
        write_json(self._path, kept)

    def __enter__(self) -> "RunClock":
        return self

    def __exit__(self, *error: object) -> None:
        self.save()
