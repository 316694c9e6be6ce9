"""Several real environment servers, each a process of its own behind a `Link`, and what can be done
to them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.chaos.link import HOST, Link, State

ROOT = Path(__file__).parents[2]
READY_TIMEOUT_S = 120.0
POLL_S = 0.05
LOG_CHARS = 2000  # of a server's log, in an error


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that nothing listens on at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


class Server:
    """One server process, on the same port through all its lives."""

    def __init__(
        self, port: int, data_dir: Path, log_path: Path, settings: dict[str, object]
    ) -> None:
        self.port = port
        self.url = f"http://{HOST}:{self.port}"
        self.log_path = log_path
        self.starts = 0
        self._command = [
            sys.executable,
            "-m",
            "env_server",
            "--port",
            str(self.port),
            "--data",
            str(data_dir),
        ]
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("SQLENV_")
        }
        self._environment = (
            inherited
            | {"PYTHONPATH": str(ROOT)}
            | {f"SQLENV_{name.upper()}": str(value) for name, value in settings.items()}
        )
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it, without waiting. Its session is its own, so that a signal reaches its workers
        too."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.starts += 1

    def await_ready(self) -> None:
        """Returns once /ready is 200; `RuntimeError` with its log where it ends or takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if self._process is not None and self._process.poll() is not None:
                    raise RuntimeError(
                        f"the server at {self.url} ended with {self._process.returncode}:\n{self._log()}"
                    )
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{self.url}/ready").status_code == 200:
                        return
                time.sleep(POLL_S)
        raise RuntimeError(f"{self.url} is not ready after {READY_TIMEOUT_S:g} s:\n{self._log()}")

    def signal(self, number: int, *, workers: bool = True) -> None:
        """To the server and, with `workers`, those that run its SQL."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            if workers:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    def end(self, number: int, *, workers: bool = True) -> None:
        """Signal it and wait until it is gone."""
        if self._process is not None:
            self.signal(number, workers=workers)
            self._process.wait(timeout=60)
            self.signal(signal.SIGKILL)  # workers that it may have left

    def _log(self) -> str:
        return self.log_path.read_text(errors="replace")[-LOG_CHARS:]


class Cluster:
    """`size` servers of the same data. Every fault is a method that returns once it is in force.

    `urls` lead through the links, `direct_urls` past them. `settings` become SQLENV_<NAME>.
    """

    def __init__(self, servers: list[Server], links: list[Link]) -> None:
        self._servers, self._links = servers, links
        self.urls = [f"http://{HOST}:{link.port}" for link in links]
        self.direct_urls = [server.url for server in servers]

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def starts(self) -> int:
        """Of all servers, the first ones with them."""
        return sum(server.starts for server in self._servers)

    def kill(self, index: int) -> None:
        self._servers[index].end(signal.SIGKILL)

    def shut_down(self, index: int) -> None:
        """As a rolling update does: SIGTERM, and the server ends when its requests are answered."""
        self._servers[index].end(signal.SIGTERM, workers=False)

    def start(self, index: int) -> None:
        self._servers[index].launch()
        self._servers[index].await_ready()

    def stop(self, index: int) -> None:
        """SIGSTOP: it keeps its connections and its memory, and says nothing."""
        self._servers[index].signal(signal.SIGSTOP)

    def wake(self, index: int) -> None:
        self._servers[index].signal(signal.SIGCONT)

    def link(self, index: int, state: State) -> None:
        self._links[index].set(state)

    def lose_replies(self, index: int, count: int) -> None:
        self._links[index].lose_replies(count)


@contextlib.contextmanager
def running_cluster(data_dir: Path, size: int = 3, **settings: object) -> Iterator[Cluster]:
    """A cluster whose servers are ready; all of it is gone at the end."""
    settings = {"sql_workers": 1} | settings
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlenv-cluster-")))
        servers = [
            Server(port, data_dir.resolve(), logs / f"{port}.log", settings)
            for port in free_ports(size)
        ]
        for server in servers:
            server.launch()
            stack.callback(server.end, signal.SIGKILL)
        links = [stack.enter_context(Link(server.port)) for server in servers]
        for server in servers:
            server.await_ready()
        yield Cluster(servers, links)
