"""The commands of README.md and of the pages whose commands are quick work as written there.

`test_docs.py` checks the form of all others, `tests/data/sources/test_own.py` runs own-data.md.

Each runs as make prints it, with options behind its own that make a training short, in a folder
that holds nothing but the sources. What a reader has to fill in is in `FILLED_IN`.
"""

import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from shared.console import PACKAGES
from shared.server_process import ServerProcess
from tests.test_imports import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PAGES = ("README.md", "docs/train.md", "docs/start.md")
LINKED = (*PACKAGES, "benchmarks", "Makefile", "pyproject.toml", "constraints.txt")
FILLED_IN = {"DATA=/some/import": f"DATA={ROOT / 'data'}"}
SMALL = {
    "train": "--steps 1 --eval-limit 4 --eval-every 0 --set per_device_train_batch_size=4"
    " --set gradient_accumulation_steps=2 --set num_generations=4 --set updates_per_batch=1",
    "sft": "--rows 8",
    "evaluate": "--limit 4",
}
# What takes a network, a GPU or hours, and the test that covers it instead.
ELSEWHERE = {
    "make install": "make installs what this test needs",
    "python -m trainer play --adapter data/models/qwen2.5-coder-0.5b-spider"
    " --db data/databases/bike_rental/bike_rental.sqlite"
    ' --question "How many repairs are there?"': "tests/trainer/runtime/test_lora.py",
    "make serve": "tests/env_server/test_server_process.py",
    "python examples/sync_client.py": "tests/examples/test_examples.py",
    "make train MODEL=Qwen/Qwen3-0.6B": "tests/trainer/test_config.py",
    "python -m trainer compare RUN RUN": "tests/trainer/run/test_compare.py",
    "python -m trainer report RUN": "tests/trainer/report/test_page.py",
    "python -m trainer report EVALUATION": "tests/trainer/report/test_page.py",
}


def fenced(page: str, language: str = "") -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    return [content for one, content in blocks if one == language]


def commands(page: str) -> list[str]:
    lines = (line.partition("  #")[0] for block in fenced(page) for line in block.splitlines())
    return [line.replace(".venv/bin/python", "python").strip() for line in lines if line.strip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlenv")
    for name in LINKED:
        (path / name).symlink_to(ROOT / name)
    with sqlite3.connect(path / "my.sqlite") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)")
        connection.executemany("INSERT INTO orders (status) VALUES (?)", [("open",), ("shipped",)])
    return path


def run(command: str, folder: Path) -> str:
    bash = ["bash", "-ec", command]
    done = subprocess.run(bash, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def as_run(command: str, folder: Path) -> str:
    """Return what make runs for a target; any other command as it is, with this Python."""
    for word, value in FILLED_IN.items():
        command = command.replace(word, value)
    if command.startswith("make "):
        printed = run(f"{command} -n --no-print-directory -o .venv/.installed", folder)
        lines = printed.replace(".venv/bin/", "").splitlines()
    else:
        lines = [command]
    for name, options in SMALL.items():
        for at, line in enumerate(lines):
            if f"trainer {name}" in line and "--resume" not in line:
                lines[at] = f"{line} {options}"
    return "\n".join(lines).replace("python -m", f"{shlex.quote(sys.executable)} -m")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_works_as_it_is_written(page, folder):
    found = commands(page)
    assert len(found) >= 4
    # a command that a later page has too runs there
    later = {one for other in PAGES[PAGES.index(page) + 1 :] for one in commands(other)}
    for command in found:
        if command not in ELSEWHERE and command not in later:
            run(as_run(command, folder), folder)


def test_the_python_of_the_pages_works(folder):
    pieces = [*fenced("README.md", "python"), *fenced("docs/api.md", "python")]
    pieces = [one for one in pieces if "SQLEnvClient" in one or "in_process" in one]
    assert len(pieces) == 3  # others need a framework
    server = ServerProcess(ROOT / "data", folder / "server.log")
    server.start()
    try:
        server.wait_ready()
        for number, piece in enumerate(pieces):
            script = folder / f"piece{number}.py"
            script.write_text(piece.replace("http://127.0.0.1:8000", server.url))
            assert run(f"{shlex.quote(sys.executable)} {script.name}", folder).strip()
    finally:
        server.stop()
