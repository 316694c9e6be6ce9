"""A data directory, as every part of SQLEnv reads it.

    DIR/databases/<db_id>/<db_id>.sqlite
    DIR/questions/questions_<split>.json      a JSON array of `Question`
    DIR/questions/open_questions.json         optional: a JSON array of `OpenQuestion`, which have no gold

A directory below `data/` that has no questions/ in the working directory is looked up among the files
that ship with the packages (`shared.shipped`).

`split` is "train" or "eval". An eval question is `unseen` where no training question touches its
database, else `seen`.

An importer marks where a question is from in its id. Those that begin with one of `DEV_PREFIXES`
are of a published development split, on which results are compared: they are for measuring, and
training on them needs an explicit flag.

An open question is somebody's own, whose answer nobody knows yet: it is of no split, and asked for
by its id alone.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from shared.errors import DatabaseLoadError, QuestionLoadError
from shared.models import AnswerType, Difficulty
from shared.shipped import shipped_path

T = TypeVar("T")


class Question(BaseModel):
    """One question with its gold: `gold_answer` is a scalar, a list (one column) or a list of rows
    (table)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    question_id: str
    question_text: str
    database_name: str
    gold_sql: str
    gold_answer: Any
    answer_type: AnswerType
    difficulty: Difficulty
    tables_involved: list[str]


class OpenQuestion(BaseModel):
    """A question without gold: an agent's answer to it is neither right nor wrong."""

    # a gold that is there must not go unseen
    model_config = ConfigDict(frozen=True, extra="forbid")

    question_id: str
    question_text: str
    database_name: str


SPIDER_DEV_PREFIX = "spider-dev-"
DEV_PREFIXES = (SPIDER_DEV_PREFIX,)

_QUESTIONS = TypeAdapter(list[Question])
_OPEN_QUESTIONS = TypeAdapter(list[OpenQuestion])
_REMEDY = "make the shipped data with 'python -m data build', or name another directory with --data"


def is_dev_question(question_id: str) -> bool:
    """Whether a question is of a published development split."""
    return question_id.startswith(DEV_PREFIXES)


def data_directory(data_dir: Path | str) -> Path:
    """Return the data directory to read for `data_dir`: itself or a shipped one."""
    return shipped_path(Path(data_dir) / "questions").parent


def questions_path(data_dir: Path, split: str) -> Path:
    return Path(data_dir) / "questions" / f"questions_{split}.json"


def open_questions_path(data_dir: Path) -> Path:
    return Path(data_dir) / "questions" / "open_questions.json"


def database_path(data_dir: Path, db_id: str) -> Path:
    return Path(data_dir) / "databases" / db_id / f"{db_id}.sqlite"


def load_questions(path: Path) -> list[Question]:
    """Every question of a file, or `QuestionLoadError` naming the path, the first bad row and the
    remedy."""
    return _load(path, _QUESTIONS)


def load_open_questions(data_dir: Path) -> list[OpenQuestion]:
    """The open questions of a data directory, of which most have none. Errors as of
    `load_questions`."""
    path = open_questions_path(data_directory(data_dir))
    return _load(path, _OPEN_QUESTIONS) if path.exists() else []


def load_splits(data_dir: Path) -> dict[str, list[Question]]:
    """Every questions file of a data directory, by split. There may be none where there are open
    questions."""
    folder = data_directory(data_dir) / "questions"
    paths = sorted(folder.glob("questions_*.json"))
    if not paths and not open_questions_path(folder.parent).exists():
        raise QuestionLoadError(f"no questions_<split>.json in {folder}; {_REMEDY}")
    return {path.stem.removeprefix("questions_"): load_questions(path) for path in paths}


def check_databases(data_dir: Path, questions: Sequence[Question | OpenQuestion]) -> None:
    """`DatabaseLoadError` naming the first database file that the questions need and that isn't
    there."""
    for db_id in sorted({question.database_name for question in questions}):
        path = database_path(data_directory(data_dir), db_id)
        if not path.is_file():
            raise DatabaseLoadError(f"no database at {path}, which questions name; {_REMEDY}")


def data_digest(data_dir: Path) -> str:
    """SHA-256, in hex, over every questions file and every database, by relative path and content."""
    total = hashlib.sha256()
    data_dir = data_directory(data_dir)
    files = sorted(data_dir.glob("questions/questions_*.json"))
    files += filter(Path.exists, [open_questions_path(data_dir)])
    files += sorted(data_dir.glob("databases/*/*.sqlite"))
    for path in files:
        total.update(json.dumps(path.relative_to(data_dir).as_posix()).encode())
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def _load(path: Path, kind: TypeAdapter[list[T]]) -> list[T]:
    try:
        questions = kind.validate_json(shipped_path(path).read_bytes())
    except OSError as error:
        raise QuestionLoadError(
            f"can't read the questions file {path}: {error.strerror}; {_REMEDY}"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise QuestionLoadError(
            f"{path} is not a questions file: {where or 'top level'}: {first['msg']}"
        ) from error
    if not questions:
        raise QuestionLoadError(f"{path} holds no question; {_REMEDY}")
    return questions
