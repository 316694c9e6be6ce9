"""Imports Spider (Yu et al., 2018) from its own layout, keeping the questions whose gold has one
answer that fits.

    DIR/database/<db_id>/<db_id>.sqlite     DIR/tables.json
    DIR/train_spider.json [DIR/train_others.json] -> questions_train.json     DIR/dev.json -> questions_eval.json

A question's id is its file and row (`spider-dev-0012` is row 12 of dev.json, counted from 0), so
that it stays the same whatever else is dropped.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
from sqlglot.errors import SqlglotError

from data.golds.execute import GoldRejected, open_readonly, run_gold
from data.sources.hardness import difficulty_of, tables_of
from data.sources.landing import check_place, copy_database, landing
from data.sources.report import Dropped, ImportReport, SplitCount
from shared.dataset import SPIDER_DEV_PREFIX, Question, database_path, questions_path
from shared.errors import DatabaseLoadError, DataError

# file -> (split, how the ids of its rows begin)
FILES = {
    "train_spider.json": ("train", "spider-train-"),
    "train_others.json": ("train", "spider-others-"),
    "dev.json": ("eval", SPIDER_DEV_PREFIX),
}
OPTIONAL = {"train_others.json"}
MAX_NAMED_ROWS = 1_000  # problems named one by one; beyond, the counts in the table tell
# quick_check's own words
DECLARES_DAMAGE = ("***", "Tree ", "Page ", "Freelist", "On tree", "database disk image")

Progress = Callable[[int, int], None]  # (rows done, rows in all)


@dataclass(frozen=True)
class SpiderRow:
    """One row of a questions file, checked for its keys."""

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
    named: str | None = None,
    progress: Progress = lambda _done, _all: None,
) -> ImportReport:
    """Writes `out` as a data directory (shared.dataset) with `import_report.json`, and returns that
    report.

    What is missing, corrupt or malformed is named in the report and the rest goes on. Raises
    `DataError` where `source` or `out` can't be used, or where no question is left; then `out` is
    as it was. `named` is what the report calls the source.
    """
    source, out = Path(source), Path(out)
    if not source.is_dir():
        raise DataError(
            f"no directory at {source}; it must hold Spider's database/, train_spider.json and dev.json"
        )
    check_place(out, source, force=force)
    started = time.perf_counter()
    report = ImportReport("spider", named or str(source.resolve()))
    rows = [row for name in FILES for row in _read_questions(source / name, report)]
    schema = _read_schema(source / "tables.json", report)
    kept = _convert(source, rows, schema, report, progress)
    if not kept:
        raise DataError(f"nothing in {source} can be used:\n" + "\n".join(_why_nothing(report)))
    with landing(out) as made:
        for split in dict.fromkeys(row.split for row in rows):
            chosen = [
                kept[row.question_id]
                for row in rows
                if row.split == split and row.question_id in kept
            ]
            if chosen:
                _write_questions(questions_path(made, split), chosen)
            else:
                report.problems.append(
                    f"no {split} question is left, so there is no questions_{split}.json"
                )
        names = sorted({question.database_name for question in kept.values()})
        for name in names:
            copy_database(_database_file(source, name), database_path(made, name))
        report.databases = len(names)
        report.wall_s = time.perf_counter() - started
        report.write(made)
    return report


def _why_nothing(report: ImportReport) -> list[str]:
    reasons = [
        f"{split}: {reason}: {n}"
        for split, c in report.splits.items()
        for reason, n in c.dropped.most_common()
    ]
    return [*report.problems[:10], *reasons] or ["it holds no question"]


def _read_json(path: Path, report: ImportReport) -> list[Any]:
    """The array in `path`; anything else is a problem and an empty list."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        if path.name not in OPTIONAL:
            report.problems.append(f"{path} is missing")
        return []
    except OSError as error:
        report.problems.append(f"can't read {path}: {error.strerror}")
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
            report.drop(Dropped(row_id, split, database, "bad row", fault))
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
        return f"{raw['db_id']!r} can't be a database's name"
    return None


