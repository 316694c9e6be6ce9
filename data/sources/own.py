"""Read a user's own databases, with or without questions: SQLite files, CSV files, PostgreSQL.

A reader takes what the user names, the files of questions about it, and the directory to write.
"""

import re
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.choose import EVAL, TRAIN
from data.golds.check_gold import GoldRejected, Reason, open_readonly, run_gold
from data.sources.import_source import Source
from data.sources.mend import mend
from data.sources.postgres import database_name, shown, write_postgres
from data.sources.questions import Row, rows_of
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import DUMP, SUFFIXES, copy_database
from data.sources.table_files import table_files, write_database
from shared.dataset import OPEN, OpenQuestion, check_inside
from shared.errors import DatabaseLoadError, DataError
from shared.order_by import Row as SqlRow
from shared.sql_parser import parse_sql

TEXT_OPERATIONS = (
    *(exp.Substring, exp.StrPosition, exp.Replace, exp.DPipe, exp.Cast, exp.Like, exp.Glob),
    *(exp.Trim, exp.Length),
)
SHOWN_CHANGES = 5  # that a note names of each database
SUFFIX = ".txt"  # of questions without SQL
_OTHER_FORMAT = re.compile(r"[\[{]|question(_text)?[,;|]", re.IGNORECASE)
JSON = "name JSON, JSON lines or CSV with SQL (see docs/own-data.md)"


def read_sqlite(
    sources: Sequence[str], asked: Sequence[Path], out: Path, *, mending: bool = False
) -> Source:
    """Read SQLite files, and those below folders; a database is named after its file.

    Without `mending`, only report what that would change.
    """
    if not (asked or mending):
        named = "name a file with --questions (see docs/own-data.md)"
        made = "generate some: python -m data questions DATABASE"
        raise DataError(f"no questions: {named}, or {made}")
    paths = list(map(Path, sources))
    found = sqlite_files(paths, out)
    report = ImportReport("sqlite", ", ".join(str(path.resolve()) for path in paths))

    def write(path: Path, target: Path) -> None:
        copy_database(path, target)
        source.answers = _answers(target, source.rows) if mending else {}
        try:
            mended, count = mend(target, write=mending), SHOWN_CHANGES
        except (apsw.Error, UnicodeDecodeError) as error:
            if mending:
                raise DatabaseLoadError(f"{path} can't be mended: {error}") from error
            return  # whoever reads it next names the damage
        if not (mended.changes or mended.problems):
            return
        if mending:
            report.problems += (f"{path.name}: {problem}" for problem in mended.problems)
            report.notes += (f"{path.name}: {change}" for change in mended.changes)
            source.names.clear()  # of the database before
            source.columns.clear()
            source.names |= {("", old.lower()): new for old, new in mended.tables.items()}
            source.columns |= {old.lower(): new for old, new in mended.columns.items()}
            source.readers = mended.readers
            return
        more = f"; and {len(mended.changes) - count:,} more" * (len(mended.changes) > count)
        report.notes.append(
            f"{path.name} is copied as it is; with --mend, "
            f"{'; '.join(mended.changes[:count])}{more}"
        )

    source = Source(report, [], found, write, [*found.values(), *asked])
    return source


def _answers(path: Path, rows: Sequence[Row]) -> dict[str, list[SqlRow]]:
    """Return what a database answers, before mending, to the golds about it that take texts apart
    and find something: if the texts change, they may find another thing."""
    answers = {}
    with closing(open_readonly(path)) as connection:
        for sql in (row.sql for row in rows if row.database == path.stem):
            with suppress(GoldRejected, SqlglotError, RecursionError):
                if not parse_sql(sql).find(*TEXT_OPERATIONS):
                    continue
                found = run_gold(connection, sql, (Reason.TIED, Reason.UNDECIDED)).rows
                if found not in (((0,),), ((0.0,),)):
                    answers[sql] = list(found)
    return answers


def sqlite_files(paths: Sequence[Path], out: Path) -> dict[str, Path]:
    """Return the SQLite files among `paths` and below folders, by name. Raises `DataError`."""
    found: dict[str, Path] = {}
    for path in paths:
        for one in _files_below(path, out) if path.is_dir() else [path]:
            if (twin := found.setdefault(one.stem, one)) != one:
                raise DataError(f"{twin} and {one} have the same name: rename one")
    return found


