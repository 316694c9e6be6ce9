"""A real HAProxy in front of several servers: one URL, episodes kept together by the lane that the client names."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.chaos.cluster import await_ready
from benchmarks.chaos.link import HOST
from trainer.server import free_port

CONFIG = Path(__file__).parents[2] / "docker" / "haproxy.cfg"
TEMPLATE = re.compile(r"^( *)server-template .*$", re.MULTILINE)
RESOLVING = " resolvers network init-addr none"  # of the template's servers, which are found by name


def fixed_servers(config: str, addresses: Sequence[str]) -> str:
    """The gateway's configuration with these servers (HOST:PORT) in the place of those that a name stands for."""

    def servers(template: re.Match[str]) -> str:
        return "\n".join(f"{template[1]}server server{number} {one}" for number, one in enumerate(addresses, 1))

    found, templates = TEMPLATE.subn(servers, config)
    if templates != 1 or RESOLVING not in config:
        raise RuntimeError(f"{CONFIG} has no longer the one server-template, with '{RESOLVING}', that is replaced here")
    return found.replace(RESOLVING, "")


def haproxy() -> str | None:
    """The program, or None where it is not installed. HAPROXY names another."""
    return os.environ.get("HAPROXY") or shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/sbin")


def missing() -> str | None:
    """Why no gateway can run here, or None."""
    if haproxy() is None:
        return "HAProxy is not installed (Debian: apt-get install haproxy)"
    return None if CONFIG.exists() else f"there is no {CONFIG}"


@contextlib.contextmanager
def running_gateway(urls: Sequence[str]) -> Iterator[str]:
    """The URL of a gateway to the servers at `urls`, ready, until the block ends. docker/haproxy.cfg has its rules."""
    if reason := missing():
        raise RuntimeError(reason)
    url, admin = (f"{HOST}:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="sqlenv-gateway-") as scratch:
        path, log = Path(scratch) / "haproxy.cfg", Path(scratch) / "log"
        path.write_text(fixed_servers(CONFIG.read_text(), [one.removeprefix("http://") for one in urls]))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(haproxy()), "-db", "-f", str(path)],
                env=os.environ | {"SQLENV_LISTEN": url, "SQLENV_ADMIN": admin},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

        def ended() -> str | None:
            return None if process.poll() is None else f"haproxy ended with {process.returncode}:\n{log.read_text()}"

        try:
            await_ready(f"http://{url}", ended)
            yield f"http://{url}"
        finally:
            process.terminate()
            process.wait()