def _is_plain(text: str) -> bool:
    """Whether `text` can be written as UTF-8 and handed to SQLite; JSON can spell more."""
    return not re.search("[\0\ud800-\udfff]", text)


def _read_schema(path: Path, report: ImportReport) -> dict[str, list[str]]:
    """Database -> its tables, as tables.json declares them."""
    schema = {}
    for number, raw in enumerate(_read_json(path, report)):
        match raw:
            case {"db_id": str(db_id), "table_names_original": list(names)}:
                schema[db_id] = [str(name).encode("utf-8", "replace").decode() for name in names]
            case _:
                report.problems.append(
                    f"{path.name} row {number}: no 'db_id' or no 'table_names_original'"
                )
    return schema


def _convert(
    source: Path,
    rows: Sequence[SpiderRow],
    schema: dict[str, list[str]],
    report: ImportReport,
    progress: Progress,
) -> dict[str, Question]:
    """question_id -> question, for the rows that can be used. One database is open at a time."""
    by_database: dict[str, list[SpiderRow]] = defaultdict(list)
    for row in rows:
        by_database[row.database].append(row)
    kept: dict[str, Question] = {}
    done = 0
    for name, group in by_database.items():
        try:
            connection, tables = _open_checked(_database_file(source, name))
        except DatabaseLoadError as error:
            report.problems.append(f"{error.message}; {len(group)} questions need it")
            for row in group:
                report.drop(
                    Dropped(row.question_id, row.split, name, "unusable database", error.message)
                )
        else:
            if absent := _absent_tables(schema.get(name, []), tables):
                report.problems.append(
                    f"{name}: tables.json names tables that the file lacks: {', '.join(absent)}"
                )
            for row in group:
                if (question := _convert_row(connection, row, tables, report)) is not None:
                    kept[row.question_id] = question
            connection.close()
        done += len(group)
        progress(done, len(rows))
    return kept


def _convert_row(
    connection: apsw.Connection, row: SpiderRow, tables: list[str], report: ImportReport
) -> Question | None:
    try:
        gold = run_gold(connection, row.sql)
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
        report.drop(
            Dropped(row.question_id, row.split, row.database, str(error.reason), error.detail)
        )
        return None
    except (SqlglotError, RecursionError) as error:
        detail = str(error).splitlines()[0]
        report.drop(Dropped(row.question_id, row.split, row.database, "unparsed", detail))
        return None
    count = report.splits[row.split]
    count.kept += 1
    count.difficulty[question.difficulty] += 1
    count.answer_type[question.answer_type] += 1
    return question


def _absent_tables(declared: list[str], present: list[str]) -> list[str]:
    known = {name.lower() for name in present}
    return [
        name
        for name in declared
        if name.lower() not in known and not name.lower().startswith("sqlite_")
    ]


def _database_file(source: Path, name: str) -> Path:
    return source / "database" / name / f"{name}.sqlite"


def _open_checked(path: Path) -> tuple[apsw.Connection, list[str]]:
    """A read-only connection and its tables' and views' names, or `DatabaseLoadError` where the
    file is damaged."""
    connection = open_readonly(path)
    try:
        lines = [str(line) for (line,) in connection.execute("PRAGMA quick_check(5)")]
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        ).fetchall()
    except (apsw.Error, UnicodeDecodeError) as error:
        connection.close()
        raise DatabaseLoadError(f"{path} is corrupt: {error}") from error
    damage = [line for line in lines if line.startswith(DECLARES_DAMAGE)]
    if damage:
        connection.close()
        raise DatabaseLoadError(f"{path} is corrupt: {' '.join(damage[0].split())[:200]}")
    return connection, [str(name) for (name,) in names]


def _write_questions(path: Path, questions: Sequence[Question]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(
        json.dumps(question.model_dump(), ensure_ascii=False) for question in questions
    )
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
