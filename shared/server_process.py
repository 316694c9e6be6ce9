"""An environment server as a child process, as the trainer, the benchmarks and the tests start it.

Nothing of the server is imported: the process is `python -m env_server`, and the line `SQLEnv
serves URL` in its log says where it listens.
"""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import httpx

from shared.errors import ServerStartError
from shared.shipped import INSTALLED

# importing and auditing the data takes seconds; a busy machine, tens of seconds
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0  # between the signal and SIGKILL
POLL_S = 0.05
LOG_TAIL_LINES = 15
ENV_PREFIX = "SQLENV_"
COMMAND = (sys.executable, "-m", "env_server")
_ANNOUNCEMENT = re.compile(r"SQLEnv serves (http://[^\s\"]+)")


def child_environment() -> dict[str, str]:
    """Return the environment variables of a child process that runs a module of this project,
    installed or not, and never modules of the same names in the working directory."""
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    if not INSTALLED.name.endswith("-packages"):
        path = [str(INSTALLED), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment


class ServerProcess:
    """One environment server in a session of its own, so that signals reach its SQL workers too.

    It can be started again, and keeps its port. `wait_ready` sets `url` and `port`.
    """

    def __init__(
        self,
        data_dir: Path,
        log_path: Path,
        *options: str,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        command: Sequence[str] = COMMAND,
        preexec_fn: Callable[[], None] | None = None,
    ) -> None:
        """`options` follow on the command line; `port` 0 lets the server choose one.

        `settings` become SQLENV_<NAME> and replace those of this process's environment, which are
        inherited if it is None. `preexec_fn` runs in the child, as `subprocess.Popen` documents.
        """
        self.data_dir, self.log_path, self.port, self.url = data_dir, log_path, port, ""
        self._command, self._options, self._preexec_fn = [*command], options, preexec_fn
        self._environment = child_environment()
        if settings is not None:
            self._environment = {
                name: value
                for name, value in self._environment.items()
                if not name.startswith(ENV_PREFIX)
            } | {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # bytes of the log that earlier starts wrote

    @property
    def pid(self) -> int | None:
        """The server's process id, or None before `start` and after `stop`."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process without waiting for it; its output is appended to the log."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        address = ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.data_dir)]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._command, *address, *self._options],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._preexec_fn,
            )

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until `/ready` is 200; `ServerStartError`, with the end of the log, if it does not
        get there."""
        deadline = time.monotonic() + timeout_s
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if died := self.died():
                    raise ServerStartError(died)
                with self.log_path.open("rb") as log:
                    log.seek(self._log_start)
                    written = log.read().decode(errors="replace")
                if match := _ANNOUNCEMENT.search(written):
                    self.url, self.port = match[1], int(match[1].rpartition(":")[2])
                    with contextlib.suppress(httpx.HTTPError):
                        if client.get(f"{self.url}/ready").status_code == 200:
                            return
                time.sleep(POLL_S)
        raise ServerStartError(self._with_log(f"was not ready within {timeout_s:.0f} s"))

    def send_signal(self, number: int, *, workers: bool = False) -> None:
        """Send a signal to the server and, with `workers`, to its SQL workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if workers else os.kill)(self._process.pid, number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the server to end and return its exit code, or raise `TimeoutExpired`."""
        assert self._process is not None, "the server was not started"
        return self._process.wait(timeout_s)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """End the server and its workers, and return its exit code, if it was running. One that
        outlives `timeout_s` is killed."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.send_signal(signal.SIGKILL, workers=True)
        status = self._process.wait()
        self._process = None
        return status

    def died(self) -> str | None:
        """Return an error message if the server ended by itself, else None."""
        status = self._process.poll() if self._process else None
        return None if status is None else self._with_log(f"ended with exit code {status}")

    def _with_log(self, problem: str) -> str:
        end = "\n".join(self.log().splitlines()[-LOG_TAIL_LINES:])
        return f"the environment server {problem}; the end of {self.log_path}:\n{end}"

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def cpu_s(self) -> float:
        """Return the CPU-seconds of the server and its workers since the last start, or NaN."""
        return math.nan if self.pid is None else session_cpu_s(self.pid)


@contextlib.contextmanager
def running_server(
    data_dir: Path,
    *options: str,
    port: int = 0,
    command: Sequence[str] = COMMAND,
    **settings: object,
) -> Iterator[ServerProcess]:
    """Run a server, with the arguments of `ServerProcess`, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="sqlenv-server-") as scratch:
        log = Path(scratch, "server.log")
        server = ServerProcess(
            data_dir, log, *options, port=port, settings=settings, command=command
        )
        try:
            server.start()
            server.wait_ready()
            yield server
        finally:
            server.stop()


def session_cpu_s(session: int) -> float:
    """Return the CPU-seconds of a session's processes and their children; NaN without /proc."""
    ticks = []
    for stat in Path("/proc").glob("[0-9]*/stat"):  # none on a system without /proc
        with contextlib.suppress(OSError):  # the process ended in between
            # proc(5): what follows the second field, a name in brackets that may hold anything
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks.append(sum(map(int, fields[11:15])))  # utime, stime, cutime, cstime
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else math.nan
