"""The built wheel holds every file of the packages, and its commands work from any folder."""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_imports import OURS, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "num_generations": 2}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, as building leaves files behind."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in OURS:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    (path,) = out.glob("sqlenv-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's packages and its commands in bin/."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    return target


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


def environment(installed: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


def run(installed: Path, folder: Path, *command: str) -> str:
    program, *arguments = command
    done = subprocess.run(
        [str(installed / "bin" / program), *arguments],
        cwd=folder,
        env=environment(installed),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def url(installed: Path, elsewhere: Path) -> Iterator[str]:
    """The URL of `sqlenv-server`, started without options but the port."""
    log = elsewhere / "server.log"
    with log.open("w") as output:
        command = [str(installed / "bin" / "sqlenv-server"), "--port", "0"]
        process = subprocess.Popen(
            command, cwd=elsewhere, env=environment(installed), stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 60
        while "SQLEnv serves" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield log.read_text().partition("SQLEnv serves ")[2].split()[0]
    finally:
        process.terminate()
        process.wait(60)


def test_the_wheel_holds_every_file(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *OURS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(listed) - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_packages_are_the_installed_ones(installed: Path, elsewhere: Path) -> None:
    code = f"import {', '.join(OURS)}; print(*(p.__file__ for p in ({', '.join(OURS)})))"
    files = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere,
        env=environment(installed),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [Path(file).parent for file in files] == [installed / name for name in OURS]


def test_help_names_the_commands(installed: Path, elsewhere: Path) -> None:
    assert "Usage: sqlenv train" in run(installed, elsewhere, "sqlenv", "train", "--help")
    assert "Usage: sqlenv-server" in run(installed, elsewhere, "sqlenv-server", "--help")


def test_the_server_passes_conformance(installed: Path, elsewhere: Path, url: str) -> None:
    """Also finds the hostile corpus and, with --data, the shipped questions."""
    command = ["sqlenv-server", "conformance", "--url", url, "--data", "data"]
    output = run(installed, elsewhere, *command, "--json", "checks.json")
    assert "hostile" in output
    assert (elsewhere / "checks.json").is_file()


def test_training_and_its_report_work_from_any_folder(installed: Path, elsewhere: Path) -> None:
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    run(
        installed, elsewhere, "sqlenv", "train", "--steps", "1", "--eval-limit", "2",
        "--eval-every", "0", *settings,
    )  # fmt: skip
    latest = elsewhere / "runs" / "latest"
    assert json.loads((latest / "summary.json").read_text())["train_steps"] == 1
    config = json.loads((latest / "config.json").read_text())["config"]
    assert config["model_name"] == "data/models/sqlenv-tiny"
    assert config["db_dir"] == "data/databases"
    run(installed, elsewhere, "sqlenv", "report", "runs/latest")
    run(installed, elsewhere, "sqlenv-server", "verify", "runs/latest")
    run(installed, elsewhere, "sqlenv", "doctor")
