"""Virtual environments of peers, made once from pinned requirements and kept in a folder."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measuring import chosen
from shared.console import write_json

REQUIREMENTS = Path(__file__).with_name("requirements")
CACHE = Path(__file__).with_name(".environments")
INSTALL_TIMEOUT_S = 1800.0


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
