"""Workers of peers, as child processes whose CPU time and memory can be read."""

import json
import selectors
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measuring import memory_mib
from benchmarks.peers.environments import NotMeasured, reason
from benchmarks.peers.worker import MODULE
from shared.server_process import child_environment, session_cpu_s

PATIENCE_S = 300.0  # for a reply, and for a start, which may import torch
SAMPLE_S = 0.1  # between two readings of memory


class Worker:
    """A worker in a session of its own, with the processes that it starts. Use `with`."""

    def __init__(
        self,
        python: Path,
        function: str,
        packages: Sequence[str],
        *arguments: str,
        log: Path,
        folder: Path | None = None,
    ) -> None:
        """Start it in `folder`. Raises `NotMeasured` if it does not answer."""
        self.peak_mib: float | None = None  # a number is raised to the memory while it works
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", MODULE, function, ",".join(packages), *arguments],
                env=child_environment(),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self.versions: dict[str, str] = self._reply(PATIENCE_S)
        except NotMeasured:
            self.kill()
            raise

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):  # it has ended
            self._process.communicate(timeout=10.0)
        self.kill()

    def kill(self) -> None:
        """Kill the worker and the processes that it started, whatever their sessions."""
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self._process.pid)
            for process in (*worker.children(recursive=True), worker):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        with suppress(ValueError):  # its pipes are closed
            self._process.communicate()

    def cpu_s(self) -> float:
        """Return the CPU-seconds of the worker and of the processes that it started."""
        return session_cpu_s(self._process.pid)

    def ask(self, request: Any, patience_s: float = PATIENCE_S) -> Any:
        """Return the reply to a request. Raises `NotMeasured` without one."""
        assert self._process.stdin is not None
        with suppress(OSError):  # `_reply` says why
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._reply(patience_s)

    def _reply(self, patience_s: float) -> Any:
        assert self._process.stdout is not None
        until = time.monotonic() + patience_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready: object = None
            while not ready:
                if time.monotonic() >= until:
                    raise NotMeasured(f"it did not answer within {patience_s:.0f} s")
                ready = selector.select(patience_s if self.peak_mib is None else SAMPLE_S)
                if self.peak_mib is not None:
                    with suppress(psutil.Error):  # it has ended
                        self.peak_mib = max(self.peak_mib, memory_mib(self._process.pid))
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise NotMeasured(f"it ended: {reason(self._log.read_text(errors='replace'))}")
