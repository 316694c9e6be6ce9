"""From a file of the user's to a data directory: what is refused and why, and that the file stays
as it is."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shared.dataset import load_open_questions
from shared.errors import DatabaseLoadError
from trainer.errors import PlayError
from trainer.play import database as play_database
from trainer.play.database import MAX_QUESTION_CHARS, check_question, examine, host, size_text

Still = tuple[dict[str, tuple[bytes, int]], int]


def make(path: Path, rows: int = 3, mode: str = "delete") -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany(
            "INSERT INTO pets (name) VALUES (?)", [(f"pet {i}",) for i in range(rows)]
        )
        connection.commit()
    return path


def still(folder: Path) -> Still:
    """Every file's bytes and time of change, and the folder's own."""
    files = {
        one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in sorted(folder.iterdir())
    }
    return files, folder.stat().st_mtime_ns


def killed_writer(path: Path, script: str) -> None:
    """A program that was killed in the middle: it runs `script` with `c`, a connection, and leaves
    no time to close."""
    code = f"import os, sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None)\n{script}\nos._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)


def count(path: Path) -> int:
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as connection:
        return int(connection.execute("SELECT count(*) FROM pets").fetchone()[0])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's folder."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_file_at_rest_is_linked_to(home: Path, tmp_path: Path) -> None:
    path = make(home / "my pets?#%.sqlite")
    before = still(home)
    made = host(examine(path), ["How many?", "Which?", "How many?"], tmp_path / "data")
    assert made.how == "read where it is"
    (linked,) = (tmp_path / "data" / "databases").glob("*/*.sqlite")
    assert linked.is_symlink()
    assert linked.resolve() == path
    questions = load_open_questions(made.data_dir)
    assert [one.question_text for one in questions] == ["How many?", "Which?"]
    assert made.question_ids == [
        questions[0].question_id,
        questions[1].question_id,
        questions[0].question_id,
    ]
    assert questions[0].database_name == linked.stem == "my_pets"
    assert still(home) == before


def test_a_write_ahead_log_is_folded_into_a_copy(home: Path, tmp_path: Path) -> None:
    path = make(home / "pets.sqlite", mode="wal")
    killed_writer(path, "c.execute(\"INSERT INTO pets (name) VALUES ('late')\")")
    assert (home / "pets.sqlite-wal").stat().st_size > 0
    assert count(path) == 3  # what the file alone holds
    before = still(home)
    made = host(examine(path), ["How many?"], tmp_path / "data")
    assert "write-ahead log" in made.how
    (copy,) = (tmp_path / "data" / "databases").glob("*/*.sqlite")
    assert not copy.is_symlink()
    assert count(copy) == 4
    assert [one.name for one in copy.parent.iterdir()] == [copy.name]
    assert still(home) == before


def test_a_write_ahead_log_in_use_is_read_too(home: Path, tmp_path: Path) -> None:
    path = make(home / "pets.sqlite", mode="wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO pets (name) VALUES ('late')")
        writer.execute("BEGIN")
        writer.execute("INSERT INTO pets (name) VALUES ('never')")
        files = {name: (home / name).read_bytes() for name in ("pets.sqlite", "pets.sqlite-wal")}
        made = host(examine(home / "pets.sqlite"), ["How many?"], tmp_path / "data")
        assert {name: (home / name).read_bytes() for name in files} == files
        writer.execute("ROLLBACK")
    (copy,) = made.data_dir.glob("databases/*/*.sqlite")
    assert count(copy) == 4


def test_an_unfinished_transaction_is_rolled_back_in_a_copy(home: Path, tmp_path: Path) -> None:
    path = make(home / "pets.sqlite", rows=2000)
    killed_writer(
        path,
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN'); c.execute(\"UPDATE pets SET name = 'no'\")",
    )
    assert (home / "pets.sqlite-journal").stat().st_size > 0
    before = still(home)
    made = host(examine(path), ["How many?"], tmp_path / "data")
    assert "journal" in made.how
    (copy,) = made.data_dir.glob("databases/*/*.sqlite")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM pets WHERE name = 'no'").fetchone() == (0,)
    assert still(home) == before


def test_an_empty_log_and_a_finished_journal_change_nothing(home: Path) -> None:
    path = make(home / "pets.sqlite")
    (home / "pets.sqlite-wal").touch()
    (home / "pets.sqlite-journal").write_bytes(bytes(512))
    assert examine(path).log is None


def test_what_would_take_a_big_copy_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(home / "pets.sqlite", mode="wal")
    killed_writer(path, "c.execute(\"INSERT INTO pets (name) VALUES ('late')\")")
    monkeypatch.setattr(play_database, "MAX_COPY_BYTES", 1000)
    with pytest.raises(
        DatabaseLoadError, match=r"pets\.sqlite-wal holds changes .* too big .* wal_checkpoint"
    ):
        host(examine(path), ["How many?"], tmp_path / "data")
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(DatabaseLoadError, match="only 10 B free: set TMPDIR"):
        host(examine(path), ["How many?"], tmp_path / "other")


def test_a_file_that_is_written_all_the_time_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(home / "pets.sqlite", mode="wal")
    killed_writer(path, "c.execute(\"INSERT INTO pets (name) VALUES ('late')\")")
    found, copyfile = examine(path), play_database.shutil.copyfile

    def copied_while_written(source: Path, target: Path) -> None:
        copyfile(source, target)
        with (home / "pets.sqlite-wal").open("ab") as log:
            log.write(b"x")

    monkeypatch.setattr(play_database.shutil, "copyfile", copied_while_written)
    with pytest.raises(DatabaseLoadError, match=r"another program keeps writing .*\.backup"):
        host(found, ["How many?"], tmp_path / "data")
    assert found.changed()


def _cut(path: Path) -> None:
    make(path, rows=500)
    path.write_bytes(path.read_bytes()[:5000])


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: make(path.with_name("pet.sqlite")), r"no file at .*did you mean pet\.sqlite\?"),
    "a directory": (lambda path: (path.mkdir(), make(path / "a.db")), r"is a directory: name .* \(a\.db\)"),
    "a pipe": (os.mkfifo, "no regular file"),
    "a loop": (lambda path: path.symlink_to(path), "symbolic link"),
    "empty": (Path.touch, r"empty \(0 bytes\)"),
    "text": (lambda path: path.write_text("id,name\n1,Rex\n"), r"not a SQLite database: it begins with b'id,.*import"),
    "encrypted": (lambda path: path.write_bytes(os.urandom(8192)), "encrypted.*sqlcipher_export"),
    "packed": (lambda path: path.write_bytes(b"\x1f\x8b" + os.urandom(8190)), "gzip file: unpack"),
    "cut": (_cut, r"cut short: it has 5,000 bytes .*\.recover"),
    "cut in its header": (lambda path: path.write_bytes(b"SQLite format 3\0"), "cut short"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_with_a_remedy(home: Path, kind: str) -> None:
    spoil, said = BAD[kind]
    spoil(home / "pets.sqlite")
    with pytest.raises(DatabaseLoadError, match=said) as caught:
        examine(home / "pets.sqlite")
    assert str(home / "pets.sqlite") in str(caught.value)


def test_a_file_without_permission_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(home / "pets.sqlite")
    path.chmod(0o200)
    if os.geteuid() == 0:  # whom nothing is forbidden

        def forbidden(self: Path, *_: object) -> None:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(
        DatabaseLoadError, match=r"can't read .*pets\.sqlite: Permission denied; .*chmod u\+r"
    ):
        examine(path)


def test_a_log_that_is_not_its_databases_is_named(home: Path, tmp_path: Path) -> None:
    path = make(home / "pets.sqlite", mode="wal")
    killed_writer(path, "c.execute(\"INSERT INTO pets (name) VALUES ('late')\")")
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 8000)
    with pytest.raises(
        DatabaseLoadError, match=r"can't read .*pets\.sqlite with pets\.sqlite-wal .*\.recover"
    ):
        host(examine(path), ["How many?"], tmp_path / "data")


def test_a_directory_that_is_taken_is_named(home: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(PlayError, match=r"data directory at .*data"):
        host(examine(make(home / "pets.sqlite")), ["How many?"], tmp_path / "data")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("x" * (MAX_QUESTION_CHARS + 1), "20,001 characters long"),
        ("caf\udce9", "UTF-8"),
    ],
)
def test_a_bad_question_is_explained(text: str, said: str) -> None:
    with pytest.raises(PlayError, match=said):
        check_question(text)


def test_a_good_question_loses_its_edges_alone() -> None:
    assert check_question("  How\nmany?\n") == "How\nmany?"


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_600, "1.0 MB"), (3_200_000_000, "3.2 GB")],
)
def test_sizes_for_people(count: int, said: str) -> None:
    assert size_text(count) == said
