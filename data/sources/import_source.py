"""What every import shares: databases are copied, golds are run on the copies, questions written.

A reader of one source (`spider.py`, `bird.py`, `own.py`) returns its rows and databases as a
`Source`, and `import_source` writes the whole directory or nothing.
"""

import hashlib
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import apsw
from sqlglot.errors import SqlglotError

from data.cell_formats import is_missing
from data.choose import EVAL, TRAIN, Splitting, held_out
from data.golds.check_gold import KEEP_EMPTY, GoldRejected, GoldResult, Reason, run_gold
from data.golds.hardness import difficulty_of, tables_of
from data.golds.undecided import Readers, same_rows, short_rows
from data.sources.dialects import to_sqlite
from data.sources.questions import Row
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import open_checked
from shared.console import counted, progress_bar
from shared.dataset import (
    IMPORT_REPORT,
    NOTES_SUFFIX,
    OPEN,
    OpenQuestion,
    Question,
    database_path,
    questions_path,
)
from shared.errors import DatabaseLoadError, DataError
from shared.order_by import Row as SqlRow
from shared.sql_parser import parse_sql

SQL_HINT = "Answer with the SQL query, as its result is too long to write."


@dataclass
class Source:
    """What a reader found.

    databases  name -> file
    write      write(source, target) copies or converts source into the SQLite file target
    inputs     what the output must not overlap
    open       the questions without SQL
    only       the database that is written even if no question is kept
    dialect    sqlglot's name for the SQL dialect of golds, beside SQLite's
    names      new names of tables, by schema ("" for any) and name; see `to_sqlite`
    columns    new names of columns, by name; see `to_sqlite`
    answers    what the source's own database answers to golds, or it before mending, by their SQL
    readers    what reads the cells that were mended
    """

    report: ImportReport
    rows: list[Row]
    databases: Mapping[str, Path]
    write: Callable[[Path, Path], None]
    inputs: Sequence[Path]
    only: str | None = None
    dialect: str = "sqlite"
    open: Sequence[OpenQuestion] = ()
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    answers: Mapping[str, list[SqlRow]] = field(default_factory=dict)
    readers: Readers | None = None


class _Kept(NamedTuple):
    row: Row
    question: Question
    gold: GoldResult


def check_out(out: Path, sources: Iterable[Path], *, force: bool, kind: str | None = None) -> None:
    """Raise `DataError` if `out` cannot be replaced.

    It overlaps a source, contains the current directory, is a file, or, unless `force`, holds
    anything but what an import of the same `kind` wrote, and a user's notes.
    """
    out = out.resolve()
    places = ((one.resolve(), one.parent.resolve() / one.name) for one in sources)
    for source in chain.from_iterable(places):  # a link, too, would be replaced
        if out == source or out in source.parents or source in out.parents:
            raise DataError(f"--out {out} and the source {source} overlap: name another directory")
    if Path.cwd().is_relative_to(out):
        raise DataError(f"--out {out} contains the current directory: name another directory")
    if out.exists() and not out.is_dir():
        raise DataError(f"--out {out} is a file: name a directory")
    if out.is_dir() and any(out.iterdir()) and not force:
        origin = "not from an import"
        if (report := out / IMPORT_REPORT).is_file():
            written = report.read_bytes()
            if _digest(out).encode() in written:
                earlier = json.loads(written).get("source")
                if kind in (None, earlier):
                    return
                origin = f"holds data of another kind ({earlier})"
            else:
                origin = "was changed since it was written"
        remedy = "name another directory, or replace it with --force"
        raise DataError(f"--out {out} is not empty and {origin}: {remedy}")


