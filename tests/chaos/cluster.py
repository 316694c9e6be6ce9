"""Several real environment servers, each a child process behind a `Link`."""

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from shared.server_process import ServerProcess
from tests.chaos.link import HOST, Link

ROOT = Path(__file__).parents[2]
POLL_S = 0.05


def free_ports(count: int) -> list[int]:
    """Return different ports of this machine that nothing listens on at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass(frozen=True)
class Cluster:
    """Servers of the same data, each with the link that leads to it."""

    servers: list[ServerProcess]
    links: list[Link]

    @property
    def urls(self) -> list[str]:
        return [f"http://{HOST}:{link.port}" for link in self.links]


@contextlib.contextmanager
def running_cluster(data_dir: Path, size: int = 3, **settings: object) -> Iterator[Cluster]:
    """Run a cluster of ready servers until the block ends. `settings` become SQLENV_<NAME>."""
    settings = {"sql_workers": 1} | settings
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlenv-cluster-")))
        servers = [
            ServerProcess(data_dir.resolve(), logs / f"{number}.log", settings=settings)
            for number in range(size)
        ]
        for server in servers:
            stack.callback(server.stop, SIGKILL)
            server.start()
        for server in servers:
            server.wait_ready()
        links = [stack.enter_context(Link(server.port)) for server in servers]
        yield Cluster(servers, links)
