"""From a database file of the user's to a data directory that an environment server can host.

The file is only ever read. Where all that was committed is in it, a symbolic link stands for it in
the directory, and the server opens it immutable: no copy, no lock, no -shm file. Where a
write-ahead log or the journal of an unfinished transaction lies beside it, file and log are copied,
and SQLite folds the one copy into the other.
"""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path

from shared.dataset import OpenQuestion, database_path, open_questions_path
from shared.errors import DatabaseLoadError
from trainer.errors import PlayError

MAX_COPY_BYTES = 1_000_000_000  # file and log; beyond it the user is asked to fold the log in
COPY_ATTEMPTS = 3  # while another program writes
MAX_QUESTION_CHARS = 20_000
SUFFIXES = (".sqlite", ".sqlite3", ".db", ".db3")
LISTED = 5  # files that an error names
NEARNESS = 0.8  # of a name, for a hint at it; a shared suffix alone reaches 0.6

_HEADER = b"SQLite format 3\0"
_HEADER_BYTES = 100
_WAL_HEADER_BYTES = 32  # a log without a frame after it changes nothing
# of a transaction that was not finished; zeros once it was
_JOURNAL = bytes.fromhex("d9d505f920a163d7")
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
# random bytes take some 251 of 256 values in so many; text and tables don't
_SAMPLE_BYTES, _RANDOM_VALUES = 1024, 200

Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Database:
    """A file that looks like a SQLite database. `log` holds changes that are not in it yet; None:
    there are none."""

    given: Path
    path: Path  # absolute, without links: a log lies beside the file itself
    size_bytes: int
    log: Path | None
    stamp: Stamp

    @property
    def files(self) -> list[Path]:
        return [self.path] if self.log is None else [self.path, self.log]

    def changed(self) -> bool:
        """Whether somebody has written it since."""
        return _stamp(self.files) != self.stamp


@dataclass(frozen=True)
class Hosted:
    """A data directory with the user's database and questions in it. `how` says what was done with
    the file."""

    data_dir: Path
    question_ids: list[str]
    how: str


def examine(given: Path) -> Database:
    """Look at the file, without SQLite. `DatabaseLoadError` says what is wrong with it and what
    helps."""
    try:
        path = given.expanduser().resolve()
        if path.is_dir():
            raise DatabaseLoadError(
                f"{given} is a directory: name the SQLite file in it{_files_in(path)}"
            )
        if not path.exists():
            raise DatabaseLoadError(
                f"no file at {given}: give --db the path of a SQLite database{_similar(path)}"
            )
        if not path.is_file():
            raise DatabaseLoadError(f"{given} is no regular file: copy the database into one")
        with path.open("rb") as file:
            start = file.read(_SAMPLE_BYTES)
        log = _log(path)
        size = path.stat().st_size
        _check_header(given, start, size, log)
        return Database(given, path, size, log, _stamp([path] if log is None else [path, log]))
    except OSError as error:
        raise _unreadable(given, error) from error
    except RuntimeError as error:  # pathlib's, of symbolic links that lead in a circle
        raise DatabaseLoadError(
            f"{given} is a symbolic link that leads back to itself: name the file"
        ) from error