def _digest(folder: Path) -> str:
    """Return a digest of every file below `folder` except an import's report and a user's notes."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        kept = path == folder / IMPORT_REPORT or path.name.endswith(NOTES_SUFFIX)
        if path.is_file() and not kept:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(json.dumps([path.relative_to(folder).as_posix(), digest]).encode())
    return total.hexdigest()


@contextmanager
def beside(out: Path) -> Iterator[Path]:
    """Yield a temporary folder on the file system of `out`."""
    parent = next(folder for folder in out.resolve().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.resolve().name}.partial-") as path:
        yield Path(path)


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """Yield an empty directory that replaces `out` when the block ends without an error."""
    with beside(out) as folder:
        new, old = folder / "new", folder / "old"
        new.mkdir()
        yield new
        out = out.resolve()
        if out.exists():
            for notes in out.rglob(f"*{NOTES_SUFFIX}"):
                target = new / notes.relative_to(out)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(notes, target)
            out.rename(old)
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise


def import_source(
    source: Source,
    out: Path,
    *,
    force: bool = False,
    keep: Collection[Reason] = (),
    splitting: Splitting | None = None,
) -> ImportReport:
    """Write `out` as a data directory with `import_report.json`, and return that report.

    `force`: see `check_out`; `keep`: see `run_gold`; `splitting` divides the questions of rows
    without a split. Raises `DataError` if `out` cannot be used or no question is left of any split
    that the report counts; then `out` is unchanged.
    """
    report = source.report
    check_out(out, source.inputs, force=force, kind=report.source)
    report.keep |= frozenset(keep)
    with _staged(out) as folder:
        kept = _convert(source, folder)
        if report.splits and not (kept or source.open):
            dropped = [f"{one.question_id}: {one.reason}: {one.detail}" for one in report.dropped]
            reasons = "\n".join([*report.problems[:10], *dropped[:10]]) or "it holds no question"
            raise DataError(f"no usable question in {report.path}:\n{reasons}")
        _write_splits(source, kept, folder, splitting)
        report.databases = len(list((folder / "databases").iterdir()))
        report.digest = _digest(folder)
        report.write(folder)
    return report


def _convert(source: Source, folder: Path) -> list[_Kept]:
    """Write the databases under `folder`; return the usable questions by database."""
    by_database: dict[str, list[Row]] = {source.only: []} if source.only else {}
    for row in source.rows:
        by_database.setdefault(row.database, []).append(row)
    kept: list[_Kept] = []
    with progress_bar("running the golds") as progress:
        for number, (name, rows) in enumerate(by_database.items(), start=1):
            target = database_path(folder, name)
            usable = _convert_database(source, name, target, rows)
            if not usable and name != source.only:
                shutil.rmtree(target.parent, ignore_errors=True)
            kept += usable
            progress(number, len(by_database))
    return kept


def _convert_database(source: Source, name: str, target: Path, rows: Sequence[Row]) -> list[_Kept]:
    report, path = source.report, source.databases.get(name, Path(name))
    try:
        if name not in source.databases:
            raise DatabaseLoadError(f"no database {name!r} among those to import")
        source.write(path, target)
        with open_checked(target) as (connection, tables):
            if report.source == "csv" or source.columns:  # an old name in quotes is no text
                connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
            converted = [_convert_row(source, connection, row, tables) for row in rows]
        return [one for one in converted if one is not None]
    except DatabaseLoadError as error:
        message = error.message.replace(str(target), str(path))
        if name == source.only:
            raise DatabaseLoadError(message) from error
        report.problems.append(f"{message}; needed by {counted(len(rows), 'question')}")
        for row in rows:
            report.drop(row.flagged("unusable database", message))
        return []


def _convert_row(
    source: Source, connection: apsw.Connection, row: Row, tables: list[str]
) -> _Kept | None:
    try:
        sql, gold = (row.sql, row.gold) if row.gold else _run(source, connection, row.sql)
        large = Reason.OVERSIZE in gold.kept
        question = Question(
            question_id=row.question_id,
            question_text=f"{row.question} {SQL_HINT}" if large else row.question,
            database_name=row.database,
            gold_sql=sql,
            gold_answer=gold.answer,
            answer_type=gold.answer_type,
            difficulty=difficulty_of(sql),
            tables_involved=tables_of(sql, tables),
            source_difficulty=row.difficulty,
            answer_form="sql" if large else "text",
        )
        return _Kept(row, question, gold)
    except GoldRejected as error:
        reason, detail = error.reason, error.detail
    except (SqlglotError, RecursionError) as error:
        reason, detail = Reason.UNPARSED, str(error).splitlines()[0]
    source.report.drop(row.flagged(str(reason), detail))
    return None


def _run(source: Source, connection: apsw.Connection, sql: str) -> tuple[str, GoldResult]:
    """Run a gold as it is, or else translated from the source's dialect; return what ran."""
    wanted, failed, other = source.answers.get(sql), None, ""
    for candidate in _candidates(source, sql):
        try:
            gold = run_gold(connection, candidate, source.report.keep)
        except GoldRejected as error:
            if failed is None or (candidate != sql and error.reason is not Reason.FAILING):
                failed = error
            if wanted is None and error.reason is not Reason.FAILING:
                break
            continue
        ordered = wanted and parse_sql(sql, source.dialect).args.get("order") is not None
        if (
            wanted is None
            or Reason.TIED in gold.kept
            or _same_answer(gold.rows, wanted, bool(ordered), source.readers)
        ):
            source.report.translated += candidate != sql
            return candidate, gold
        before = "before mending" if source.dialect == "sqlite" else "its own database"
        other = f"SQLite answers {short_rows(gold.rows)}, and {before} {short_rows(wanted)}"
    mended = source.dialect == "sqlite" and wanted is not None
    if mended and failed is not None and failed.reason in KEEP_EMPTY:
        other = f"SQLite answers {failed.detail}, and before mending {short_rows(wanted or [])}"
        failed = None
    if failed is None or (other and failed.reason is Reason.FAILING):
        raise GoldRejected(Reason.MENDED if mended else Reason.DIALECT, other)
    raise failed


