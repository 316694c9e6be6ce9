"""Import Spider (Yu et al., 2018) from its own layout; keep questions with one answer that fits.

    DIR/database/<db_id>/<db_id>.sqlite
    DIR/tables.json
    DIR/train_spider.json [DIR/train_others.json]  -> questions_train.json
    DIR/dev.json                                   -> questions_eval.json

A question's id is its file and row (`spider-dev-0012` is row 12 of dev.json, counted from 0), so
that it does not depend on which rows are dropped.
"""

import json
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
from sqlglot.errors import SqlglotError

from data.golds.execute import GoldRejected, Reason, open_readonly, run_gold
from data.sources.hardness import difficulty_of, tables_of
from data.sources.report import Flagged, ImportReport, SplitCount
from data.sources.staging import check_out, staged
from shared.console import progress_bar
from shared.dataset import SPIDER_DEV_PREFIX, Question, database_path, questions_path
from shared.errors import DatabaseLoadError, DataError

# file -> (split, prefix of its rows' ids)
FILES = {
    "train_spider.json": ("train", "spider-train-"),
    "train_others.json": ("train", "spider-others-"),
    "dev.json": ("eval", SPIDER_DEV_PREFIX),
}
OPTIONAL = {"train_others.json"}
MAX_NAMED_ROWS = 1_000  # problems listed one by one; further ones are only counted
# what lines of PRAGMA quick_check start with if the file is damaged
DAMAGE = ("***", "Tree ", "Page ", "Freelist", "On tree", "database disk image")


@dataclass(frozen=True)
class SpiderRow:
    """One row of a questions file, with all keys checked."""

    question_id: str
    split: str
    database: str
    question: str
    sql: str


def import_spider(
    source: Path,
    out: Path,
    *,
    force: bool = False,
    source_name: str | None = None,
    keep: Collection[Reason] = (),
) -> ImportReport:
    """Write `out` as a data directory with `import_report.json`, and return that report.

    The report lists what is missing, corrupt or malformed, and the import continues with the rest;
    it calls the source `source_name`. `keep`: see `run_gold`. Raises `DataError` if `source` or
    `out` cannot be used or no question is left; then `out` is unchanged.
    """
    if not source.is_dir():
        remedy = "name Spider's folder, with database/, train_spider.json and dev.json"
        raise DataError(f"no directory at {source}: {remedy}")
    check_out(out, source, force=force)
    started = time.perf_counter()
    report = ImportReport("spider", source_name or str(source.resolve()), frozenset(keep))
    rows = [row for name in FILES for row in _read_questions(source / name, report)]
    schema = _read_schema(source / "tables.json", report)
    kept = _convert(source, rows, schema, report)
    if not kept:
        raise DataError(f"no usable question in {source}:\n" + "\n".join(_why_nothing(report)))
    with staged(out) as folder:
        for split in dict.fromkeys(row.split for row in rows):
            ids = [row.question_id for row in rows if row.split == split]
            questions = [kept[question_id] for question_id in ids if question_id in kept]
            if questions:
                _write_questions(questions_path(folder, split), questions)
            else:
                report.problems.append(f"no {split} question is left: no questions_{split}.json")
        names = sorted({question.database_name for question in kept.values()})
        for name in names:
            target = database_path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_database_file(source, name), target)  # without its permissions
        report.databases = len(names)
        report.wall_s = time.perf_counter() - started
        report.write(folder)
    return report


def _why_nothing(report: ImportReport) -> list[str]:
    reasons = [
        f"{split}: {reason}: {count}"
        for split, counts in report.splits.items()
        for reason, count in counts.dropped.most_common()
    ]
    return [*report.problems[:10], *reasons] or ["it holds no question"]


