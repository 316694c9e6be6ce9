"""Build the shipped data: thirteen databases and the questions on them, always the same bytes.

    OUT/databases/<db_id>/<db_id>.sqlite
    OUT/questions/questions_train.json    questions on eight databases
    OUT/questions/questions_eval.json     other questions on these, and questions on the other five

`compare` lists the files that differ between a data directory and a fresh build. A database file
contains the number of the SQLite version that wrote it: with the same version bytes are compared,
with another one the schema and the rows.
"""

import json
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw

from data.choose import (
    EVAL,
    MAX_ANSWER_SHARE,
    TRAIN,
    SplitQuota,
    Splits,
    contains_answer,
    distribute,
    hard_draft,
)
from data.domains.populate import open_memory, write_database
from data.domains.shipped import SHIPPED, Shipped
from data.domains.spec import Rows
from data.domains.templates import AnsweredDraft, balanced
from data.golds.execute import GoldRejected, open_readonly, run_gold
from shared.dataset import Question, database_path, questions_path
from shared.errors import DatabaseLoadError, DataError
from shared.models import Difficulty
from shared.sqltext import quote_identifier

DATA_DIR = Path(__file__).parent
SEED = 1
# Questions per seen and per unseen database, by split and difficulty.
WANTED_SEEN = {TRAIN: {"easy": 33, "medium": 41}, EVAL: {"easy": 8, "medium": 11}}
WANTED_UNSEEN = {EVAL: {"easy": 24, "medium": 27}}
HARD_EVAL_EVERY = 3  # every third hard question of a seen database goes to eval
DIFFICULTIES = ("easy", "medium")
SURPLUS = 1.7  # questions generated per wanted one, since many are refused
VERSION_OFFSET = 96  # of a SQLite file: big-endian number of the version that wrote it


@dataclass(frozen=True)
class _Source:
    """A database under construction, with its quotas and hard questions by split."""

    shipped: Shipped
    rows: Rows
    quotas: dict[str, SplitQuota]
    hard: Splits


def build(out: Path) -> None:
    """Write everything under `out`, replacing files of the same names.

    Raises `DataError` if a hard question is unfit or a database yields too few questions.
    """
    files: dict[str, list[Question]] = {TRAIN: [], EVAL: []}
    for source in _sources():
        domain = source.shipped.domain
        write_database(domain, source.rows, database_path(out, domain.db_id))
        for split, question_id, item in _questions(source):
            files[split].append(as_question(question_id, domain.db_id, item))
    for split, questions in files.items():
        write_json(
            questions_path(out, split),
            [question.model_dump(exclude_defaults=True) for question in questions],
        )


