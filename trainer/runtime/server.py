"""The environment server as a child process of a training run: started, awaited, logged and
stopped.

The trainer never imports the server's code: it starts `python -m env_server` with its own
interpreter and speaks HTTP.
"""

import contextlib
import ctypes
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

import httpx

from trainer.errors import ServerStartError

# importing and auditing the data takes seconds; a busy machine, tens of seconds
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0  # from SIGTERM to SIGKILL
POLL_S = 0.1
START_ATTEMPTS = 3  # another process may take the free port before the server does
LOG_TAIL_LINES = 15
WATCH_S = 0.5  # between two looks at whether the server still runs
# of a server that ended by itself; one that ends more often has a cause that will not go away
MAX_RESTARTS = 3
HOST = "127.0.0.1"
log = logging.getLogger(__name__)
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def free_port() -> int:
    """A TCP port of this machine that nothing listens on at this moment."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _die_with_parent() -> Callable[[], None] | None:
    """Linux: what the child runs before exec, so that a killed trainer leaves no server behind.
    Elsewhere None."""
    if not sys.platform.startswith("linux"):
        return None
    # looked up here: a child between fork and exec must not load anything
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _session_ticks(stat: str, session: int) -> int:
    """Clock ticks of user and system time in one /proc/<pid>/stat, its awaited children's with
    them; 0 of others.

    Fields by proc(5): 6 is the session, 14 to 17 are utime, stime, cutime and cstime. The second, a
    name in brackets, may hold anything.
    """
    numbers = stat.rpartition(")")[2].split()  # from field 3 on
    return sum(map(int, numbers[11:15])) if int(numbers[3]) == session else 0


class ServerProcess:
    """A context manager: inside it an environment server answers at `url`; afterwards it is gone.

    A server that ends by itself is started again at the same URL, up to `MAX_RESTARTS` times:
    clients rebuild their episodes there by replay.

    `command` replaces `python -m env_server` (tests). Raises `ServerStartError`, with the end of
    the log, where the server ends early or isn't ready in `ready_timeout_s` seconds.
    """

    def __init__(
        self,
        data_dir: Path,
        log_path: Path,
        *,
        command: list[str] | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self.data_dir, self.log_path = data_dir, log_path
        self.ready_timeout_s = ready_timeout_s
        self._command = command or [sys.executable, "-m", "env_server"]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._port = 0
        self.url = ""
        self.restarts = 0

    def __enter__(self) -> "ServerProcess":
        try:
            for attempt in range(1, START_ATTEMPTS + 1):
                self._port = free_port()
                self.url = f"http://{HOST}:{self._port}"
                self._spawn()
                try:
                    self._await_ready()
                    self._watcher = threading.Thread(
                        target=self._watch, name="server-watcher", daemon=True
                    )
                    self._watcher.start()
                    return self
                except ServerStartError:
                    port_taken = "address already in use" in self.log_tail().lower()
                    if not port_taken or attempt == START_ATTEMPTS:
                        raise
            raise AssertionError("unreachable")
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def cpu_s(self) -> float:
        """CPU-seconds that the server and its workers used since they began; NaN where /proc
        doesn't tell.

        The session's id is the server's pid, so its workers are those of that session; the server's
        own entry counts the workers that ended before, too.
        """
        if self.pid is None:
            return math.nan
        ticks = 0
        try:
            for entry in os.scandir("/proc"):
                if entry.name.isdecimal():
                    with contextlib.suppress(OSError):  # it ended in between
                        ticks += _session_ticks(Path(entry.path, "stat").read_text(), self.pid)
        except OSError:
            return math.nan
        return ticks / os.sysconf("SC_CLK_TCK") if ticks else math.nan

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The end of the server's log."""
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def died(self) -> str | None:
        """What to say where the server is no longer running, else None."""
        code = self._process.poll() if self._process else None
        if code is None:
            return None
        return f"the environment server ended with exit code {code}; the end of {self.log_path}:\n{self.log_tail()}"

    def _spawn(self) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        if self._log is None:
            self._log = self.log_path.open("ab")
        # Its own session: Ctrl-C in a terminal reaches the trainer alone, which may need the server
        # to finish a step.
        self._process = subprocess.Popen(
            [
                *self._command,
                "--host",
                HOST,
                "--port",
                str(self._port),
                "--data",
                str(self.data_dir),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )

    def _watch(self) -> None:
        """Start the server again where it ends by itself."""
        while not self._stopping.wait(WATCH_S):
            if (died := self.died()) is None:
                continue
            if self.restarts == MAX_RESTARTS:
                log.error("given up after %d restarts: %s", self.restarts, died)
                return
            self.restarts += 1
            log.warning("restart %d: %s", self.restarts, died)
            self._kill_group()  # workers that the server may have left
            self._spawn()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self.ready_timeout_s
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if died := self.died():
                    raise ServerStartError(died)
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{self.url}/ready").status_code == 200:
                        return
                time.sleep(POLL_S)
        raise ServerStartError(
            f"the environment server at {self.url} was not ready within {self.ready_timeout_s:.0f} s; "
            f"the end of {self.log_path}:\n{self.log_tail()}"
        )

    def stop(self) -> None:
        """End the server and all its workers; safe to call twice."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_TIMEOUT_S)
            self._kill_group()
            self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _kill_group(self) -> None:
        """The session's id is the server's pid: what is left of it, its workers included, goes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