def _files_below(folder: Path, out: Path) -> list[Path]:
    """Return the SQLite files below a folder, without the copies of an earlier import to `out`."""
    out = out.resolve()
    copies = out if folder.resolve() in out.parents else None
    for suffixes in (SUFFIXES, (DUMP,)):  # a database's folder may hold its schema too
        files = [path for path in folder.rglob("*") if path.suffix.lower() in suffixes]
        found = [path for path in files if path.is_file() and copies not in path.resolve().parents]
        if found:
            check_inside(folder, found)
            return sorted(found)
    raise DataError(f"no SQLite file ({', '.join(SUFFIXES)}, or a dump: {DUMP}) below {folder}")


def read_csv(
    sources: Sequence[str], asked: Sequence[Path], _out: Path, *, skip_bad_rows: bool = False
) -> Source:
    """Read a folder of table files as one database with its name, or one file."""
    folder = Path(_only(sources))
    report = ImportReport("csv", str(folder.resolve()))
    files = table_files(folder, report, without=asked)

    def write(_folder: Path, target: Path) -> None:
        source.names |= write_database(files, target, report, skip_bad_rows=skip_bad_rows)

    source = Source(report, [], {name_of(folder): folder}, write, [*files, *asked])
    return source


def read_postgres(sources: Sequence[str], asked: Sequence[Path], _out: Path) -> Source:
    """Read a PostgreSQL database, named by its URL; golds may be in its SQL."""
    url = _only(sources)
    name = database_name(url)
    report = ImportReport("postgres", shown(url))

    def write(_path: Path, target: Path) -> None:
        golds = dict.fromkeys(row.sql for row in found.rows)
        found.names, found.answers = write_postgres(url, target, report, golds)

    databases = {name: Path(report.path)}
    found = Source(report, [], databases, write, list(asked), dialect="postgres")
    return found


def _only(sources: Sequence[str]) -> str:
    if len(sources) > 1:
        raise DataError(f"expected one source, got {len(sources)}: import them one by one")
    return sources[0]


def name_of(source: Path | str) -> str:
    """Return the name of a folder, of a file without its suffix, or of a URL's database."""
    if "://" in str(source):
        return database_name(str(source))
    path = Path(source).resolve()
    return path.name if path.is_dir() else path.stem


def add_questions(source: Source, questions: Path | None, eval_questions: Path | None) -> Source:
    """Read the files of questions. A single database is written even if none is about it."""
    files = [path for path in (questions, eval_questions) if path]
    if eval_questions and eval_questions.suffix.lower() == SUFFIX:
        raise DataError(f"{eval_questions} has no SQL, so nothing can be measured on it: {JSON}")
    unanswered = questions is not None and questions.suffix.lower() == SUFFIX
    if files:
        kinds = [OPEN, *[EVAL] * bool(eval_questions)] if unanswered else [TRAIN, EVAL]
        source.report.splits = {split: SplitCount() for split in kinds}
    if len(source.databases) == 1:
        source.only = next(iter(source.databases))
    same = len({path.stem for path in files}) < len(files)
    split = TRAIN if eval_questions else None
    for path, to, mark in ((questions, split, ""), (eval_questions, EVAL, "eval-" * same)):
        if path is not None:
            prefix = f"{path.stem}-{mark}"
            if path.suffix.lower() == SUFFIX:
                source.open = _open_questions(path, prefix, source.only)
            else:
                source.rows += rows_of(path, to, prefix, source.report, only=source.only)
    return source


def _open_questions(path: Path, prefix: str, database: str | None) -> list[OpenQuestion]:
    """Return the questions of a file about the only `database`; an id is `prefix` and the line.
    Raises `DataError`, with the path and the remedy."""
    if database is None:
        raise DataError(f"{path} names no databases: import one database at a time")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "write one question per line, in UTF-8"
        raise DataError(f"cannot read {path} ({error}): {remedy}") from error
    asked = [(at, " ".join(line.split())) for at, line in enumerate(lines, 1) if line.strip()]
    if not asked:
        raise DataError(f"{path} holds no question: write one per line")
    for number, text in asked:
        if "\0" in text or _OTHER_FORMAT.match(text):
            remedy = "JSON or CSV with SQL needs another suffix"
            raise DataError(f"{path} line {number} is no question: {text[:60]!r}: {remedy}")
    return [
        OpenQuestion(question_id=f"{prefix}{number:04}", question_text=text, database_name=database)
        for number, text in asked
    ]
