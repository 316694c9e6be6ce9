"""HAProxy with the project's configuration, in front of servers on this machine."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.chaos.cluster import POLL_S, ROOT, free_ports
from tests.chaos.link import HOST

CONFIG = ROOT / "docker" / "haproxy.cfg"
SERVERS = CONFIG.with_name("servers.cfg")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
SERVING = re.compile(r'^haproxy_backend_active_servers\{proxy="servers"\} (\d+)', re.MULTILINE)


@dataclass
class Gateway:
    """A running HAProxy. `url` is for agents; `admin` has /ready, /live and /metrics."""

    process: "subprocess.Popen[bytes]"
    log_path: Path
    url: str
    admin: str

    def wait_serving(self, servers: int) -> None:
        """Wait until the gateway sees `servers` ready servers; `RuntimeError` has its log."""
        reason = f"the gateway does not see {servers} servers after {START_TIMEOUT_S:g} s"
        deadline = time.monotonic() + START_TIMEOUT_S
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    reason = f"haproxy ended: {self.process.returncode}"
                    break
                with contextlib.suppress(httpx.HTTPError):
                    active = SERVING.search(client.get(f"{self.admin}/metrics").text)
                    if active is not None and int(active[1]) == servers:
                        return
                time.sleep(POLL_S)
        raise RuntimeError(f"{reason}:\n{self.log_path.read_text(errors='replace')}")


def backend_of(addresses: Sequence[str], check_s: int = 1) -> str:
    """Return a file like servers.cfg for servers at HOST:PORT, which have `check_s` seconds to
    answer a health check."""
    lines = [line for line in SERVERS.read_text().splitlines() if line.startswith("    use-server")]
    lines += [f"    server server{number} {one}" for number, one in enumerate(addresses, 1)]
    return "\n".join(["backend servers", f"    timeout check {check_s}s", *lines, ""])


def haproxy() -> str | None:
    """Return the path of the program (HAPROXY, if set), or None if it is not installed."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return os.environ.get("HAPROXY") or shutil.which("haproxy", path=path)


def missing() -> str | None:
    """Return why no gateway can run here, or None."""
    return None if haproxy() else "HAProxy is not installed (Debian: apt-get install haproxy)"


@contextlib.contextmanager
def running_gateway(
    urls: Sequence[str], check_s: int = 1, certificate: Path | None = None
) -> Iterator[Gateway]:
    """Run a gateway to the ready servers at `urls` until the block ends; with a `certificate` and
    its key in one file, agents reach it by TLS.

    A health check without an answer within `check_s` seconds has failed; after two in a row the
    server counts as down.
    """
    if reason := missing():
        raise RuntimeError(reason)
    agents, admin = (f"{HOST}:{port}" for port in free_ports(2))
    with tempfile.TemporaryDirectory(prefix="sqlenv-gateway-") as scratch:
        path, log_path = Path(scratch) / "servers.cfg", Path(scratch) / "log"
        addresses = [url.removeprefix("http://") for url in urls]
        path.write_text(backend_of(addresses, check_s))
        listen = agents if certificate is None else f"{agents} ssl crt {certificate}"
        scheme = "http" if certificate is None else "https"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [str(haproxy()), "-db", "-f", str(CONFIG), "-f", str(path)],
                env=os.environ | {"SQLENV_LISTEN": listen, "SQLENV_ADMIN": admin},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that `session_cpu_s` finds it
            )
        gateway = Gateway(process, log_path, f"{scheme}://{agents}", f"http://{admin}")
        try:
            gateway.wait_serving(len(urls))
            yield gateway
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
