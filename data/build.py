"""Builds the shipped data from code: thirteen databases and the questions on them. The same code
gives the same bytes.

    OUT/databases/<db_id>/<db_id>.sqlite
    OUT/questions/questions_train.json    eight databases
    OUT/questions/questions_eval.json     other questions on these eight, and questions on the five others

`check` rebuilds everything elsewhere and names each file that differs. A database file holds the
number of the SQLite version that wrote it: under that version bytes are compared, under another one
the schema and the rows.
"""

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from data.choose import EVAL, MAX_ANSWER_SHARE, TRAIN, Part, deal, gives_itself_away, hard_draft
from data.domains.populate import open_memory, write_database
from data.domains.shipped import SHIPPED, Shipped
from data.domains.spec import Rows
from data.domains.templates import Asked, balanced
from data.golds.execute import GoldRejected, open_readonly, run_gold
from shared.dataset import database_path, questions_path
from shared.errors import DatabaseLoadError, DataError
from shared.sqltext import quote_identifier

DATA_DIR = Path(__file__).parent
SEED = 1
# a training database
WANTED_SEEN = {TRAIN: {"easy": 33, "medium": 41}, EVAL: {"easy": 8, "medium": 11}}
WANTED_UNSEEN = {EVAL: {"easy": 24, "medium": 27}}  # another database
HARD_EVAL_EVERY = 3  # of a training database's hard questions, each third goes to eval
LEVELS = ("easy", "medium")
SURPLUS = 1.7  # questions made for each one wanted, since many are turned away
VERSION_OFFSET = 96  # of a SQLite file: big-endian number of the version that wrote it


@dataclass
class DatabaseSummary:
    """One database of a build."""

    db_id: str
    unseen: bool
    rows: dict[str, int]  # table -> rows
    size_bytes: int
    # (split, difficulty) -> how many
    questions: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass
class Summary:
    """What a build wrote."""

    databases: list[DatabaseSummary]
    answer_types: dict[str, Counter[str]]  # split -> answer type -> how many
    forms: dict[str, Counter[str]]  # split -> form -> how many