def _same_answer(
    left: Sequence[SqlRow], right: Sequence[SqlRow], ordered: bool, readers: Readers | None
) -> bool:
    """Return whether both are the same; where cells were mended, texts for nothing are NULL."""
    if readers is not None:
        left, right = (
            [
                tuple(None if isinstance(one, str) and is_missing(one) else one for one in row)
                for row in rows
            ]
            for rows in (left, right)
        )
    return same_rows(left, right, ordered, readers)


def _candidates(source: Source, sql: str) -> Iterator[str]:
    yield sql
    if source.names or source.columns or source.dialect != "sqlite":
        columns = [table.columns.items() for table in source.report.tables]
        booleans = {name.lower() for one in columns for name, kind in one if kind == "BOOLEAN"}
        with suppress(SqlglotError, RecursionError, ValueError):
            yield to_sqlite(sql, source.names, booleans, source.dialect, source.columns)


def _write_splits(
    source: Source, kept: Sequence[_Kept], folder: Path, splitting: Splitting | None
) -> None:
    """Count the kept questions in the report, and write the file of each split."""
    report = source.report
    unsplit = [one.question for one in kept if one.row.split is None]
    chosen = held_out(unsplit, splitting) if splitting else set()
    if splitting and unsplit and not chosen:
        remedy = "name eval questions with --eval-questions"
        report.notes.append(f"too few different questions to hold any out: {remedy}")
    lines: dict[str, list[str]] = defaultdict(list)
    place = {row.question_id: at for at, row in enumerate(source.rows)}
    for row, question, gold in sorted(kept, key=lambda one: place[one.row.question_id]):
        split = row.split or (EVAL if row.question_id in chosen else TRAIN)
        content = question.model_dump(exclude_defaults=True)
        lines[split].append(json.dumps(content, ensure_ascii=False))
        report.splits[split].rows += 1
        report.splits[split].kept += 1
        report.hard += question.difficulty == "hard"
        for reason, detail in gold.kept.items():
            report.splits[split].kept_on_request[str(reason)] += 1
            report.kept_on_request.append(replace(row.flagged(str(reason), detail), split=split))
    if source.open:
        lines[OPEN] = [json.dumps(one.model_dump(), ensure_ascii=False) for one in source.open]
        report.splits[OPEN] = SplitCount(len(source.open), len(source.open))
    for split, rows in lines.items():
        path = questions_path(folder, split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[\n{}\n]\n".format(",\n".join(rows)), encoding="utf-8")
