"""The format of a data directory, and how it is read.

    DIR/databases/<db_id>/<db_id>.sqlite
    DIR/questions/questions_<split>.json      a JSON array of `Question`
    DIR/questions/open_questions.json         optional: a JSON array of `OpenQuestion`

`db_id` is one folder's name. A database, or its descriptions, that is a link to a file outside DIR
is refused: whoever wrote the data would decide which files of the machine are shown.

A directory below `data/` that has no questions/ in the working directory is looked up among the
files that ship with the packages (`shared.shipped`).

`split` is "train" or "eval", or "open" for the open questions. An eval question is `unseen` if no
training or open question uses its database, else `seen`. Ids that start with one of `DEV_PREFIXES`
belong to a published development split, on which results are compared: training on them needs an
explicit flag.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from shared.errors import DatabaseLoadError, QuestionLoadError, first_problem
from shared.models import AnswerForm, AnswerType, Difficulty
from shared.shipped import shipped_path

T = TypeVar("T")
OPEN = "open"  # the split of open questions, and their difficulty


def _one_folder(name: str) -> str:
    if not name.isprintable() or name in ("", ".", "..") or set(name) & {"/", "\\"}:
        raise ValueError(f"{name[:80]!r} is no name of a folder")
    return name


DatabaseName = Annotated[str, AfterValidator(_one_folder)]


class Question(BaseModel):
    """A question with its gold answer: a scalar, a list (one column) or a list of rows (table)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    question_id: str
    question_text: str
    database_name: DatabaseName
    gold_sql: str
    gold_answer: Any
    answer_type: AnswerType
    difficulty: Difficulty
    tables_involved: list[str]
    source_difficulty: str | None = None  # as its data set rates it, beside ours
    answer_form: AnswerForm = "text"  # "sql" where the answer is too large to write

    @property
    def answer_text(self) -> str:
        """The gold answer as an agent writes it: a string as it is, any other value as JSON."""
        if self.answer_form == "sql":
            return self.gold_sql
        gold = self.gold_answer
        return gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)


class OpenQuestion(BaseModel):
    """A user's own question, whose answer is not known. It has no split and is chosen by its id."""

    # forbids a gold answer, which would otherwise be ignored silently
    model_config = ConfigDict(frozen=True, extra="forbid")

    question_id: str
    question_text: str
    database_name: DatabaseName
    difficulty: ClassVar[str] = OPEN
    source_difficulty: ClassVar[None] = None


AnyQuestion = Question | OpenQuestion
SPIDER_DEV_PREFIX = "spider-dev-"
BIRD_DEV_PREFIX = "bird-dev-"
BIRD_MINI_PREFIX = "bird-mini-"
DEV_PREFIXES = (SPIDER_DEV_PREFIX, BIRD_DEV_PREFIX, BIRD_MINI_PREFIX)
DESCRIPTIONS = "descriptions.json"  # beside a database, optional: `ColumnTexts`
NOTES_SUFFIX = ".notes.toml"  # of a user's notes on a database, beside it
IMPORT_REPORT = "import_report.json"  # its presence marks a directory as the output of an import

ColumnTexts = dict[str, dict[str, str]]  # table -> column, or `TABLE_TEXT` -> text
TABLE_TEXT = ""  # in place of a column: the text is of the table
_QUESTIONS = TypeAdapter(list[Question])
_DESCRIPTIONS = TypeAdapter(ColumnTexts)
_OPEN_QUESTIONS = TypeAdapter(list[OpenQuestion])
_REMEDY = (
    "make the shipped data with 'python -m data build', or name as --data a directory with "
    "questions from 'python -m data import spider DIR', another import of docs/own-data.md or "
    "'python -m data questions DATABASE'"
)


def _remedy(data_dir: Path) -> str:
    if (data_dir / "tables.json").is_file():
        command = f"python -m data import spider {data_dir} --out DIR"
        return f"it is a folder of Spider's own files: run '{command}', and pass --data DIR"
    return _REMEDY if data_dir.is_dir() else f"there is no folder {data_dir}: {_REMEDY}"


def is_dev_question(question_id: str) -> bool:
    return question_id.startswith(DEV_PREFIXES)


def data_directory(data_dir: Path | str) -> Path:
    """Return the data directory to read for `data_dir`: itself or a shipped one."""
    return shipped_path(Path(data_dir) / "questions").parent


def questions_path(data_dir: Path, split: str) -> Path:
    return split_path(Path(data_dir) / "questions" / "questions_train.json", split)


def split_path(train: Path | str, split: str) -> Path:
    """Return the file of a split, beside that of the training questions."""
    train = Path(train)
    names = {"train": train.name, OPEN: "open_questions.json"}
    return train.with_name(names.get(split, f"questions_{split}.json"))