def _read_json(path: Path, report: ImportReport) -> list[Any]:
    """Return the array in `path`; anything else is a problem and an empty list."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        if path.name not in OPTIONAL:
            report.problems.append(f"{path} is missing")
        return []
    except OSError as error:
        report.problems.append(f"cannot read {path}: {error.strerror}")
        return []
    except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8, or nested too deeply
        report.problems.append(f"{path} is not JSON: {error}")
        return []
    if not isinstance(value, list):
        report.problems.append(f"{path} holds no JSON array")
        return []
    return value


def _read_questions(path: Path, report: ImportReport) -> list[SpiderRow]:
    split, prefix = FILES[path.name]
    count = report.splits.setdefault(split, SplitCount())
    rows = []
    for number, raw in enumerate(_read_json(path, report)):
        count.rows += 1
        row_id = f"{prefix}{number:04}"
        if fault := _row_fault(raw):
            database = str(raw.get("db_id", "")) if isinstance(raw, dict) else ""
            report.drop(Flagged(row_id, split, database, "bad row", fault))
            if len(report.problems) < MAX_NAMED_ROWS:
                report.problems.append(f"{path.name} row {number}: {fault}")
            continue
        sql = raw["query"].strip().rstrip(";").rstrip()
        rows.append(SpiderRow(row_id, split, raw["db_id"], raw["question"].strip(), sql))
    return rows


def _row_fault(raw: Any) -> str | None:
    if not isinstance(raw, dict):
        return f"not an object but {type(raw).__name__}"
    for key in ("db_id", "question", "query"):
        if not isinstance(raw.get(key), str) or not raw[key].strip():
            return f"no text in '{key}'"
        if not _is_plain(raw[key]):
            return f"'{key}' holds a NUL or half a surrogate pair"
    if Path(raw["db_id"]).name != raw["db_id"] or raw["db_id"].startswith("."):
        return f"{raw['db_id']!r} is not a valid database name"
    return None


def _is_plain(text: str) -> bool:
    """Return whether `text` is valid in UTF-8 and SQLite; JSON allows more."""
    return not re.search("[\0\ud800-\udfff]", text)


def _read_schema(path: Path, report: ImportReport) -> dict[str, list[str]]:
    """Return the tables of each database, as tables.json declares them."""
    schema = {}
    for number, raw in enumerate(_read_json(path, report)):
        match raw:
            case {"db_id": str(db_id), "table_names_original": list(names)}:
                schema[db_id] = [str(name).encode("utf-8", "replace").decode() for name in names]
            case _:
                fault = "no 'db_id' or no 'table_names_original'"
                report.problems.append(f"{path.name} row {number}: {fault}")
    return schema


def _convert(
    source: Path, rows: Sequence[SpiderRow], schema: dict[str, list[str]], report: ImportReport
) -> dict[str, Question]:
    """Return the usable questions by id."""
    by_database: dict[str, list[SpiderRow]] = defaultdict(list)
    for row in rows:
        by_database[row.database].append(row)
    kept: dict[str, Question] = {}
    done = 0
    with progress_bar("running the golds") as progress:
        for name, group in by_database.items():
            path = _database_file(source, name)
            kept |= _convert_database(path, group, schema.get(name, []), report)
            done += len(group)
            progress(done, len(rows))
    return kept


def _convert_database(
    path: Path, rows: Sequence[SpiderRow], declared: list[str], report: ImportReport
) -> dict[str, Question]:
    """Return the usable questions of one database by id. `declared`: tables.json's tables."""
    try:
        connection, tables = _open_checked(path)
    except DatabaseLoadError as error:
        report.problems.append(f"{error.message}; {len(rows)} questions need it")
        for row in rows:
            _drop(report, row, "unusable database", error.message)
        return {}
    if missing := _missing_tables(declared, tables):
        names = ", ".join(missing)
        lacking = f"tables.json names tables that the file lacks: {names}"
        report.problems.append(f"{path.stem}: {lacking}")
    converted = [_convert_row(connection, row, tables, report) for row in rows]
    connection.close()
    return {question.question_id: question for question in converted if question is not None}


def _convert_row(
    connection: apsw.Connection, row: SpiderRow, tables: list[str], report: ImportReport
) -> Question | None:
    try:
        gold = run_gold(connection, row.sql, report.keep)
        question = Question(
            question_id=row.question_id,
            question_text=row.question,
            database_name=row.database,
            gold_sql=row.sql,
            gold_answer=gold.answer,
            answer_type=gold.answer_type,
            difficulty=difficulty_of(row.sql),
            tables_involved=tables_of(row.sql, tables),
        )
    except GoldRejected as error:
        _drop(report, row, str(error.reason), error.detail)
        return None
    except (SqlglotError, RecursionError) as error:
        _drop(report, row, "unparsed", str(error).splitlines()[0])
        return None
    count = report.splits[row.split]
    count.kept += 1
    count.difficulty[question.difficulty] += 1
    count.answer_type[question.answer_type] += 1
    for reason, detail in gold.kept.items():
        report.keep_flagged(_flagged(row, str(reason), detail))
    return question


def _drop(report: ImportReport, row: SpiderRow, reason: str, detail: str) -> None:
    report.drop(_flagged(row, reason, detail))


def _flagged(row: SpiderRow, reason: str, detail: str) -> Flagged:
    return Flagged(row.question_id, row.split, row.database, reason, detail)


def _missing_tables(declared: list[str], present: list[str]) -> list[str]:
    known = {name.lower() for name in present}
    missing = [name for name in declared if name.lower() not in known]
    return [name for name in missing if not name.lower().startswith("sqlite_")]


def _database_file(source: Path, name: str) -> Path:
    return source / "database" / name / f"{name}.sqlite"


def _open_checked(path: Path) -> tuple[apsw.Connection, list[str]]:
    """Open a database; return it with the names of its tables and views.

    Raises `DatabaseLoadError` if the file is damaged.
    """
    connection = open_readonly(path)
    try:
        lines = [str(line) for (line,) in connection.execute("PRAGMA quick_check(5)")]
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        ).fetchall()
    except (apsw.Error, UnicodeDecodeError) as error:
        connection.close()
        raise DatabaseLoadError(f"{path} is corrupt: {error}") from error
    damage = [line for line in lines if line.startswith(DAMAGE)]
    if damage:
        connection.close()
        raise DatabaseLoadError(f"{path} is corrupt: {' '.join(damage[0].split())[:200]}")
    return connection, [str(name) for (name,) in names]


def _write_questions(path: Path, questions: Sequence[Question]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps(question.model_dump(), ensure_ascii=False) for question in questions]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
