"""What untrusted SQL can do to an environment, and what it earns for nothing, in one harness.

    python -m benchmarks.peers.trust --data BIRD [--peer NAME] [--json PATH]

BIRD is a data directory from `python -m data import bird`. Each peer judges the same statements in
a process and a virtual environment of its own, on a copy of the databases:

- the hostile statements of the conformance suite: does one change the database, make a file, take
  more than 10 s, and how much memory does the peer use? What one breaks is mended before the next.
  Bytes written are those of the blocks of 4 KiB that differ afterwards, so what was written and
  taken back does not count.
- those of them that name a file, again, with the path of a database that is no peer's: is it read?
- constant policies, which send one statement per database to every question, the first question's
  effects included: which share of the questions do they earn?
- wrong answers in the forms of `wrong_answers.toml`: which ones are accepted?

Linux only (reads /proc).
"""

import os
import shutil
import sqlite3
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.measuring import DataDir, JsonPath
from benchmarks.peers.environments import NotMeasured, Worker, make_environment, report_each
from benchmarks.peers.judges import JUDGES, Case
from shared.dataset import Question, database_path, load_splits
from shared.order_by import parse_query
from shared.sqltext import quote_identifier
from tests.conformance import corpus

HANG_S = 10.0
PATIENCE_S = 30.0  # then the peer is killed
BLOCK_BYTES = 4096
WRONG_ANSWERS = Path(__file__).with_name("wrong_answers.toml")
WRONG_OF_A_FORM = 8
SHOWN_ROWS = 20  # a longer result can't be answered here, so no wrong answer is longer
CONSTANTS = (
    "SELECT 1", "SELECT 0", "SELECT NULL", "SELECT 1 WHERE 0", "SELECT * FROM {} LIMIT 1",
    "SELECT COUNT(*) FROM {}", "DELETE FROM {}",
)  # fmt: skip
Rows = list[tuple[Any, ...]]


def ask(worker: Worker, case: Case) -> float:
    """Return the reward; 0 if the judge died or did not answer."""
    try:
        return float(worker.ask(case, PATIENCE_S))
    except NotMeasured:
        return 0.0


@dataclass
class Found:
    statements: int = 0
    written: dict[str, int] = field(default_factory=dict)  # statement -> bytes
    read: list[str] = field(default_factory=list)  # names of statements
    files: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    earned: dict[str, float] = field(default_factory=dict)  # constant -> share of the questions
    questions: int = 0
    accepted: Counter[str] = field(default_factory=Counter)  # form of a wrong answer
    wrong: int = 0
    peak_mib: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def wrong_answers(data: Path, questions: Sequence[Question]) -> Iterator[tuple[str, Case]]:
    """Yield wrong answers by form, `WRONG_OF_A_FORM` of each where the data has as many."""
    golds = []
    for one in questions:  # an inner ORDER BY decides nothing
        ordered = parse_query(one.gold_sql).args.get("order") is not None
        golds.append((one, _rows(data, one, one.gold_sql), ordered))
    for kind, forms in tomllib.loads(WRONG_ANSWERS.read_text()).items():
        of_kind = [gold for gold in golds if kind in _kinds(*gold[1:])]
        for name, form in forms.items():
            cases = (
                case_of(question, sql)
                for question, rows, ordered in of_kind
                if (sql := _statement(form, question, len(rows[0])))
                if len(others := _rows(data, question, sql)) <= SHOWN_ROWS
                if rows != others and (ordered or Counter(rows) != Counter(others))
            )
            yield from ((name, case) for case in islice(cases, WRONG_OF_A_FORM))


def _rows(data: Path, question: Question, sql: str) -> Rows:
    with closing(sqlite3.connect(database_path(data, question.database_name))) as database:
        return database.execute(sql).fetchall()


def _kinds(rows: Rows, ordered: bool) -> set[str]:
    """Return which of the kinds in `wrong_answers.toml` a gold is."""
    if len(rows) == len(rows[0]) == 1:
        return {"text" if isinstance(rows[0][0], str) else "number"}
    kinds = {"rows": len(rows) > 1, "order": ordered, "columns": len(rows[0]) > 1}
    return {kind for kind, fits in kinds.items() if fits}


def _statement(form: str, question: Question, width: int) -> str:
    names = [f"c{number}" for number in range(width)]
    columns, backwards = ", ".join(names), ", ".join(names[::-1])
    gold = question.gold_sql.strip().rstrip(";")
    numbered = "SELECT *, ROW_NUMBER() OVER () AS n FROM g"
    sql = form.replace("@columns@", columns).replace("@backwards@", backwards)
    return f"WITH g({columns}) AS ({gold}\n), numbered AS ({numbered}) {sql}"


def case_of(question: Question, sql: str) -> Case:
    return {
        "question_id": question.question_id,
        "question": question.question_text,
        "db_id": question.database_name,
        "gold_sql": question.gold_sql,
        "sql": sql,
    }