def database_path(data_dir: Path, db_id: str) -> Path:
    return Path(data_dir) / "databases" / db_id / f"{db_id}.sqlite"


def load_questions(path: Path) -> list[Question]:
    """Return every question of a file; `QuestionLoadError` names the file and its first bad row."""
    return _load(path, _QUESTIONS)


def load_open_questions(data_dir: Path) -> list[OpenQuestion]:
    """Return the open questions of a data directory, if any. Errors as in `load_questions`."""
    path = questions_path(data_directory(data_dir), OPEN)
    return _load(path, _OPEN_QUESTIONS) if path.exists() else []


def load_split(train: Path | str, split: str) -> list[Question] | list[OpenQuestion]:
    """Return the questions of a split; `train` is the file of the training questions."""
    path = split_path(train, split)
    return _load(path, _OPEN_QUESTIONS) if split == OPEN else load_questions(path)


def has_split(train: Path | str, split: str) -> bool:
    return shipped_path(split_path(train, split)).exists()


def load_splits(data_dir: Path) -> dict[str, list[Question]]:
    """Return the questions of a data directory by split; `QuestionLoadError` if it has no file."""
    folder = data_directory(data_dir) / "questions"
    paths = sorted(folder.glob("questions_*.json"))
    if not paths and not questions_path(folder.parent, OPEN).exists():
        remedy = _remedy(folder.parent)
        raise QuestionLoadError(f"no questions_<split>.json in {folder}; {remedy}")
    return {path.stem.removeprefix("questions_"): load_questions(path) for path in paths}


def check_databases(
    data_dir: Path, questions: Sequence[AnyQuestion], *, follow_links: bool = False
) -> None:
    """Raise `DatabaseLoadError`, naming the file, if a database of the questions is missing or,
    unless `follow_links`, outside the directory."""
    root = data_directory(data_dir)
    for db_id in sorted({question.database_name for question in questions}):
        path = database_path(root, db_id)
        if not path.is_file():
            raise DatabaseLoadError(f"no database at {path}, which questions name; {_REMEDY}")
        if not follow_links:
            check_inside(root, (path, path.with_name(DESCRIPTIONS)))


def check_inside(folder: Path, files: Iterable[Path]) -> None:
    """Raise `DatabaseLoadError` if one of the files in a folder is a link out of it."""
    inside = folder.resolve()
    for file in files:
        target = Path(os.path.realpath(file))  # without an error for a link to itself
        if not target.is_relative_to(inside):
            raise DatabaseLoadError(
                f"{file} is a link to {target}, outside {folder}: copy the file into its place"
            )


def data_digest(data_dir: Path) -> str:
    """Return the SHA-256, in hex, over the relative path and content of every questions file,
    database and file of descriptions."""
    total = hashlib.sha256()
    data_dir = data_directory(data_dir)
    files = sorted(data_dir.glob("questions/questions_*.json"))
    files += filter(Path.exists, [questions_path(data_dir, OPEN)])
    files += sorted(data_dir.glob("databases/*/*.sqlite"))
    files += sorted(data_dir.glob(f"databases/*/{DESCRIPTIONS}"))
    for path in files:
        total.update(json.dumps(path.relative_to(data_dir).as_posix()).encode())
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def load_descriptions(data_dir: Path, db_id: str) -> ColumnTexts:
    """Return what DESCRIBE says of a database's tables and columns, with names in lower case."""
    path = database_path(data_dir, db_id).with_name(DESCRIPTIONS)
    if not path.exists():
        return {}
    try:
        found = _DESCRIPTIONS.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise QuestionLoadError(f"{path} is not a file of descriptions: {error}") from error
    return {
        table.lower(): {column.lower(): text for column, text in columns.items()}
        for table, columns in found.items()
    }


def left_out(data_dir: Path, split: str) -> tuple[dict[str, int], int] | None:
    """Return why questions of a split were dropped by the import that wrote a data directory, with
    their numbers, and the number of all; None if no import wrote it."""
    try:
        report = json.loads((data_directory(data_dir) / IMPORT_REPORT).read_bytes())
        counts = report["splits"][split]
        return {str(reason): int(n) for reason, n in counts["dropped"].items()}, int(counts["rows"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _load(path: Path, kind: TypeAdapter[list[T]]) -> list[T]:
    try:
        questions = kind.validate_json(shipped_path(path).read_bytes())
    except OSError as error:
        problem = f"can't read the questions file {path}: {error.strerror}"
        raise QuestionLoadError(f"{problem}; {_remedy(path.parent.parent)}") from error
    except ValidationError as error:
        problem = first_problem(error, "top level")
        raise QuestionLoadError(f"{path} is not a questions file: {problem}") from error
    if not questions:
        raise QuestionLoadError(f"{path} has no question; {_REMEDY}")
    return questions