def check_question(text: str) -> str:
    """The question without white space around it, or `PlayError`."""
    text = text.strip()
    if not text:
        raise PlayError(
            "the question is empty: ask something, for example --question 'How many orders are there?'"
        )
    if len(text) > MAX_QUESTION_CHARS:
        raise PlayError(
            f"the question is {len(text):,} characters long, over {MAX_QUESTION_CHARS:,}: ask it in fewer words"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PlayError(
            "the question holds bytes that are not UTF-8 text: write it in UTF-8"
        ) from error
    return text


def host(database: Database, questions: list[str], folder: Path) -> Hosted:
    """Make `folder` a data directory of the database and the questions, which must have passed
    `check_question`.

    `question_ids` are in the order of `questions`; a question's id follows from its text.
    `DatabaseLoadError` where the file can't be copied, `PlayError` where the folder can't be made.
    """
    db_id = re.sub(r"\W+", "_", database.path.stem, flags=re.ASCII).strip("_")[:40] or "database"
    ids = [f"open-{sha256(text.encode()).hexdigest()[:12]}" for text in questions]
    rows = [
        OpenQuestion(question_id=question_id, question_text=text, database_name=db_id).model_dump()
        for question_id, text in dict(zip(ids, questions, strict=True)).items()
    ]
    target, asked = database_path(folder, db_id), open_questions_path(folder)
    try:
        target.parent.mkdir(parents=True)
        asked.parent.mkdir()
        asked.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise PlayError(
            f"can't make a data directory at {folder}: {error.strerror}; name an empty place"
        ) from error
    if database.log is None:
        target.symlink_to(database.path)
        return Hosted(folder, ids, "read where it is")
    _copy(database, target)
    _fold(database, target)
    log_bytes = database.log.stat().st_size if database.log.exists() else 0
    kind = "write-ahead log" if database.log.name.endswith("-wal") else "journal"
    return Hosted(folder, ids, f"read from a copy, its {kind} of {size_text(log_bytes)} folded in")


def size_text(count: int) -> str:
    """Bytes for people: 812 B, 4.1 kB, 2.3 GB."""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        del units[0]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def _check_header(given: Path, start: bytes, size: int, log: Path | None) -> None:
    if not size and log is None:
        raise DatabaseLoadError(f"{given} is empty (0 bytes), so it has no table to explore")
    if not start.startswith(_HEADER):
        packed = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
        if packed is not None:
            raise DatabaseLoadError(f"{given} is a {packed} file: unpack it first")
        if size % 512 == 0 and len(set(start)) > _RANDOM_VALUES:
            raise DatabaseLoadError(
                f"{given} is encrypted, or no SQLite database: its bytes look random. Write a decrypted copy with the "
                "program that made it (SQLCipher: sqlcipher_export) and name that"
            )
        raise DatabaseLoadError(
            f"{given} is not a SQLite database: it begins with {start[:16]!r}. A CSV file becomes one with: sqlite3 "
            "new.sqlite '.import --csv FILE TABLE'"
        )
    # The header knows the size where the last change was made by a SQLite that writes it there
    # (since 2010).
    pages, known = int.from_bytes(start[28:32]), start[24:28] == start[92:96]
    page_bytes = int.from_bytes(start[16:18]) if start[16:18] != b"\0\1" else 65_536
    cut = size < _HEADER_BYTES or (known and pages * page_bytes > size)
    if cut and log is None:
        raise DatabaseLoadError(
            f"{given} is cut short: it has {size:,} bytes and should have {max(pages * page_bytes, 512):,}. Copy it "
            "anew, or save what is left with: sqlite3 FILE .recover"
        )


def _log(path: Path) -> Path | None:
    """The write-ahead log or the journal beside a database, where it holds anything."""
    wal, journal = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    if wal.is_file() and wal.stat().st_size > _WAL_HEADER_BYTES:
        return wal
    if journal.is_file():
        with journal.open("rb") as file:
            if file.read(len(_JOURNAL)) == _JOURNAL:
                return journal
    return None


def _copy(database: Database, target: Path) -> None:
    """Copy the file and its log as they are at one moment: again where somebody wrote them
    meanwhile."""
    assert database.log is not None
    given = database.given
    needed = sum(path.stat().st_size for path in database.files)
    fold = f"close the program that writes it, or fold the log in with: sqlite3 {given} 'PRAGMA wal_checkpoint'"
    if needed > MAX_COPY_BYTES:
        raise DatabaseLoadError(
            f"{database.log.name} holds changes that are not in {given} yet, and the two are too big to be copied "
            f"({size_text(needed)}, over {size_text(MAX_COPY_BYTES)}): {fold}"
        )
    if (free := shutil.disk_usage(target.parent).free) < 2 * needed:
        raise DatabaseLoadError(
            f"{given} must be copied, since {database.log.name} holds changes that are not in it yet, but "
            f"{target.parent} has only {size_text(free)} free: set TMPDIR to a roomier place, or {fold}"
        )
    log_copy = target.with_name(target.name + database.log.name.removeprefix(database.path.name))
    try:
        for _ in range(COPY_ATTEMPTS):
            before = _stamp(database.files)
            shutil.copyfile(database.path, target)
            shutil.copyfile(database.log, log_copy)
            if _stamp(database.files) == before:
                return
    except FileNotFoundError as error:
        raise DatabaseLoadError(
            f"{database.log} went away while it was copied: ask again"
        ) from error
    except OSError as error:
        raise _unreadable(given, error) from error
    raise DatabaseLoadError(
        f"another program keeps writing {given}: stop it, or make a copy with: sqlite3 {given} '.backup copy.sqlite'"
    )


def _fold(database: Database, copy: Path) -> None:
    """Leave the copy as one file without a log, as SQLite's own recovery does it."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        raise DatabaseLoadError(
            f"SQLite can't read {database.given} with {database.files[-1].name} beside it: {error}. Save what is left "
            "with: sqlite3 FILE .recover"
        ) from error


def _stamp(paths: list[Path]) -> Stamp:
    """Size and time of change of each; (-1, -1) of one that isn't there."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
        except FileNotFoundError:
            found.append((-1, -1))
        else:
            found.append((stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _unreadable(given: Path, error: OSError) -> DatabaseLoadError:
    remedy = (
        f"make it readable for this user: chmod u+r {given}"
        if isinstance(error, PermissionError)
        else "check it"
    )
    return DatabaseLoadError(f"can't read {error.filename or given}: {error.strerror}; {remedy}")


def _files_in(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.suffix in SUFFIXES)[:LISTED]
    return f" ({', '.join(names)})" if names else ""


def _similar(path: Path) -> str:
    """A hint at a file of nearly that name."""
    if not path.parent.is_dir():
        return ""
    near = get_close_matches(path.name, [one.name for one in path.parent.iterdir()], 1, NEARNESS)
    return f"; did you mean {near[0]}?" if near else ""
