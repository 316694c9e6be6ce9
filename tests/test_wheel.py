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

from shared.console import PACKAGES
from tests.test_imports import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = (
    "--steps 1 --eval-limit 2 --eval-every 0 --processes 2 --set updates_per_batch=1 --set"
    " per_device_train_batch_size=2 --set gradient_accumulation_steps=2 --set num_generations=2"
)
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, as building leaves files behind."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
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
    target = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    return target


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the user's own modules of the same names, which are never imported."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in ("trainer.py", "shared/__init__.py", "env_server/__init__.py", "data/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit('the user')")
    return folder


def environment(installed: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


def start(installed: Path, folder: Path, *command: str, **variables: str) -> Done:
    program, *arguments = command
    return subprocess.run(
        [str(installed / "bin" / program), *arguments],
        cwd=folder,
        env=environment(installed) | variables,
        capture_output=True,
        text=True,
    )


def run(installed: Path, folder: Path, *command: str) -> str:
    done = start(installed, folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def url(installed: Path, elsewhere: Path) -> Iterator[str]:
    """The URL of `sqlenv serve`, started without options but the port."""
    log = elsewhere / "server.log"
    with log.open("w") as output:
        command = [str(installed / "bin" / "sqlenv"), "serve", "--port", "0"]
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


def test_the_wheel_holds_every_file(wheel):
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(listed) - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_server_passes_conformance_that_reads_its_files(url):
    command = [sys.executable, "-m", "tests.conformance", "--url", url, "--only", "gold, answers"]
    subprocess.run([*command, "--data", str(ROOT / "data")], cwd=ROOT, check=True)


def test_training_and_its_report_work_from_any_folder(installed, elsewhere):
    run(installed, elsewhere, "sqlenv", "train", *SMALL.split())
    latest = elsewhere / "runs" / "latest"
    assert json.loads((latest / "summary.json").read_text())["train_steps"] == 1
    config = json.loads((latest / "config.json").read_text())["config"]
    assert config["model_name"] == "data/models/sqlenv-tiny"
    assert config["db_dir"] == "data/databases"
    run(installed, elsewhere, "sqlenv", "report", "runs/latest")
    run(installed, elsewhere, "sqlenv", "serve", "verify", "runs/latest")
    run(installed, elsewhere, "sqlenv", "doctor")


def test_nothing_is_written_to_the_installed_packages(installed, elsewhere, wheel):
    refused = start(installed, elsewhere, "sqlenv", "data", "build")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: the data of an installed package are not rebuilt")
    listed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(PACKAGES)}
    files = {
        path.relative_to(installed).as_posix()
        for package in PACKAGES
        for path in (installed / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert files == {name for name in listed if name.partition("/")[0] in PACKAGES}


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (("train", "--steps", "1"), "server,trainer"),
        (("play", "--db", "x.db", "-q", "How many?"), "server,trainer"),
        (("serve",), "server"),
        (("data", "generate", "--out", "generated"), "server"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_missing_extra_is_one_line(installed, elsewhere, tmp_path, command, needs):
    """As after `pip install sqlenv` without extras."""
    blocked = ("numpy", "torch", "transformers", "psutil", "jinja2", "matplotlib", "uvicorn")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {(*blocked, 'apsw', 'trl')}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(installed)])
    done = start(installed, elsewhere, "sqlenv", *command, PYTHONPATH=path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: this command needs ")
    assert line.endswith(f", which is not installed: pip install 'sqlenv[{needs}]'")
