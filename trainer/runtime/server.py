"""The environment server that a training run starts for itself and restarts if it dies."""

import ctypes
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from shared.server_process import ServerProcess

STOP_TIMEOUT_S = 10.0  # between SIGTERM and SIGKILL
WATCH_S = 0.5  # seconds between two checks whether the server still runs
# a server that ends more often has a cause that will not go away
MAX_RESTARTS = 3
log = logging.getLogger(__name__)
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the child runs before exec so that, on Linux, it ends with a killed trainer."""
    if not sys.platform.startswith("linux"):
        return None
    # looked up here: a child between fork and exec must not load anything
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class SupervisedServer(ServerProcess):
    """A context manager: the server answers at `url` inside the block and is gone afterwards. One
    that ends by itself is started again at the same URL, up to `MAX_RESTARTS` times."""

    def __init__(self, data_dir: Path, log_path: Path, *arguments: str, **options: Any) -> None:
        super().__init__(data_dir, log_path, *arguments, preexec_fn=_die_with_parent(), **options)
        self.restarts = 0
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        self._watcher = threading.Thread(target=self._watch, name="server-watcher", daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        return super().stop(number, timeout_s)

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_S):
            if (died := self.died()) is None:
                continue
            if self.restarts == MAX_RESTARTS:
                log.error("given up after %d restarts: %s", self.restarts, died)
                return
            self.restarts += 1
            log.warning("restart %d: %s", self.restarts, died)
            self.send_signal(signal.SIGKILL, workers=True)  # workers that the server may have left
            try:
                self.start()
            except OSError as error:  # memory or disk ran out; the next round tries again
                log.warning("restart %d failed: %s", self.restarts, error)
