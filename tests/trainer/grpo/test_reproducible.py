"""The same seed gives the same run to the last digit: in another process, under load, with more
SQL workers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainer.run.summary
from tests.trainer.grpo.test_job import ROOT, arguments
from tests.trainer.small_job import comparable, latest
from trainer.run.summary import git_state


def started(out: Path, *options: str, hash_seed: int, sql_workers: int) -> "subprocess.Popen[str]":
    environment = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": str(hash_seed),
        "SQLENV_SQL_WORKERS": str(sql_workers),
    }
    out.mkdir(exist_ok=True)
    with (out / "output.txt").open("a") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "trainer", "train", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
        )


def done(process: "subprocess.Popen[str]", out: Path) -> None:
    assert process.wait(timeout=500) == 0, (out / "output.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_give_the_same_digits(small, tmp_path, data_dir):
    one, two = tmp_path / "one", tmp_path / "two"
    first = started(one, *arguments(small, one, data_dir, 2), hash_seed=1, sql_workers=1)
    # each one is load for the other
    second = started(two, *arguments(small, two, data_dir, 2), hash_seed=2, sql_workers=2)
    done(first, one)
    done(second, two)
    assert comparable(latest(one)) == comparable(latest(two))
    assert len(comparable(latest(one))["rows"]) >= 4


def test_the_state_of_the_code_is_gits_own(tmp_path, monkeypatch):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def state_of(file: Path, text: str) -> Any:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        monkeypatch.setattr(trainer.run.summary, "__file__", str(file))
        return git_state()

    code, image = tmp_path / "code.py", tmp_path / "app"
    code.write_text("1\n")
    for command in ("init -q", "add code.py", "commit -qm one"):
        git(*command.split())
    head = git("rev-parse", "HEAD")
    assert state_of(code, "1\n") == {"commit": head, "dirty": False}
    assert state_of(code, "2\n") == {"commit": head, "dirty": True}
    # a package inside a repository that is not its own
    assert state_of(tmp_path / "installed.py", "") is None
    monkeypatch.setenv("PATH", "")  # no git
    image.mkdir()
    (image / "revision").write_text("a1b2c3\n")
    assert state_of(image / "trainer" / "run" / "summary.py", "") == {
        "commit": "a1b2c3",
        "dirty": None,
    }
