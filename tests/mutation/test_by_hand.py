"""The faults of `by_hand.toml`, each put into a copy of the code: its test must fail there."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads(Path(__file__).with_name("by_hand.toml").read_text(encoding="utf-8"))
FAULTS = [
    pytest.param({"file": file, **fault}, id=fault["name"])
    for file, faults in TABLE.items()
    for fault in faults
]
PACKAGES = ("sqlenv", "data", "env_server", "shared", "trainer", "tests")


def source(fault: dict[str, str], root: Path = ROOT) -> str:
    """Return the source that a fault is put into; fails unless it fits there in one place."""
    text = (root / fault["file"]).read_text(encoding="utf-8")
    assert text.count(fault["before"]) == 1, (
        f"{fault['file']} does not have {fault['before']!r} once: the code was rewritten. Write "
        f"the fault {fault['name']!r} against the new code in tests/mutation/by_hand.toml"
    )
    return text


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository; what no fault changes is linked."""
    root = tmp_path_factory.mktemp("copy")
    for path in ROOT.iterdir():
        if path.name in PACKAGES:
            shutil.copytree(path, root / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name[0] != "." and path.name not in ("build", "runs"):
            (root / path.name).symlink_to(path)
    return root


def run_tests(root: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_fits_the_code(fault):
    file, *names = fault["test"].split("::")
    assert source(fault).replace(fault["before"], fault["after"]) != source(fault)
    assert all(f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") for name in names)


@pytest.mark.slow
def test_the_named_tests_pass_without_a_fault(copy):
    done = run_tests(copy, *{fault["test"] for faults in TABLE.values() for fault in faults})
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(copy, fault):
    path, text = copy / fault["file"], source(fault, copy)
    path.write_text(text.replace(fault["before"], fault["after"]), encoding="utf-8")
    try:
        done = run_tests(copy, fault["test"])
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode == 1, f"no test fails if {fault['name']}\n{done.stdout[-2000:]}"
    assert " failed" in done.stdout.splitlines()[-1], done.stdout[-2000:]
