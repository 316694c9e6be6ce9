"""`python -m data build`: the committed data is what the code builds."""

import os
import subprocess
import sys
from pathlib import Path

from data.build import DATA_DIR
from data.domains.templates import FORMS
from shared.dataset import load_splits
from tests.data.shipped_forms import shipped_forms

WRITER = slice(92, 100)  # of a SQLite file: what depends on the version that wrote it


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


def files_of(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in (*folder.glob("databases/*/*"), *folder.glob("questions/*")):
        content = bytearray(path.read_bytes())
        if path.suffix == ".sqlite":
            content[WRITER] = bytes(8)
        found[path.relative_to(folder).as_posix()] = bytes(content)
    return found


def test_the_committed_data_is_what_the_code_builds(tmp_path: Path) -> None:
    done = run_build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    built, committed = files_of(tmp_path), files_of(DATA_DIR)
    assert sorted(built) == sorted(committed)
    assert [name for name in built if built[name] != committed[name]] == []


def test_every_shipped_question_has_a_form() -> None:
    questions = [one for split in load_splits(DATA_DIR).values() for one in split]
    forms = shipped_forms()
    assert set(forms) == {one.question_id for one in questions}
    for one in questions:
        form = forms[one.question_id]
        assert one.difficulty == (form if form == "hard" else FORMS[form][0])


def test_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    done = run_build(blocker / "data")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
