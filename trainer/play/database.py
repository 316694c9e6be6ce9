"""Makes a data directory, which an environment server can host, of a user's database file.

The file is only read. Without a log beside it, the directory holds a symbolic link to it, which the
server opens immutable: no copy, no lock, no -shm file. With a write-ahead log or a journal beside
it, SQLite's backup API copies the committed state.
"""

import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from shared.console import write_json
from shared.dataset import DESCRIPTIONS, OPEN, OpenQuestion, database_path, questions_path
from shared.errors import DatabaseLoadError
from shared.sqltext import needs_quotes, sql_name
from trainer.play.notes import Notes, check_notes, load_notes, notes_path

BUSY_S = 10.0  # to wait for another program's lock


@dataclass(frozen=True)
class Database:
    """A user's SQLite file. `log` is a write-ahead log or a journal beside it, if it has one."""

    given: Path
    path: Path  # absolute, without links: a log is beside the file itself
    stat: os.stat_result
    log: Path | None
    notes: Notes = field(default_factory=Notes)
    notes_path: Path | None = None  # if there is such a file
    quoted_names: Sequence[str] = ()  # of tables and columns, as SQL needs them: in quotes

    @property
    def how(self) -> str:
        return f"read from a copy that includes {self.log.name}" if self.log else "read in place"

    @property
    def quoted(self) -> str:
        return shlex.quote(os.path.expanduser(self.given))

    def changed(self) -> bool:
        now, then = self.path.stat(), self.stat
        return (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns)


def examine(given: Path, notes: Path | None = None) -> Database:
    """Return the database at a path, with the notes on it, by default those beside it, or raise
    `DatabaseLoadError` or `PlayError`."""
    named = Path(os.path.expanduser(given))  # ~x is a file if there is no user x
    try:
        path = named.resolve()
        if not path.exists():
            raise DatabaseLoadError(f"no file at {given}: give --db the path of a SQLite database")
        if not path.is_file():
            raise DatabaseLoadError(f"{given} is not a regular file: name a SQLite database")
        path.open("rb").close()
        stat = path.stat()
        logs = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
        log = next((log for log in logs if log.is_file() and log.stat().st_size), None)
    except OSError as error:
        raise DatabaseLoadError(
            f"can't read {given}: {error.strerror}; make it readable for this user"
        ) from error
    database = Database(given, path, stat, log)
    if not (stat.st_size or log):
        raise DatabaseLoadError(f"{given} is empty: name a SQLite database with tables")
    found = notes or notes_path(named)
    if notes is not None or found.exists():
        database = replace(database, notes=load_notes(found), notes_path=found)
    with _opened(database) as connection:  # it can be read
        check_notes(database.notes, found, connection)
        names = dict.fromkeys(filter(needs_quotes, schema_names(connection)))
    return replace(database, quoted_names=[*map(sql_name, names)])


def host(database: Database, questions: list[str], folder: Path) -> tuple[Path, list[str]]:
    db_id = re.sub(r"\W+", "_", database.path.stem, flags=re.ASCII).strip("_")[:40] or "database"
    rows = [
        OpenQuestion(question_id=f"open-{number}", question_text=text, database_name=db_id)
        for number, text in enumerate(questions, start=1)
    ]
    target, asked = database_path(folder, db_id), questions_path(folder, OPEN)
    target.parent.mkdir(parents=True)
    asked.parent.mkdir()
    write_json(asked, [row.model_dump() for row in rows])
    if texts := database.notes.texts:
        write_json(target.with_name(DESCRIPTIONS), texts)
    if database.log is None:
        target.symlink_to(database.path)
    else:
        with _opened(database) as source, closing(sqlite3.connect(target)) as copy:
            # Hold the read lock: backup() would wait for a locked file forever.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchone()
    return target, [row.question_id for row in rows]


def schema_names(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the names of the tables and views, and of their columns."""
    tables = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    for (table,) in connection.execute(f"{tables} AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"):
        yield table
        with suppress(sqlite3.Error):  # of a broken view or an unknown module
            columns = connection.execute("SELECT name FROM pragma_table_info(?)", [table])
            yield from (name for (name,) in columns)


@contextmanager
def _opened(database: Database) -> Iterator[sqlite3.Connection]:
    """Open the file read-only; immutable if it has no log, so that SQLite creates no -shm file.
    SQLite's errors in the block become a `DatabaseLoadError` with a remedy."""
    options = "mode=ro" if database.log else "mode=ro&immutable=1"
    uri = f"{database.path.as_uri()}?{options}"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        with closing(connection):
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield connection
    except sqlite3.Error as error:
        remedies = {
            sqlite3.SQLITE_NOTADB: "unpack or decrypt it first; to make a database of a CSV or "
            "Excel file: python -m data import csv FILE --out DIR",
            sqlite3.SQLITE_BUSY: "close the program that writes to it",
            # no -shm file can be made beside a log
            sqlite3.SQLITE_CANTOPEN: "copy it with its -wal file to a folder that you can write to",
            # a journal of a program that was killed
            sqlite3.SQLITE_READONLY: "roll back its unfinished transaction with: "
            f"sqlite3 {database.quoted} 'SELECT count(*) FROM sqlite_master'",
        }
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        remedy = remedies.get(code, f"save what is left with: sqlite3 {database.quoted} .recover")
        raise DatabaseLoadError(f"SQLite can't read {database.given}: {error}; {remedy}") from error
