"""Copy and check SQLite files. The user's own file is only read, never opened as a database."""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from data.golds.check_gold import open_readonly
from shared.errors import DatabaseLoadError, DataError

SUFFIXES, DUMP = (".sqlite", ".sqlite3", ".db", ".db3"), ".sql"
SIDECARS = ("-wal", "-journal")  # beside a file: its write-ahead log, or its rollback journal
COPIES = 5  # attempts to copy a file that changes meanwhile
WAIT_S = 0.2
WAL = b"\2"
MAX_DUMP_STEPS = 20_000  # millions of SQLite's steps: some minutes
# what a dump of another database has -> what to do with it
OTHER_DUMPS = {
    r"^-- (MySQL|MariaDB) dump|^\) ENGINE *=|^LOCK TABLES `": (
        "load it into MySQL, and copy that with 'pip install mysql-to-sqlite3' and "
        "mysql2sqlite -f shop.sqlite -d shop -u USER, then import shop.sqlite"
    ),
    r"^-- PostgreSQL database dump|^COPY .* FROM stdin;|^SET statement_timeout": (
        "createdb shop && psql shop --file=DUMP, then import postgres postgresql:///shop"
    ),
    r"^SET IDENTITY_INSERT |^GO\s*$": "export each table as CSV, and use import csv",
}
# what lines of PRAGMA quick_check start with if the file is damaged
DAMAGE = ("***", "Tree ", "Page ", "Freelist", "On tree", "database disk image")


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file in its last committed state, without its permissions.

    Its -wal or -journal is copied too, and SQLite applies it to the copy: no lock is needed, and
    nothing is created beside `source`. A link is followed first: SQLite keeps those files beside
    the file that it leads to. Raises `DatabaseLoadError`, which names `source`.
    """
    try:
        if not source.is_file():
            raise DatabaseLoadError(f"no database at {source}")
        with source.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise DatabaseLoadError(f"can't open {source}: {error.strerror}") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix.lower() == DUMP:
        _restore(source, target)
        return
    if header and not header.startswith(b"SQLite format 3\0"):
        remedy = "for CSV use 'import csv', for PostgreSQL 'import postgres'"
        raise DatabaseLoadError(f"{source} is not a SQLite database: {remedy}")
    real = source.resolve()
    for _ in range(COPIES):
        before = _state(real)
        copied = [suffix for suffix in ("", *SIDECARS) if suffix in before]
        for suffix in copied:
            shutil.copyfile(f"{real}{suffix}", f"{target}{suffix}")
        if _state(real) == before:
            break
        time.sleep(WAIT_S)
    else:
        remedy = f"close the program, or import a copy: sqlite3 {source} '.backup copy.db'"
        raise DatabaseLoadError(f"{source} is being written to: {remedy}")
    if len(copied) > 1 or header[18:19] == WAL:
        try:  # SQLite applies what was copied beside `target`
            with closing(apsw.Connection(str(target))) as connection:
                connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        except apsw.Error as error:
            raise DatabaseLoadError(f"{source} is corrupt: {error}") from error
        for suffix in (*SIDECARS, "-shm"):
            Path(f"{target}{suffix}").unlink(missing_ok=True)


def _restore(source: Path, target: Path) -> None:
    """Write the database that a dump of SQLite's holds. Others are refused with the way in."""
    try:
        dump = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatabaseLoadError(f"{source} is not UTF-8 ({error}): save it as UTF-8") from error
    for mark, remedy in OTHER_DUMPS.items():
        if re.search(mark, dump, re.MULTILINE | re.IGNORECASE):
            raise DatabaseLoadError(f"{source} is no dump of SQLite: {remedy}")
    steps = 0

    def over_budget() -> bool:
        nonlocal steps
        steps += 1
        return steps > MAX_DUMP_STEPS

    try:
        with closing(apsw.Connection(str(target))) as connection:
            connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)  # it writes no other file
            connection.set_progress_handler(over_budget, 1_000_000)
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(dump)
            if connection.in_transaction:
                connection.execute("COMMIT")
    except apsw.Error as error:
        remedy = "write it again with: sqlite3 FILE .dump"
        raise DatabaseLoadError(
            f"{source} is no dump that SQLite reads: {error}; {remedy}"
        ) from error


@contextmanager
def new_database(path: Path) -> Iterator[apsw.Connection]:
    """Yield a connection to a new file, in one transaction. SQLite's errors become `DataError`s."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("PRAGMA synchronous = OFF; BEGIN")  # the file is new
            yield connection
            connection.execute("COMMIT")
    except apsw.Error as error:
        raise DataError(f"SQLite cannot hold this database: {error}") from error


@contextmanager
def open_checked(path: Path) -> Iterator[tuple[apsw.Connection, list[str]]]:
    """Open a database; yield it with the names of its tables and views. Raises `DatabaseLoadError`
    if the file is damaged, or has none."""
    with closing(open_readonly(path)) as connection:
        try:
            with suppress(apsw.SQLError):  # a collation of the application that wrote the file
                for (line,) in connection.execute("PRAGMA quick_check(5)"):
                    if str(line).startswith(DAMAGE):
                        damage = " ".join(str(line).split())[:200]
                        raise DatabaseLoadError(f"{path} is corrupt: {damage}")
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
            ).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise DatabaseLoadError(f"{path} is corrupt: {error}") from error
        if not names:
            raise DatabaseLoadError(f"{path} has no table")
        yield connection, [str(name) for (name,) in names]


def _state(source: Path) -> dict[str, tuple[int, int, int]]:
    """Return the size and times of the file and of what is beside it."""
    found = {}
    for suffix in ("", *SIDECARS):
        with suppress(FileNotFoundError):
            status = Path(f"{source}{suffix}").stat()
            found[suffix] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found
