"""The rows of question files, in JSON or as tables, under the usual names of the keys."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from data.cell_formats import plain
from data.choose import TRAIN
from data.golds.check_gold import GoldResult
from data.sources.delimited_text import as_utf8
from data.sources.report import Flagged, ImportReport
from data.sources.text_and_sheets import SHEETS, TEXTS, Found, tables_in, unpacked
from shared.answers.cells import visible
from shared.errors import DataError

# our name -> the names that are accepted, in any letter case; the first with a text counts
# names of the query, and of other things too
PERHAPS_SQL = "answer", "output", "completion", "response", "target", "gold", "assistant", "gpt"
KEYS = {
    "question": (
        *("question", "question_text", "nl_question", "natural_language_question", "utterance"),
        *("nl", "nlq", "instruction", "prompt", "user", "human", "input"),
    ),
    "query": (
        *("query", "sql", "gold_sql", "sql_query", "gold_query", "sqlite", "sql_code", "statement"),
        *PERHAPS_SQL,
    ),
    "db_id": ("db_id", "database_name", "database", "db"),
    "evidence": ("evidence",),
    "difficulty": ("difficulty",),
}
# words in other names, of which one may be meant
WORDS = {"question": {"question", "nl", "natural", "utterances", "frage"}, "query": {"sql"}}
_STARTS = re.compile(r"\s*(?:select\b|with\b|values\b|\()|.*```", re.IGNORECASE | re.DOTALL)
_FENCED = re.compile(r"```[ \t]*\w*\s*(.*?)\s*```", re.DOTALL)
# what word processors write for quotes and spaces
_TYPED = {ord(char): "'" for char in "‘’‚"} | {ord(char): '"' for char in "“”„"}
_TYPED |= dict.fromkeys(map(ord, "\u00a0\u2007\u202f\u3000"), " ")
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

    def keys(self) -> dict[str, Any]:
        """Return its values by keys in lower case; the messages of a chat by their roles."""
        if not isinstance(self.value, dict):
            return {}
        known = {re.sub(r"[\W_]+", "_", plain(str(k)).lower()): v for k, v in self.value.items()}
        for chat in list(known.values()):
            for one in chat if isinstance(chat, list) else []:
                if _is_message(one):
                    content = one.get("content", one.get("value"))
                    if isinstance(content, list):
                        content = "".join(str(part.get("text", "")) for part in content)
                    known[str(one.get("role", one.get("from"))).lower()] = content
        return known

    def text(self, key: str) -> str:
        """Return the text of one of `KEYS`, or "" without one."""
        known = self.keys()
        others = [name for name in known if WORDS.get(key, set()) & set(name.split("_"))]
        for name in (*KEYS[key], *(others if len(others) == 1 else [])):
            text = known.get(name)
            bare = visible(text) if isinstance(text, str) else ""
            if bare.strip() and (name not in PERHAPS_SQL or _STARTS.match(bare)):
                return bare
        return ""

    def fault(self, database: str | None) -> str | None:
        """Return what is wrong with it, if anything; `database` is for rows without a name."""
        if not isinstance(self.value, dict):
            return f"not an object but {type(self.value).__name__}"
        for key in ("question", "query") if database else ("db_id", "question", "query"):
            if not (text := self.text(key)):
                others, there = ", ".join(KEYS[key][1:]), ", ".join(map(str, self.value))
                return f"no text in '{key}' (or {others}), but there is: {there[:100]}"
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

    A row's id is `prefix` and its number, or its place if numbers repeat, as those of two sheets.
    `only` is the only database that there is: a file may call it by another name, or not name it.
    `evidence`: whether to append it to the question. Raises `DataError` for a file that holds no
    rows.
    """
    raws = _read_rows(path, report)
    if not raws:
        raise DataError(f"{path} holds no question")
    named = {raw.text("db_id") for raw in raws} - {""}
    database = only if len(named) < 2 else None
    rows: list[Row] = []
    faults: list[str] = []
    repeat = len({raw.number for raw in raws}) < len(raws)
    for place, raw in enumerate(raws):
        row_id = f"{prefix}{place if repeat else raw.number:04}"
        if fault := raw.fault(database):
            detail = f"{path.name} {raw.unit} {raw.number}: {fault}"
            faults.append(detail)
            report.drop(Flagged(row_id, split or TRAIN, raw.text("db_id"), "bad row", detail))
            continue
        question, hint = plain(raw.text("question")), " ".join(raw.text("evidence").split())
        if evidence and hint and _is_plain(hint):
            question = f"{question} Hint: {hint}"
        sql, level = bare_sql(raw.text("query")), raw.text("difficulty").strip() or None
        name = database or raw.text("db_id")
        rows.append(Row(row_id, split, name, question, sql, difficulty=level))
    if not rows:  # a file of another form
        raise DataError(faults[0])
    return rows


def _read_rows(path: Path, report: ImportReport) -> list[_RawRow]:
    """Return the rows of a questions file. Raises `DataError`, with the path and the remedy."""
    try:
        path.stat()
        with TemporaryDirectory(prefix="sqlenv-import-") as scratch:
            return [
                row
                for found in unpacked(path, Path(scratch))
                for row in _rows_in(found, Path(scratch), report)
            ]
    except FileNotFoundError as error:
        remedy = "write it (docs/own-data.md), or run 'python -m data questions DATABASE'"
        raise DataError(f"{path} is missing: {remedy}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _rows_in(found: Found, scratch: Path, report: ImportReport) -> Iterator[_RawRow]:
    if found.suffix in (*TEXTS, *SHEETS):
        for _, table in tables_in(found, scratch):
            for record in table.rows:
                value = dict(zip(table.header, record.cells, strict=True))
                yield _RawRow(table.unit, record.line, value)
            report.notes += table.notes
            report.problems += table.lost
        return
    report.notes += as_utf8(found.path, scratch / "utf8", found.shown)
    yield from _json_rows(found.shown, (scratch / "utf8").read_text(encoding="utf-8"))


def _json_rows(shown: str, text: str) -> Iterator[_RawRow]:
    """Yield the rows of an array, of one inside an object, or of objects one after the other."""
    at, line, counted, decoder = 0, 1, 0, json.JSONDecoder()
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:  # nested too deeply
            remedy = "write an array of questions, or one object per line"
            raise DataError(f"{shown} is not JSON: line {line}: {error}: {remedy}") from error
        inside = list(value.values()) if isinstance(value, dict) else []
        found = [  # in an object, or one of objects by ids
            rows
            for rows in (*inside, inside)
            if isinstance(rows, list)
            and rows
            and all(isinstance(one, dict) and not _is_message(one) for one in rows)
        ]
        if len(found) == 1:
            value = found[0]
        if isinstance(value, list):
            yield from (_RawRow("row", number, row) for number, row in enumerate(value))
        else:
            yield _RawRow("line", line, value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and bool({"role", "from"} & value.keys())


def bare_sql(sql: str) -> str:
    """Return SQL without the fence, comments and semicolons around it, with plain quotes."""
    fenced = _FENCED.search(sql)
    parts = (found[0] for found in _SQL.finditer(fenced[1] if fenced else sql))
    text = "".join(part if part[0] in "'\"`[" else part.translate(_TYPED) for part in parts)
    code = [found for found in _SQL.finditer(text) if not found["around"]]
    return text[code[0].start() : code[-1].end()] if code else ""


def _is_plain(text: str) -> bool:
    """Return whether `text` is valid in UTF-8 and SQLite; JSON allows more."""
    return not re.search("[\0\ud800-\udfff]", text)
