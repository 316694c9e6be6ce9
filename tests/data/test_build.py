"""`python -m data build --check`: the committed data is what the code builds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from data import build
from data.build import VERSION, compare
from data.domains.templates import FORMS
from shared.dataset import database_path, load_splits, questions_path
from tests.data.shipped_forms import shipped_forms

ROOT = Path(build.__file__).parent.parent


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build made by this test run."""
    directory = tmp_path_factory.mktemp("fresh")
    build.build(directory)
    return directory


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the committed data."""
    target = tmp_path / "data"
    for folder in ("databases", "questions"):
        shutil.copytree(build.DATA_DIR / folder, target / folder)
    return target


def run_build(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "data", "build", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_committed_data_is_what_the_code_builds() -> None:
    done = run_build("--check", hash_seed="31337")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is what the code builds" in done.stdout


def test_every_shipped_question_has_a_form() -> None:
    questions = [one for split in load_splits(build.DATA_DIR).values() for one in split]
    forms = shipped_forms()
    assert set(forms) == {one.question_id for one in questions}
    for one in questions:
        form = forms[one.question_id]
        assert one.difficulty == (form if form == "hard" else FORMS[form][0])


def test_check_exits_non_zero_and_names_each_file_that_differs(copy: Path) -> None:
    (copy / "databases" / "zoo" / "zoo.sqlite").unlink()
    stray = copy / "databases" / "old" / "old.sqlite"
    stray.parent.mkdir()
    stray.write_bytes(b"")
    questions = questions_path(copy, "eval")
    records = json.loads(questions.read_text(encoding="utf-8"))
    records[0]["gold_answer"] = 12345678
    questions.write_text(json.dumps(records), encoding="utf-8")
    done = run_build("--check", "--out", str(copy))
    assert done.returncode == 1
    assert "databases/zoo/zoo.sqlite: missing" in done.stderr
    assert "databases/old/old.sqlite: not written by the build" in done.stderr
    assert "questions/questions_eval.json: differs" in done.stderr
    assert "run 'python -m data build'" in done.stderr


def test_the_version_of_sqlite_that_wrote_a_file_does_not_matter(copy: Path, fresh: Path) -> None:
    path = database_path(copy, "zoo")
    content = bytearray(path.read_bytes())
    content[VERSION] = bytes(range(8))
    path.write_bytes(bytes(content))
    assert compare(copy, fresh) == []
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    assert compare(copy, fresh) == ["databases/zoo/zoo.sqlite: differs"]


def test_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    done = run_build("--out", str(blocker / "data"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
