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
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
TEMPLATE = re.compile(r"^( *)server-template .*$", re.MULTILINE)
# an option of the template's servers, which are found by name
RESOLVING = " resolvers network init-addr none"
CHECK = "timeout check 1s"  # the time for a health check
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


def fixed_servers(config: str, addresses: Sequence[str], check_s: int = 1) -> str:
    """Return the gateway's configuration with fixed servers (HOST:PORT) in place of a name's, and
    `check_s` seconds in which a server must answer a health check."""
    lines = [f"server server{number} {one}" for number, one in enumerate(addresses, 1)]
    replaced, templates = TEMPLATE.subn(
        lambda match: match[1] + f"\n{match[1]}".join(lines), config
    )
    if templates != 1 or replaced.count(RESOLVING) != 1 or replaced.count(CHECK) != 1:
        wanted = f"one server-template, one '{RESOLVING}' and one '{CHECK}'"
        raise RuntimeError(f"{CONFIG} no longer has {wanted}, which are replaced here")
    return replaced.replace(RESOLVING, "").replace(CHECK, f"timeout check {check_s}s")


def haproxy() -> str | None:
    """Return the path of the program (HAPROXY, if set), or None if it is not installed."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return os.environ.get("HAPROXY") or shutil.which("haproxy", path=path)


def missing() -> str | None:
    """Return why no gateway can run here, or None."""
    return None if haproxy() else "HAProxy is not installed (Debian: apt-get install haproxy)"


@contextlib.contextmanager
def running_gateway(urls: Sequence[str], check_s: int = 1) -> Iterator[Gateway]:
    """Run a gateway to the ready servers at `urls` until the block ends.

    A health check without an answer within `check_s` seconds has failed; after two in a row the
    server counts as down.
    """
    if reason := missing():
        raise RuntimeError(reason)
    agents, admin = (f"{HOST}:{port}" for port in free_ports(2))
    with tempfile.TemporaryDirectory(prefix="sqlenv-gateway-") as scratch:
        path, log_path = Path(scratch) / "haproxy.cfg", Path(scratch) / "log"
        addresses = [url.removeprefix("http://") for url in urls]
        path.write_text(fixed_servers(CONFIG.read_text(), addresses, check_s))
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [str(haproxy()), "-db", "-f", str(path)],
                env=os.environ | {"SQLENV_LISTEN": agents, "SQLENV_ADMIN": admin},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that `session_cpu_s` finds it
            )
        gateway = Gateway(process, log_path, f"http://{agents}", f"http://{admin}")
        try:
            gateway.wait_serving(len(urls))
            yield gateway
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
