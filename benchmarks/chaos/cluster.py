"""Several real environment servers, each a process of its own behind a `Link`, and what can be done
to them."""

import contextlib
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.chaos.link import HOST, Link, State
from shared.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
POLL_S = 0.05


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that nothing listens on at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """`size` servers of the same data. Every fault is a method that returns once it is in force.

    `urls` lead through the links, `direct_urls` past them. `settings` become SQLENV_<NAME>.
    """

    def __init__(self, servers: list[ServerProcess], links: list[Link]) -> None:
        self._servers, self._links = servers, links
        self.urls = [f"http://{HOST}:{link.port}" for link in links]
        self.direct_urls = [server.url for server in servers]
        self.starts = len(servers)  # the first start of each server counts

    def __len__(self) -> int:
        return len(self._servers)

    def kill(self, index: int) -> None:
        """Kill a server with its SQL workers."""
        self._servers[index].send_signal(signal.SIGKILL, workers=True)
        self._servers[index].stop()

    def shut_down(self, index: int) -> None:
        """Send SIGTERM, as a rolling update does; requests in flight finish first."""
        self._servers[index].stop(timeout_s=60)

    def start(self, index: int) -> None:
        """Start a server that ended, on its old port, and wait until it is ready."""
        self._servers[index].start()
        self.starts += 1
        self._servers[index].wait_ready()

    def stop(self, index: int) -> None:
        """Freeze a server: it keeps its connections and memory, and answers nothing."""
        self._servers[index].send_signal(signal.SIGSTOP, workers=True)

    def wake(self, index: int) -> None:
        """Let a frozen server continue."""
        self._servers[index].send_signal(signal.SIGCONT, workers=True)

    def link(self, index: int, state: State) -> None:
        """Set the state of the connection to a server."""
        self._links[index].set(state)

    def lose_replies(self, index: int, count: int) -> None:
        """Drop the next `count` replies of a server."""
        self._links[index].lose_replies(count)


@contextlib.contextmanager
def running_cluster(data_dir: Path, size: int = 3, **settings: object) -> Iterator[Cluster]:
    """Run a cluster of ready servers until the block ends."""
    settings = {"sql_workers": 1} | settings
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlenv-cluster-")))
        servers = [
            ServerProcess(data_dir.resolve(), logs / f"{number}.log", settings=settings)
            for number in range(size)
        ]
        for server in servers:
            stack.callback(server.stop, signal.SIGKILL)
            server.start()
        for server in servers:
            server.wait_ready()
        links = [stack.enter_context(Link(server.port)) for server in servers]
        yield Cluster(servers, links)
