"""Virtual environments of peers, made once from pinned requirements and kept in a folder, and the
processes that run in them, whose CPU time and memory can be read.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import psutil

from benchmarks.measuring import chosen, memory_mib
from benchmarks.peers.worker import MODULE
from shared.console import write_json
from shared.server_process import child_environment, session_cpu_s

REQUIREMENTS = Path(__file__).with_name("requirements")
CACHE = Path(__file__).with_name(".environments")
INSTALL_TIMEOUT_S = 1800.0
PATIENCE_S = 300.0  # for a reply, and for a start, which may import torch
SAMPLE_S = 0.1  # between two readings of memory


class NotMeasured(Exception):
    """A peer can't be measured; the text says why."""


def make_environment(name: str, cache: Path = CACHE, requirements: Path | None = None) -> Path:
    """Return the Python of the environment of `requirements`, which is made if needed; by default
    of `requirements/<name>.txt`.

    Raises `NotMeasured` if it can't be made.
    """
    requirements = requirements or REQUIREMENTS / f"{name}.txt"
    folder = cache / name
    python, made = folder / "bin" / "python", folder / "made-of.txt"
    wanted = requirements.read_text()
    if made.exists() and made.read_text() == wanted and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run(name, sys.executable, "-m", "venv", str(folder))
    _run(name, str(python), "-m", "pip", "install", "-q", "-r", str(requirements))
    made.write_text(wanted)
    return python


def _run(name: str, *command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasured(f"its environment {name} can't be made: {error}") from error
    if done.returncode:
        raise NotMeasured(f"its environment {name} can't be made: {reason(done.stderr)}")


def reason(output: str) -> str:
    """Return the line of a program's output that says best why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason was given"])[-1].removeprefix("ERROR: ")


class Worker:
    """A worker that is started when it is asked, again if it was killed. Use `with`."""

    def __init__(
        self,
        python: Path,
        function: str,
        packages: Sequence[str],
        *arguments: str,
        log: Path,
        folder: Path | None = None,
    ) -> None:
        """Prepare `worker.py`, which runs in `folder`."""
        self.versions: dict[str, str] = {}
        self.peak_mib: float | None = None  # a number is raised to the memory while it works
        self._command = [str(python), "-m", MODULE, function, ",".join(packages), *arguments]
        self._log, self._folder = log, folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with suppress(OSError, subprocess.TimeoutExpired):  # it has ended
                self._process.communicate(timeout=10.0)
        self.kill()

    def start(self) -> None:
        """Start it in a session of its own. Raises `NotMeasured` if that fails."""
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command,
                env=child_environment(),
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.versions = self._reply(self._process, PATIENCE_S)

    def kill(self) -> None:
        """Kill it and the processes that it started, whatever their sessions."""
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                worker = psutil.Process(self._process.pid)
                for process in (*worker.children(recursive=True), worker):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            with suppress(ValueError):  # its pipes are closed
                self._process.communicate()
            self._process = None

    def cpu_s(self) -> float:
        return session_cpu_s(self._process.pid) if self._process else 0.0

    def ask(self, request: Any, patience_s: float = PATIENCE_S) -> Any:
        """Return the reply to a request. Without one, kill the worker and raise `NotMeasured`."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):  # `_reply` says why
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._reply(self._process, patience_s)

    def _reply(self, process: "subprocess.Popen[bytes]", patience_s: float) -> Any:
        assert process.stdout is not None
        until, ready = time.monotonic() + patience_s, False
        while not ready and time.monotonic() < until:
            ready = bool(select([process.stdout], [], [], SAMPLE_S)[0])
            if self.peak_mib is not None:
                with suppress(psutil.Error):  # it has ended
                    self.peak_mib = max(self.peak_mib, memory_mib(process.pid))
        if ready and (line := process.stdout.readline()):
            return json.loads(line)
        self.kill()
        why = reason(self._log.read_text(errors="replace"))
        late = f"it did not answer within {patience_s:.0f} s"
        raise NotMeasured(f"it ended: {why}" if ready else late)


def report_each(
    names: Iterable[str] | None,
    known: Iterable[str],
    measure: Callable[[str], Any],
    json_path: Path | None,
) -> None:
    """Measure each of the peers; write, or without a path print, what was found, or why not."""
    report: dict[str, Any] = {}
    for name in chosen(names, known, "peer"):
        print(f"measuring {name}", file=sys.stderr, flush=True)
        try:
            report[name] = measure(name)
        except NotMeasured as error:
            report[name] = {"not_measured": str(error)}
    if json_path is None:
        print(json.dumps(report, indent=1))
    write_json(json_path, report)
