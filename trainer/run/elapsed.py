"""The elapsed time of a run, over all its sessions."""

import time
from collections.abc import Callable
from pathlib import Path

from trainer.run.folder import read_json, write_json


class ElapsedTime:
    """Wall seconds and server restarts of a run over all its sessions, saved in a file of the run.

    `own_restarts` returns the server restarts of this session.
    """

    def __init__(self, path: Path, own_restarts: Callable[[], int]) -> None:
        self._path, self._own_restarts = path, own_restarts
        earlier = read_json(path) if path.exists() else {"wall_s": 0.0, "sessions": 0}
        self._earlier_s, self.sessions = float(earlier["wall_s"]), int(earlier["sessions"]) + 1
        self._earlier_restarts = int(earlier.get("server_restarts", 0))
        self._started = time.monotonic()

    def total(self) -> float:
        """Return the wall seconds of all sessions."""
        return self._earlier_s + time.monotonic() - self._started

    def restarts(self) -> int:
        """Return the server restarts of all sessions."""
        return self._earlier_restarts + self._own_restarts()

    def save(self) -> None:
        total, restarts = round(self.total(), 3), self.restarts()
        saved = {"wall_s": total, "sessions": self.sessions, "server_restarts": restarts}
        write_json(self._path, saved)

    def __enter__(self) -> "ElapsedTime":
        return self

    def __exit__(self, *error: object) -> None:
        self.save()
