"""`python -m data build`: the committed data is what the code builds."""

import os
import subprocess
import sys
from pathlib import Path

from data.domains.shipped import DATA_DIR
from tests.data.sources.importing import files_of


def run_build(out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "data", "build", "--out", str(out)],
        cwd=DATA_DIR.parent,
        env={**os.environ, "PYTHONHASHSEED": "31337"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_committed_data_is_what_the_code_builds(tmp_path: Path) -> None:
    done = run_build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in ("databases", "questions"):
        built, committed = files_of(tmp_path / folder), files_of(DATA_DIR / folder)
        assert built.keys() == committed.keys()
        assert [name for name in built if built[name] != committed[name]] == []


def test_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    done = run_build(blocker / "data")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
