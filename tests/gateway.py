"""The real HAProxy with the project's configuration, in front of servers on this machine."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

CONFIG = Path(__file__).parents[1] / "docker" / "haproxy.cfg"
START_TIMEOUT_S = 30.0
HAPROXY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@dataclass
class Gateway:
    """`url` is where agents come, `admin` has /ready, /live and /metrics. Neither ends in a slash."""

    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    url: str
    admin: str

    def log(self) -> str:
        return Path(self.output.name).read_text(errors="replace")

    def wait_serving(self, servers: int) -> None:
        """Until the gateway sees so many servers ready."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the gateway ended:\n{self.log()}")
            with contextlib.suppress(httpx.TransportError):
                text = httpx.get(self.admin + "/metrics", timeout=5).text
                found = re.search(r'^haproxy_backend_active_servers\{proxy="servers"\} (\d+)', text, re.MULTILINE)
                if found is not None and int(found[1]) == servers:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the gateway does not see {servers} servers:\n{self.log()}")


def config_for(urls: Sequence[str]) -> str:
    """The configuration with these servers in the place of those that a name server lists."""
    lines = [f"    server server{n} {url.removeprefix('http://')}" for n, url in enumerate(urls, 1)]
    text, templates = re.subn(r"^    server-template .*$", "\n".join(lines), CONFIG.read_text(), flags=re.MULTILINE)
    text, resolved = re.subn(r"^    default-server resolvers network init-addr none\n", "", text, flags=re.MULTILINE)
    assert (templates, resolved) == (1, 1), "docker/haproxy.cfg has another form than this expects"
    return text


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def running_gateway(urls: Sequence[str]) -> Iterator[Gateway]:
    """A gateway to the servers at `urls`, all of which it sees ready; stopped at the end."""
    assert HAPROXY is not None, "no haproxy on this machine"
    port, admin = free_ports(2)
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(suffix=".log") as output:
        config = Path(folder, "haproxy.cfg")
        config.write_text(config_for(urls))
        process = subprocess.Popen(
            [HAPROXY, "-W", "-db", "-f", str(config)],
            env=os.environ | {"SQLENV_LISTEN": f"127.0.0.1:{port}", "SQLENV_ADMIN": f"127.0.0.1:{admin}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        gateway = Gateway(process, output, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}")
        try:
            gateway.wait_serving(len(urls))
            yield gateway
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