def constant(template: str, questions: Sequence[Question]) -> list[Case]:
    """Return a case for each question: the statement about its database's most used table."""
    used: dict[str, Counter[str]] = {}
    for one in questions:
        used.setdefault(one.database_name, Counter()).update(one.tables_involved)
    tables = {name: counts.most_common(1)[0][0] for name, counts in used.items()}
    return [
        case_of(one, template.format(quote_identifier(tables[one.database_name])))
        for one in questions
    ]


def bytes_written(before: bytes, after: bytes) -> int:
    starts = range(0, max(len(before), len(after)), BLOCK_BYTES)
    blocks = ((one[start : start + BLOCK_BYTES] for one in (before, after)) for start in starts)
    return sum(max(len(old), len(new)) for old, new in blocks if old != new)


class Copy:
    """A copy of a data directory that a peer may spoil."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.folder = folder
        self._data = data
        shutil.copytree(data, folder)
        self._files = self._read()

    def _read(self) -> dict[Path, bytes]:
        files = (self.folder / "databases").rglob("*")
        return {one: one.read_bytes() for one in files if one.is_file()}

    def restore(self) -> int:
        """Put back the databases if they, or the files beside them, changed; return the bytes."""
        found = self._read()
        if found == self._files:
            return 0
        shutil.rmtree(self.folder / "databases")
        shutil.copytree(self._data / "databases", self.folder / "databases")
        files = found.keys() | self._files.keys()
        return sum(bytes_written(self._files.get(one, b""), found.get(one, b"")) for one in files)


def judge(name: str, python: Path, data: Path, questions: Sequence[Question]) -> Found:
    """Put every statement before one peer."""
    found = Found(questions=len(questions))
    function, packages = JUDGES[name]
    with tempfile.TemporaryDirectory(prefix="sqlenv-trust-") as scratch:
        copy, work = Copy(data, Path(scratch, "data")), Path(scratch, "work")
        work.mkdir()
        log = Path(scratch, "log")
        with Worker(python, function, packages, str(copy.folder), log=log, folder=work) as worker:
            worker.start()
            found.versions, worker.peak_mib = worker.versions, 0.0
            _hostile(worker, copy, work, questions[0], found)
            _reading(worker, copy, Path(scratch, "outside"), questions[0], found)
            found.peak_mib, worker.peak_mib = worker.peak_mib, None
            for template in CONSTANTS:
                cases = constant(template, questions)
                rewards = [ask(worker, one) for one in cases]
                found.earned[template.format("T")] = sum(rewards) / len(rewards)
                if copy.restore():
                    worker.kill()
            for form, case in wrong_answers(data, questions):
                found.wrong += 1
                found.accepted[form] += bool(ask(worker, case))
    return found


def _hostile(worker: Worker, copy: Copy, work: Path, question: Question, found: Found) -> None:
    for query, sql in _statements(copy.folder, question, work / "made"):
        began = time.monotonic()
        ask(worker, case_of(question, sql))
        found.statements += 1
        if time.monotonic() - began > HANG_S:
            found.slow.append(query.name)
            worker.kill()  # it may still be at work on it
        written = copy.restore()
        if made := list(work.iterdir()):
            found.files.append(query.name)
            for one in made:
                written += one.stat().st_size
                one.unlink()
        if written:
            found.written[query.name] = written
            worker.kill()


def _reading(worker: Worker, copy: Copy, outside: Path, question: Question, found: Found) -> None:
    """Send what names a file, the path of a database outside; the time of access shows a read."""
    for query, sql in _statements(copy.folder, question, outside):
        if "@file@" not in query.sql:
            continue
        shutil.copyfile(database_path(copy.folder, question.database_name), outside)
        os.utime(outside, (0, 0))
        ask(worker, case_of(question, sql))
        if outside.stat().st_atime:
            found.read.append(query.name)
        copy.restore()


def _statements(
    data: Path, question: Question, file: Path
) -> Iterator[tuple[corpus.HostileQuery, str]]:
    """Yield the hostile queries and their SQL for the question's first table."""
    table = question.tables_involved[0]
    with closing(sqlite3.connect(database_path(data, question.database_name))) as database:
        column = database.execute(f"SELECT * FROM {quote_identifier(table)}").description[0][0]
    for query in corpus.load():
        yield query, query.statement(table, column, str(file))


def main(
    data: DataDir,
    peer: Annotated[list[str] | None, typer.Option(help="Environment; repeatable.")] = None,
    json_path: JsonPath = None,
) -> None:
    """Put hostile and wrong SQL before this environment and others."""
    questions = [one for one in load_splits(data)["eval"] if one.answer_form == "text"]

    def measure(name: str) -> dict[str, Any]:
        python = Path(sys.executable) if name == "sqlenv" else make_environment(name)
        return vars(judge(name, python, data.resolve(), questions))

    report_each(peer, JUDGES, measure, json_path)


if __name__ == "__main__":
    typer.run(main)
