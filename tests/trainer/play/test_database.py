"""From a user's file to a data directory: what is refused and why; the file is unchanged.

And the names in a question that nothing in the database is called or contains.
"""

import io
import os
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from shared.dataset import load_open_questions
from shared.errors import DatabaseLoadError
from tests.trainer.play.conftest import killed_writer, run_script, still
from trainer.play import database as play_database
from trainer.play import names
from trainer.play.database import examine, host
from trainer.play.display import Screen
from trainer.play.names import unknown_names


def make(path: Path, rows: int = 3, mode: str = "delete") -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany(
            "INSERT INTO pets (name) VALUES (?)", [(f"pet {i}",) for i in range(rows)]
        )
        connection.commit()
    return path


def count(path: Path) -> int:
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as connection:
        return int(connection.execute("SELECT count(*) FROM pets").fetchone()[0])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_file_at_rest_is_linked_to(home, tmp_path):
    path = make(home / "my pets?#%.sqlite")
    before = still(home)
    found = examine(path)
    target, ids = host(found, ["How many?", "Which?"], tmp_path / "data")
    assert found.how == "read in place"
    (linked,) = (tmp_path / "data" / "databases").glob("*/*.sqlite")
    assert linked == target
    assert linked.is_symlink()
    assert linked.resolve() == path
    questions = load_open_questions(tmp_path / "data")
    assert [one.question_text for one in questions] == ["How many?", "Which?"]
    assert ids == [one.question_id for one in questions]
    assert questions[0].database_name == linked.stem == "my_pets"
    assert still(home) == before


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ('"Patient Records" (id, "Né le", "order"), plain_1 (Prénom)',
         ['"Patient Records"', '"Né le"', '"order"']),
        ("pets (id, name), v (a)", []),
    ],
)  # fmt: skip
def test_names_that_need_quotes_are_noted_with_the_remedy(home, tables, names):
    script = "".join(f"CREATE TABLE {one};" for one in re.split(r"(?<=\)), ", tables))
    path = run_script(home / "my clinic.db", f"{script} CREATE VIEW broken AS SELECT * FROM gone;")
    database = examine(path)
    assert list(database.quoted_names) == names
    console = Console(file=io.StringIO(), width=400)
    Screen(console).start(database, "toy")
    shown = console.file.getvalue()
    if names:
        assert 'note: SQL needs 3 names, such as "Patient Records", in quotes, which small' in shown
        assert f"python -m data import sqlite '{path}' --mend makes a copy with plain" in shown
    else:
        assert "note:" not in shown


def test_a_write_ahead_log_is_read_from_a_copy_while_it_is_in_use(home, tmp_path):
    path = make(home / "pets.sqlite", mode="wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO pets (name) VALUES ('late')")
        writer.execute('CREATE TABLE "Pet Food" (brand)')
        writer.execute("BEGIN")
        writer.execute("INSERT INTO pets (name) VALUES ('never')")
        assert count(path) == 3  # what the file alone holds
        files = {name: (home / name).read_bytes() for name in ("pets.sqlite", "pets.sqlite-wal")}
        found = examine(path)
        copy, _ = host(found, ["How many?"], tmp_path / "data")
        assert {name: (home / name).read_bytes() for name in files} == files
        writer.execute("ROLLBACK")
    assert found.how == "read from a copy that includes pets.sqlite-wal"
    assert found.quoted_names == ['"Pet Food"']
    assert [one.name for one in copy.parent.iterdir()] == [copy.name]
    assert count(copy) == 4


def test_an_unfinished_transaction_is_named_with_its_remedy(home, tmp_path):
    path = make(home / "my pets.sqlite", rows=2000)
    killed_writer(
        path,
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN');"
        " c.execute(\"UPDATE pets SET name = 'no'\")",
    )
    assert (home / "my pets.sqlite-journal").stat().st_size > 0
    before = still(home)
    remedy = r"roll back its unfinished transaction with: sqlite3 .*'"
    with pytest.raises(DatabaseLoadError, match=remedy) as caught:
        host(examine(path), ["How many?"], tmp_path / "data")
    assert still(home) == before
    program, given, sql = shlex.split(str(caught.value).partition("transaction with: ")[2])
    assert (program, given) == ("sqlite3", str(path))
    with closing(sqlite3.connect(path)) as connection:  # the remedy
        connection.execute(sql).fetchone()
    assert examine(path).how == "read in place"
    assert count(path) == 2000


