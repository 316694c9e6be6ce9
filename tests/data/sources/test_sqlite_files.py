"""A database is copied in its last committed state, whoever uses it, and never touched."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from data.sources import sqlite_files
from data.sources.sqlite_files import copy_database
from shared.errors import DatabaseLoadError
from tests.data.sources.importing import files_of, make_database


def count(path: Path) -> int:
    """Return the number of items, as a server reads them: without looking at a -wal."""
    connection = apsw.Connection(
        f"file:{path}?mode=ro&immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    found = next(connection.execute("SELECT count(*) FROM item"))[0]
    connection.close()
    return int(found)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return make_database(tmp_path / "own" / "shop.db")


def copied(shop: Path) -> Path:
    """Return a copy of the database, made without any change beside it."""
    before = files_of(shop.parent)
    target = shop.parents[1] / "copy" / "shop.sqlite"
    copy_database(shop, target)
    assert files_of(shop.parent) == before
    assert [path.name for path in target.parent.iterdir()] == ["shop.sqlite"]
    return target


def test_rows_that_are_only_in_the_wal_are_copied(shop: Path) -> None:
    writer = apsw.Connection(str(shop))
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("INSERT INTO item VALUES (5, 'mug', 3)")
    writer.execute("BEGIN; INSERT INTO item VALUES (6, 'pot', 3)")  # not committed
    assert count(copied(shop)) == 5
    (link := shop.parents[1] / "link.db").symlink_to(shop)
    copy_database(link, target := shop.parents[1] / "linked.sqlite")
    assert count(target) == 5
    writer.close()


def test_a_locked_database_is_copied_as_committed(shop: Path) -> None:
    writer = apsw.Connection(str(shop))
    writer.execute("PRAGMA cache_size = 1; BEGIN EXCLUSIVE")
    rows = ((n, "x" * 500, 1) for n in range(10, 500))  # spilled into the file before the commit
    writer.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)
    assert Path(f"{shop}-journal").exists()
    assert count(copied(shop)) == 4
    writer.execute("COMMIT")
    assert count(copied(shop)) == 494
    writer.close()


def test_a_file_without_a_journal_keeps_its_bytes(shop: Path) -> None:
    os.chmod(shop, 0o444)
    os.chmod(shop.parent, 0o555)
    assert copied(shop).read_bytes() == shop.read_bytes()
    os.chmod(shop.parent, 0o755)


def test_a_file_that_never_rests_is_an_error(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_files, "WAIT_S", 0)
    changes = iter(range(10, 100))
    monkeypatch.setattr(shutil, "copyfile", written_to(shop, lambda: next(changes)))
    with pytest.raises(DatabaseLoadError, match=r"shop\.db is being written to: .*\.backup"):
        copy_database(shop, shop.parents[1] / "copy.sqlite")


def written_to(shop: Path, change: Callable[[], int | None]) -> Callable[[str, str], None]:
    """Return a `copyfile` after which the database has one more row, as long as there are ids."""
    copy = shutil.copyfile

    def copyfile(source: str, target: str) -> None:
        copy(source, target)
        if (number := change()) is not None:
            writer = apsw.Connection(str(shop))
            writer.execute("INSERT INTO item VALUES (?, 'x', 1)", (number,))
            writer.close()
            os.utime(shop, ns=(number, number))  # whatever the file system's resolution

    return copyfile