def write_json(path: Path, content: Any) -> None:
    """Write `content` as an indented JSON file, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def as_question(question_id: str, db_id: str, item: AnsweredDraft) -> Question:
    """Return an answered draft as the questions files hold it."""
    return Question(
        question_id=question_id,
        question_text=item.draft.text,
        database_name=db_id,
        gold_sql=item.draft.sql,
        gold_answer=item.gold.answer,
        answer_type=item.gold.answer_type,
        difficulty=cast(Difficulty, item.draft.difficulty),
        tables_involved=list(item.draft.tables),
    )


def _sources() -> list[_Source]:
    """Return every database; all hard questions come before any other question in the quotas."""
    train = seen = unseen = 0  # how many questions each quota will hold
    for shipped in SHIPPED:
        hard = len(shipped.domain.hard)
        if shipped.unseen:
            unseen += sum(WANTED_UNSEEN[EVAL].values()) + hard
        else:
            train += sum(WANTED_SEEN[TRAIN].values()) + hard - hard // HARD_EVAL_EVERY
            seen += sum(WANTED_SEEN[EVAL].values()) + hard // HARD_EVAL_EVERY
    quotas = [SplitQuota(round(MAX_ANSWER_SHARE * size)) for size in (train, seen, unseen)]
    sources = []
    for shipped in SHIPPED:
        rows = shipped.rows(SEED)
        own = {EVAL: quotas[2]} if shipped.unseen else {TRAIN: quotas[0], EVAL: quotas[1]}
        sources.append(_Source(shipped, rows, own, _hard_questions(shipped, rows, own)))
    return sources


def _questions(source: _Source) -> Iterator[tuple[str, str, AnsweredDraft]]:
    """Yield the split, the id and the draft of each question."""
    for split, drafts in _template_questions(source).items():
        for number, item in enumerate([*drafts, *source.hard[split]], start=1):
            yield split, f"{source.shipped.domain.db_id}-{split}-{number:04d}", item


def _template_questions(source: _Source) -> Splits:
    """Return easy and medium questions by split, the easy ones first."""
    domain = source.shipped.domain
    wanted = WANTED_UNSEEN if source.shipped.unseen else WANTED_SEEN
    sizes = {
        difficulty: round(SURPLUS * sum(counts[difficulty] for counts in wanted.values()))
        for difficulty in DIFFICULTIES
    }
    rng = random.Random(f"questions:{SEED}:{domain.db_id}")
    with closing(open_memory(domain, source.rows)) as connection:
        pool = balanced(domain, source.rows, connection, rng, sizes)
    chosen = distribute(pool, wanted, source.quotas, source.hard)
    for split, counts in wanted.items():
        for difficulty, count in counts.items():
            enough = sum(item.draft.difficulty == difficulty for item in chosen[split])
            if enough < count:
                wanted_count = f"{count} {difficulty} {split} questions"
                raise DataError(f"{domain.db_id}: only {enough} of {wanted_count}")
        chosen[split].sort(key=lambda item: DIFFICULTIES.index(item.draft.difficulty))
    return chosen


def _hard_questions(shipped: Shipped, rows: Rows, quotas: dict[str, SplitQuota]) -> Splits:
    """Return the hand-written questions by split."""
    domain = shipped.domain
    chosen: Splits = {split: [] for split in quotas}
    with closing(open_memory(domain, rows)) as connection:
        for number, question in enumerate(domain.hard, start=1):
            draft = hard_draft(domain, question)
            where = f"{domain.db_id}: {draft.text!r}"
            try:
                item = AnsweredDraft(draft, run_gold(connection, draft.sql))
            except GoldRejected as error:
                raise DataError(f"{where}: unfit gold: {error.message}") from error
            if contains_answer(draft.text, item.gold.answer):
                raise DataError(f"{where}: the text contains the answer")
            split = EVAL if shipped.unseen or number % HARD_EVAL_EVERY == 0 else TRAIN
            if not quotas[split].accept(item):
                raise DataError(f"{where}: another question has the text, the gold or the answer")
            chosen[split].append(item)
    return chosen


def compare(data_dir: Path, fresh: Path) -> list[str]:
    """Return one line for each file of `data_dir` that differs from the one built in `fresh`."""
    expected, present = set(_files(fresh)), set(_files(data_dir))
    problems = [f"{name}: missing" for name in sorted(expected - present)]
    problems += [f"{name}: not written by the build" for name in sorted(present - expected)]
    for name in sorted(expected & present):
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
    present, built = path.read_bytes(), fresh.read_bytes()
    if present == built:
        return None
    version = slice(VERSION_OFFSET, VERSION_OFFSET + 4)
    if path.suffix != ".sqlite" or present[version] == built[version]:
        return "differs"
    try:
        return None if dump(path) == dump(fresh) else "its schema or its rows differ"
    except DatabaseLoadError as error:
        return error.message


def dump(path: Path) -> list[str]:
    """Return the schema and every row of a database, independent of the SQLite version."""
    with closing(open_readonly(path)) as connection:
        try:
            tables = list(connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY rowid"))
            lines = [str(sql) for _, sql in tables]
            for name in (quote_identifier(str(name)) for name, _ in tables):
                rows = connection.execute(f"SELECT * FROM {name} ORDER BY rowid")
                lines += map(repr, rows)
            return lines
        except apsw.Error as error:
            raise DatabaseLoadError(f"cannot read {path}: {error}") from error
