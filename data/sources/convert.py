"""What every import shares: databases are copied, golds are run on the copies, questions written.

A reader of one source (`spider.py`, `bird.py`, `own.py`) finds rows and databases, and hands them
to `import_source`.
"""

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import apsw
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.choose import EVAL, TRAIN
from data.golds.execute import GoldRejected, GoldResult, Reason, run_gold
from data.sources.hardness import difficulty_of, tables_of
from data.sources.questions import Row
from data.sources.report import UNPARSED, Flagged, ImportReport
from data.sources.split import Splitting, held_out
from data.sources.sqlite_files import open_checked
from data.sources.staging import staged
from shared.console import counted, progress_bar
from shared.dataset import Question, database_path, questions_path
from shared.errors import DatabaseLoadError, DataError

SQL_HINT = "Answer with the SQL query, as its result is too long to write."


@dataclass
class Source:
    """What a reader found.

    file_of    returns the path of the database with this name; raises `DatabaseLoadError` if
               unknown
    write      write(source, target) copies or converts source into the SQLite file target
    notes      returns lines for the report on a written database, given with its tables and views
    databases  written even if no question is kept
    dialect    sqlglot's name for the SQL dialect to try on golds that SQLite rejects
    """

    report: ImportReport
    rows: list[Row]
    file_of: Callable[[str], Path]
    write: Callable[[Path, Path], None]
    notes: Callable[[str, apsw.Connection, Sequence[str]], Iterable[str]] = lambda *_: ()
    databases: Sequence[str] = ()
    dialect: str = "sqlite"


@dataclass(frozen=True)
class _Kept:
    row: Row
    question: Question
    gold: GoldResult


def import_source(source: Source, out: Path, splitting: Splitting | None = None) -> ImportReport:
    """Write `out` as a data directory with `import_report.json`, and return that report.

    `splitting` divides the questions of rows without a split. Raises `DataError` if no question is
    left of any split that the report counts; then `out` is unchanged.
    """
    report = source.report
    with staged(out) as folder:
        kept = _convert(source, folder)
        if report.splits and not kept:
            reasons = "\n".join(report.why_nothing())
            raise DataError(f"no usable question in {report.path}:\n{reasons}")
        _write_splits(source, kept, folder, splitting)
        report.databases = len(list((folder / "databases").iterdir()))
        report.wall_s = time.perf_counter() - report.started
        report.write(folder)
    return report


def _write_splits(
    source: Source, kept: Sequence[_Kept], folder: Path, splitting: Splitting | None
) -> None:
    """Count the kept questions in the report, and write the file of each split."""
    report = source.report
    chosen: set[str] = set()
    if splitting is not None:
        open_questions = [one.question for one in kept if one.row.split is None]
        chosen = held_out(open_questions, splitting)
        if open_questions and not chosen:
            remedy = "name eval questions with --eval-questions"
            report.problems.append(f"too few different questions to hold any out: {remedy}")
    by_split: dict[str, dict[str, Question]] = defaultdict(dict)
    for one in kept:
        split = one.row.split or (EVAL if one.row.question_id in chosen else TRAIN)
        by_split[split][one.row.question_id] = one.question
        report.count(split, one.question)
        for reason, detail in one.gold.kept.items():
            report.keep_flagged(_flagged(one.row, split, str(reason), detail))
    for split in report.splits:
        questions = by_split[split]
        ordered = [
            questions[row.question_id] for row in source.rows if row.question_id in questions
        ]
        if ordered:
            _write_questions(questions_path(folder, split), ordered)
        elif any(row.split == split for row in source.rows):
            report.problems.append(f"no {split} question is left: no questions_{split}.json")


def _convert(source: Source, folder: Path) -> list[_Kept]:
    """Write the databases under `folder`; return the usable questions by database."""
    by_database: dict[str, list[Row]] = {name: [] for name in source.databases}
    for row in source.rows:
        by_database.setdefault(row.database, []).append(row)
    kept: list[_Kept] = []
    done = 0
    with progress_bar("running the golds") as progress:
        for name, rows in by_database.items():
            target = database_path(folder, name)
            usable = _convert_database(source, name, target, rows)
            if not usable and name not in source.databases:
                shutil.rmtree(target.parent, ignore_errors=True)
            kept += usable
            done += len(rows)
            progress(done, len(source.rows))
    return kept


def _convert_database(source: Source, name: str, target: Path, rows: Sequence[Row]) -> list[_Kept]:
    """Write one database; return its usable questions."""
    report, path = source.report, Path(name)
    try:
        path = source.file_of(name)
        source.write(path, target)
        connection, tables = open_checked(target)
    except DatabaseLoadError as error:
        message = error.message.replace(str(target), str(path))
        if name in source.databases:
            raise DatabaseLoadError(message) from error
        report.problems.append(f"{message}; needed by {counted(len(rows), 'question')}")
        for row in rows:
            _drop(report, row, "unusable database", message)
        return []
    with closing(connection):
        report.problems += source.notes(name, connection, tables)
        converted = [_convert_row(source, connection, row, tables) for row in rows]
    return [one for one in converted if one is not None]


def _convert_row(
    source: Source, connection: apsw.Connection, row: Row, tables: list[str]
) -> _Kept | None:
    report = source.report
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
    except GoldRejected as error:
        _drop(report, row, str(error.reason), error.detail)
        return None
    except (SqlglotError, RecursionError) as error:
        _drop(report, row, UNPARSED, str(error).splitlines()[0])
        return None
    return _Kept(row, question, gold)


def _run(source: Source, connection: apsw.Connection, sql: str) -> tuple[str, GoldResult]:
    """Run a gold as it is, or else translated from the source's dialect; return what ran."""
    try:
        return sql, run_gold(connection, sql, source.report.keep)
    except GoldRejected as error:
        if error.reason is not Reason.FAILING or source.dialect == "sqlite":
            raise
        try:
            translated = _translated(sql, source.dialect)
            gold = run_gold(connection, translated, source.report.keep)
        except (GoldRejected, SqlglotError, RecursionError):
            raise error from None
    source.report.translated += 1
    return translated, gold


def _translated(sql: str, dialect: str) -> str:
    """Return `sql` in SQLite's dialect, without the schemas before names of tables."""
    tree = cast(exp.Expression, sqlglot.parse_one(sql, dialect=dialect))
    for table in tree.find_all(exp.Table):
        table.set("db", None)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
    return str(tree.sql(dialect="sqlite"))


def _drop(report: ImportReport, row: Row, reason: str, detail: str) -> None:
    report.drop(_flagged(row, row.split or TRAIN, reason, detail))


def _flagged(row: Row, split: str, reason: str, detail: str) -> Flagged:
    return Flagged(row.question_id, split, row.database, reason, detail)


def _write_questions(path: Path, questions: Sequence[Question]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # what few questions have is written for them alone
    made = [question.model_dump(exclude_defaults=True) for question in questions]
    rows = [json.dumps(one, ensure_ascii=False) for one in made]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
