"""The rows of question files: JSON arrays, JSON lines or CSV, under the usual names of the keys."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data.choose import TRAIN
from data.golds.execute import GoldResult
from data.sources.report import Flagged, ImportReport
from shared.errors import DataError

# our name -> the names that are accepted, in any letter case; the first with a text counts
KEYS = {
    "question": ("question", "question_text"),
    "query": ("query", "sql", "gold_sql"),
    "db_id": ("db_id", "database_name", "database", "db"),
    "evidence": ("evidence",),
    "difficulty": ("difficulty",),
}
DELIMITERS = ",;\t|"
# one by one, what may be left out at the ends, quoted parts, words and other characters
_SQL = re.compile(
    r"(?P<around>\s+|;|--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|\w+|.",
    re.DOTALL,
)


@dataclass(frozen=True)
class Row:
    """One row of a questions file, with all keys checked. `split` None: it is to be chosen.

    `gold` is the result of `sql` if it has run on the database already, `difficulty` what the file
    says of it.
    """

    question_id: str
    split: str | None
    database: str
    question: str
    sql: str
    gold: GoldResult | None = None
    difficulty: str | None = None

    def flagged(self, reason: str, detail: str) -> Flagged:
        """Return a record of this row; one whose split is not chosen yet counts as training."""
        return Flagged(self.question_id, self.split or TRAIN, self.database, reason, detail)


class _RawRow(NamedTuple):
    """A row as it is in its file. `unit` is what `number` counts: rows from 0, or lines from 1."""

    unit: str
    number: int
    value: Any

    def text(self, key: str) -> str:
        """Return the text of one of `KEYS`, or "" without one."""
        if not isinstance(self.value, dict):
            return ""
        known = {str(name).strip().lower(): value for name, value in self.value.items()}
        texts = [known.get(name) for name in KEYS[key]]
        return next((text for text in texts if isinstance(text, str) and text.strip()), "")

    def fault(self, database: str | None) -> str | None:
        """Return what is wrong with it, if anything; `database` is for rows without a name."""
        if not isinstance(self.value, dict):
            return f"not an object but {type(self.value).__name__}"
        for key in ("question", "query") if database else ("db_id", "question", "query"):
            if not (text := self.text(key)):
                others = ", ".join(map(repr, KEYS[key][1:]))
                return f"no text in '{key}' (or {others})"
            if not _is_plain(text):
                return f"'{key}' holds a NUL or half a surrogate pair"
        name = database or self.text("db_id")
        if Path(name).name != name or name.startswith("."):
            return f"{name!r} is not a valid database name"
        return None


def rows_of(
    path: Path,
    split: str | None,
    prefix: str,
    report: ImportReport,
    *,
    only: str | None = None,
    evidence: bool = True,
) -> list[Row]:
    """Return the usable rows of a file; the others are dropped in `report`, with their places.

    A row's id is `prefix` and its number. `only` is the only database that there is: a file may
    call it by another name, or not name it. `evidence`: whether to append it to the question.
    Raises `DataError` for a file that holds no rows.
    """
    raws = _read_rows(path)
    if not raws:
        raise DataError(f"{path} holds no question")
    named = {raw.text("db_id") for raw in raws} - {""}
    database = only if len(named) < 2 else None
    rows: list[Row] = []
    faults: list[str] = []
    for raw in raws:
        row_id = f"{prefix}{raw.number:04}"
        if fault := raw.fault(database):
            detail = f"{path.name} {raw.unit} {raw.number}: {fault}"
            faults.append(detail)
            report.drop(Flagged(row_id, split or TRAIN, raw.text("db_id"), "bad row", detail))
            continue
        question, hint = raw.text("question").strip(), " ".join(raw.text("evidence").split())
        if evidence and hint and _is_plain(hint):
            question = f"{question} Hint: {hint}"
        sql, level = bare_sql(raw.text("query")), raw.text("difficulty").strip() or None
        name = database or raw.text("db_id")
        rows.append(Row(row_id, split, name, question, sql, difficulty=level))
    if not rows:  # a file of another form
        raise DataError(faults[0])
    return rows


def _read_rows(path: Path) -> list[_RawRow]:
    """Return the rows of a questions file. Raises `DataError`, with the path and the remedy."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        remedy = "write it (docs/own-data.md), or run 'python -m data questions DATABASE'"
        raise DataError(f"{path} is missing: {remedy}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from error
    if path.suffix.lower() in (".csv", ".tsv"):
        return list(_csv_rows(path, text))
    if text.lstrip().startswith("{"):
        return list(_json_lines(path, text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # nested too deeply
        raise DataError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, list):
        raise DataError(f"{path} holds no JSON array of questions")
    return [_RawRow("row", number, row) for number, row in enumerate(value)]


def _csv_rows(path: Path, text: str) -> Iterator[_RawRow]:
    header = io.StringIO(text, newline="").readline()
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter_of(path, header))
    before = 1  # the header's line
    try:
        for row in reader:
            yield _RawRow("line", before + 1, row)
            before = reader.line_num
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}") from error


def _json_lines(path: Path, text: str) -> Iterator[_RawRow]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield _RawRow("line", number, json.loads(line))
            except (ValueError, RecursionError) as error:
                remedy = "write an array of questions, or one object per line"
                raise DataError(f"{path} is not JSON: line {number}: {error}: {remedy}") from error


def delimiter_of(path: Path, header: str) -> str:
    """Return a tab for a .tsv file, else the delimiter with the most cells in the first line."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    cells = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in DELIMITERS}
    return max(cells, key=lambda mark: cells[mark])


def bare_sql(sql: str) -> str:
    """Return SQL without the comments and semicolons around it."""
    code = [found for found in _SQL.finditer(sql) if not found["around"]]
    return sql[code[0].start() : code[-1].end()] if code else ""


def _is_plain(text: str) -> bool:
    """Return whether `text` is valid in UTF-8 and SQLite; JSON allows more."""
    return not re.search("[\0\ud800-\udfff]", text)
