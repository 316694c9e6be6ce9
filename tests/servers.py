"""A real environment server for tests: `python -m env_server` in a process of its own, on a free
port."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_URL = re.compile(r"SQLEnv serves (http://\S+)")


@dataclass
class ServerProcess:
    """A server that was started. `url` has no trailing slash."""

    process: "subprocess.Popen[bytes]"
    output: IO[bytes]  # stdout and stderr together, so that neither pipe can fill up
    url: str = ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        return Path(self.output.name).read_text(encoding="utf-8", errors="replace")

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until `/ready` is 200; `RuntimeError` with the server's output when it ends or takes too
        long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"the server ended with {self.process.returncode}:\n{self.log()}"
                )
            match = _URL.search(self.log())
            if match:
                self.url = match[1]
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(self.url + "/ready", timeout=5).status_code == 200:
                        return
            time.sleep(0.02)
        raise RuntimeError(f"the server is not ready after {timeout_s:g} s:\n{self.log()}")

    def stop(self, sig: int = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Signal it and wait. -> its exit status; one that outlives the timeout is killed and is a
        `TimeoutExpired`."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def start_server(data_dir: Path, *options: str, port: int = 0, **settings: object) -> ServerProcess:
    """Start one without waiting. `options` go on its command line; `settings` become SQLENV_<NAME>."""
    output = tempfile.NamedTemporaryFile(prefix="sqlenv-server-", suffix=".log")  # noqa: SIM115 - lives as long as the server
    command = [
        sys.executable,
        "-m",
        "env_server",
        "--port",
        str(port),
        "--data",
        str(data_dir),
        *options,
    ]
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("SQLENV_")
    }
    root = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        command,
        cwd=root,
        env=inherited
        | {"PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
        | {f"SQLENV_{name.upper()}": str(value) for name, value in settings.items()},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    return ServerProcess(process, output)


@contextlib.contextmanager
def running_server(
    data_dir: Path, *options: str, port: int = 0, **settings: object
) -> Iterator[ServerProcess]:
    """A server that is ready, and stopped at the end: `with running_server(tiny_data) as server:
    server.url`."""
    server = start_server(data_dir, *options, port=port, **settings)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()
        server.output.close()