def test_a_locked_file_is_named(home, tmp_path, monkeypatch):
    path = make(home / "pets.sqlite")
    monkeypatch.setattr(play_database, "BUSY_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        found = replace(examine(path), log=path.with_name("pets.sqlite-journal"))
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("INSERT INTO pets (name) VALUES ('late')")
        locked = "locked; close the program that writes"
        with pytest.raises(DatabaseLoadError, match=locked):
            examine(path)
        with pytest.raises(DatabaseLoadError, match=locked):  # it was not when it was examined
            host(found, ["How many?"], tmp_path / "data")
        writer.execute("COMMIT")
    assert found.changed()


def _cut(path: Path) -> None:
    make(path, rows=500)
    path.write_bytes(path.read_bytes()[:5000])


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "no file at .*--db"),
    "a directory": (Path.mkdir, "is not a regular file"),
    "a pipe": (os.mkfifo, "is not a regular file"),
    "empty": (Path.touch, "is empty: name a SQLite database"),
    "text": (lambda path: path.write_text("id,name\n1,Rex\n"), "not a database; .*data import csv"),
    "encrypted": (lambda path: path.write_bytes(os.urandom(8192)), "not a database; .*decrypt"),
    "cut": (_cut, r"malformed; .*\.recover"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_with_a_remedy(home, kind):
    spoil, message = BAD[kind]
    spoil(home / "pets.sqlite")
    with pytest.raises(DatabaseLoadError, match=message) as caught:
        examine(home / "pets.sqlite")
    assert str(home / "pets.sqlite") in str(caught.value)


def test_a_name_may_begin_with_a_tilde(home, monkeypatch):
    monkeypatch.chdir(home)
    make(home / "~nobody.sqlite")
    assert "~nobody.sqlite" in examine(Path("~nobody.sqlite")).quoted


def test_a_log_in_a_folder_that_is_only_read_is_named(home, monkeypatch):
    path = make(home / "pets.sqlite")

    def refused(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(sqlite3, "connect", refused)
    with pytest.raises(DatabaseLoadError, match="copy it with its -wal file to a folder"):
        examine(path)


def test_a_file_without_permission_is_named(home, monkeypatch):
    path = make(home / "pets.sqlite")
    path.chmod(0o200)
    if os.geteuid() == 0:  # who may read everything

        def forbidden(self: Path, *_: object) -> None:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(DatabaseLoadError, match=r"can't read .*pets\.sqlite: Permission denied; "):
        examine(path)


CLINIC = """
CREATE TABLE tblPatients (PatientID INTEGER PRIMARY KEY, home_town TEXT, "Date of Birth" DATE);
CREATE TABLE drug (code TEXT, price REAL, note);
INSERT INTO tblPatients VALUES (1, 'São Paulo', '1990-01-02'), (2, 'Köln', '1991-01-02');
INSERT INTO drug VALUES ('AMX-500', 3.5, 'allergies to penicillin'), (NULL, 1.0, 'Straße');
CREATE VIEW active_patients AS SELECT PatientID AS "active id" FROM tblPatients;
"""


@pytest.mark.parametrize(
    ("question", "unknown"),
    [
        ("Which Patients were born in KÖLN in January, with Zork?", ["Zork"]),
        ("What is AMX-500? Who lives in 'são paulo'?", []),
        ("Who is 'allergic' to Penicillin; or to Aspirin, Aspirin?", ["allergic", "Aspirin"]),
        ("Does Ann's doctor work in “Neustadt” or in Köln's clinic?", ["Neustadt", "Ann"]),
        ("Whose Home Town is 100% of '; DROP TABLE drug; --'", ["; DROP TABLE drug; --"]),
        ("how many nurses are there", []),
        ("What is 'home_town', 'date of birth', Active_Patients or 'active_id'; in Straße?", []),
    ],
)
def test_only_names_that_nothing_contains_are_reported(tmp_path, question, unknown):
    path = run_script(tmp_path / "clinic.db", CLINIC)
    assert unknown_names(path, question) == unknown


def test_names_are_not_reported_unless_all_values_were_read(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "MAX_S", 0.0)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)"
    script = f"CREATE TABLE t (x TEXT); {numbers} INSERT INTO t SELECT hex(i) FROM n"
    assert unknown_names(run_script(tmp_path / "t.db", script), "Where are the Zebras?") == []