def build(out: Path) -> Summary:
    """Write everything under `out`, replacing files of the same names. Raises DataError where a
    hard gold is unfit."""
    out = Path(out)
    train, seen, unseen = (Part(round(MAX_ANSWER_SHARE * size)) for size in _part_sizes())
    splits = (TRAIN, EVAL)
    summary = Summary(
        [], {name: Counter() for name in splits}, {name: Counter() for name in splits}
    )
    files: dict[str, list[dict[str, Any]]] = {name: [] for name in splits}
    scenes = []
    # the hard questions of all come first: the others give way to their answers
    for shipped in SHIPPED:
        rows = shipped.rows(SEED)
        parts = {EVAL: unseen} if shipped.unseen else {TRAIN: train, EVAL: seen}
        scenes.append((shipped, rows, parts, _hard_questions(shipped, rows, parts)))
    for shipped, rows, parts, hard in scenes:
        db_id = shipped.domain.db_id
        path = database_path(out, db_id)
        write_database(shipped.domain, rows, path)
        counts = {name: len(found) for name, found in rows.items()}
        entry = DatabaseSummary(db_id, shipped.unseen, counts, path.stat().st_size)
        for split, asked in _template_questions(shipped, rows, parts, hard).items():
            for number, item in enumerate([*asked, *hard[split]], start=1):
                files[split].append(_record(f"{db_id}-{split}-{number:04d}", db_id, item))
                entry.questions[split, item.draft.difficulty] += 1
                summary.answer_types[split][item.gold.answer_type] += 1
                summary.forms[split][item.draft.form] += 1
        summary.databases.append(entry)
    for split, records in files.items():
        path = questions_path(out, split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(records, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return summary


def _part_sizes() -> tuple[int, int, int]:
    """How many questions train, seen and unseen will hold."""
    train = seen = unseen = 0
    for shipped in SHIPPED:
        hard = len(shipped.domain.hard)
        if shipped.unseen:
            unseen += sum(WANTED_UNSEEN[EVAL].values()) + hard
        else:
            train += sum(WANTED_SEEN[TRAIN].values()) + hard - hard // HARD_EVAL_EVERY
            seen += sum(WANTED_SEEN[EVAL].values()) + hard // HARD_EVAL_EVERY
    return train, seen, unseen


def _template_questions(
    shipped: Shipped, rows: Rows, parts: dict[str, Part], hard: dict[str, list[Asked]]
) -> dict[str, list[Asked]]:
    """Easy and medium questions by split, the easy ones first."""
    domain = shipped.domain
    wanted = WANTED_UNSEEN if shipped.unseen else WANTED_SEEN
    sizes = {
        level: round(SURPLUS * sum(counts[level] for counts in wanted.values())) for level in LEVELS
    }
    connection = open_memory(domain, rows)
    try:
        pool = balanced(
            domain, rows, connection, random.Random(f"questions:{SEED}:{domain.db_id}"), sizes
        )
    finally:
        connection.close()
    dealt = deal(pool, wanted, parts, hard)
    for name, counts in wanted.items():
        for level, count in counts.items():
            found = sum(item.draft.difficulty == level for item in dealt[name])
            if found < count:
                raise DataError(
                    f"{domain.db_id}: {found} {level} questions for {name} where {count} are wanted"
                )
    return {
        name: sorted(found, key=lambda item: LEVELS.index(item.draft.difficulty))
        for name, found in dealt.items()
    }


def _hard_questions(shipped: Shipped, rows: Rows, parts: dict[str, Part]) -> dict[str, list[Asked]]:
    """The hand-written questions by split."""
    domain = shipped.domain
    dealt: dict[str, list[Asked]] = {name: [] for name in parts}
    connection = open_memory(domain, rows)
    try:
        for number, question in enumerate(domain.hard, start=1):
            draft = hard_draft(domain, question)
            try:
                item = Asked(draft, run_gold(connection, draft.sql))
            except GoldRejected as error:
                raise DataError(
                    f"{domain.db_id}: unfit gold of {draft.text!r}: {error.message}"
                ) from error
            if gives_itself_away(item):
                raise DataError(f"{domain.db_id}: the text holds the answer: {draft.text}")
            split = EVAL if shipped.unseen or number % HARD_EVAL_EVERY == 0 else TRAIN
            if not parts[split].take(item):
                raise DataError(
                    f"{domain.db_id}: the text, the gold or the answer is taken: {draft.text}"
                )
            dealt[split].append(item)
    finally:
        connection.close()
    return dealt


def _record(question_id: str, db_id: str, item: Asked) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "question_text": item.draft.text,
        "database_name": db_id,
        "gold_sql": item.draft.sql,
        "gold_answer": item.gold.answer,
        "answer_type": item.gold.answer_type,
        "difficulty": item.draft.difficulty,
        "tables_involved": list(item.draft.tables),
    }


def check(data_dir: Path) -> tuple[Summary, list[str]]:
    """Rebuild elsewhere: the summary, and one line for each file of `data_dir` that differs from
    the rebuilt one."""
    with tempfile.TemporaryDirectory(prefix="sqlenv-build-") as folder:
        fresh = Path(folder)
        return build(fresh), compare(Path(data_dir), fresh)


def compare(data_dir: Path, fresh: Path) -> list[str]:
    """One line for each file of `data_dir` that differs from the one built in `fresh`."""
    expected, found = set(_files(fresh)), set(_files(data_dir))
    problems = [f"{name}: missing" for name in sorted(expected - found)]
    problems += [f"{name}: not made by the build" for name in sorted(found - expected)]
    for name in sorted(expected & found):
        problem = _difference(data_dir / name, fresh / name)
        if problem is not None:
            problems.append(f"{name}: {problem}")
    return problems


def _files(data_dir: Path) -> Iterator[str]:
    for folder in ("databases", "questions"):
        for path in sorted((data_dir / folder).rglob("*")):
            if path.is_file():
                yield path.relative_to(data_dir).as_posix()


def _difference(path: Path, fresh: Path) -> str | None:
    held, made = path.read_bytes(), fresh.read_bytes()
    if held == made:
        return None
    if path.suffix != ".sqlite":
        return "differs"
    if held[VERSION_OFFSET : VERSION_OFFSET + 4] == made[VERSION_OFFSET : VERSION_OFFSET + 4]:
        return "differs"
    try:
        return None if dump(path) == dump(fresh) else "its schema or its rows differ"
    except DatabaseLoadError as error:
        return error.message


def dump(path: Path) -> list[str]:
    """The schema and every row of a database, in the order of creation and of the keys: the same
    under all versions."""
    connection = open_readonly(path)
    try:
        tables = list(connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY rowid"))
        lines = [str(sql) for _, sql in tables]
        for name, _ in tables:
            lines += [
                repr(row)
                for row in connection.execute(
                    f"SELECT * FROM {quote_identifier(name)} ORDER BY rowid"
                )
            ]
        return lines
    except apsw.Error as error:
        raise DatabaseLoadError(f"{path} can't be read: {error}") from error
    finally:
        connection.close()
