"""`QuestionBank`: a data directory as the server uses it. Loads fast: what needs SQLite waits until
it is needed."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import apsw

from env_server.sql import SqlJob, SqlLimits, SqlResult
from env_server.sql.jobs import Row
from env_server.verifier import Gold, is_ordered
from shared.dataset import (
    OpenQuestion,
    Question,
    check_databases,
    data_digest,
    data_directory,
    database_path,
    load_open_questions,
    load_splits,
)
from shared.errors import DatabaseLoadError, QuestionLoadError, UnknownQuestion
from shared.models import Difficulty, ResetRequest

_HEADER = b"SQLite format 3\0"


class QuestionBank:
    """Every question of a data directory, with its database's path and its gold. Read-only after
    `load`.

    `splits`: split -> its questions in the files' order; `open`: those without gold, which are got
    by their id alone. `memo` holds results of trusted jobs, which never change.
    """

    def __init__(
        self,
        data_dir: Path,
        splits: dict[str, list[Question]],
        limits: SqlLimits | None = None,
        open_questions: Sequence[OpenQuestion] = (),
    ) -> None:
        """`load` is the usual way. `QuestionLoadError` where a question_id is there twice."""
        self.data_dir = data_directory(data_dir).absolute()
        self.splits = splits
        self.open = list(open_questions)
        self.limits = limits or SqlLimits()
        self.memo: dict[SqlJob, SqlResult] = {}
        self.sqlite_version: str = apsw.sqlite_lib_version()
        self.data_digest = data_digest(self.data_dir)
        self._by_id: dict[str, Question | OpenQuestion] = {}
        self._paths: dict[str, str] = {}
        self._golds: dict[str, Gold] = {}
        self._picks: dict[tuple[str | None, tuple[str, ...], str | None], list[Question]] = {}
        every: list[Question | OpenQuestion] = [
            question for questions in splits.values() for question in questions
        ]
        for question in [*every, *self.open]:
            if self._by_id.setdefault(question.question_id, question) is not question:
                raise QuestionLoadError(
                    f"two questions of {data_dir} have the id {question.question_id!r}"
                )

    @classmethod
    def load(cls, data_dir: Path | str, limits: SqlLimits | None = None) -> "QuestionBank":
        """The bank of a data directory, or a `QuestionLoadError` or `DatabaseLoadError` that names
        what is wrong."""
        data_dir = data_directory(data_dir)
        splits, open_questions = load_splits(data_dir), load_open_questions(data_dir)
        every: list[Question | OpenQuestion] = [
            question for questions in splits.values() for question in questions
        ]
        every += open_questions
        check_databases(data_dir, every)
        for db_id in sorted({question.database_name for question in every}):
            _check_header(database_path(data_dir, db_id))
        if splits:
            # imports the parser now, rather than in somebody's first reset
            is_ordered("SELECT 1 ORDER BY 1")
        return cls(data_dir, splits, limits, open_questions)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def databases(self) -> list[str]:
        """The ids of the databases that questions name, sorted."""
        return sorted({question.database_name for question in self._by_id.values()})

    @property
    def counts(self) -> dict[str, int]:
        """Split -> how many questions; those without gold, where there are any, as "open"."""
        counts = {split: len(questions) for split, questions in self.splits.items()}
        return {**counts, "open": len(self.open)} if self.open else counts

    def database(self, db_id: str) -> str:
        """The path of a database."""
        path = self._paths.get(db_id)
        if path is None:
            path = self._paths[db_id] = str(database_path(self.data_dir, db_id))
        return path

    def get(self, question_id: str) -> Question | OpenQuestion:
        """The question of an id, or `UnknownQuestion`."""
        question = self._by_id.get(question_id)
        if question is None:
            raise UnknownQuestion(f"no question {question_id[:80]!r} on this server")
        return question

    def with_gold(self, question_id: str) -> Question:
        """The same, or `UnknownQuestion` where it is an open one."""
        question = self.get(question_id)
        if isinstance(question, OpenQuestion):
            raise UnknownQuestion(
                f"question {question_id[:80]!r} is an open one, which has no gold to compare with"
            )
        return question

    def pick(
        self,
        split: str | None = None,
        difficulty: Difficulty | Sequence[Difficulty] | None = None,
        db_id: str | None = None,
        seed: int = 0,
    ) -> Question:
        """One of the questions that fit, or `UnknownQuestion`. The same arguments pick the same on
        every replica."""
        levels = (difficulty,) if isinstance(difficulty, str) else tuple(difficulty or ())
        fitting = self._fitting(split, levels, db_id)
        if not fitting:
            wanted = {"split": split, "difficulty": list(levels) or None, "db_id": db_id}
            filters = ", ".join(
                f"{name} {repr(value)[:80]}" for name, value in wanted.items() if value is not None
            )
            raise UnknownQuestion(
                f"no question fits {filters or 'a reset without question_id'}; the splits are "
                f"{', '.join(self.splits) or 'none'}, "
                f"the difficulties {', '.join(get_args(Difficulty))}"
            )
        drawn = hashlib.sha256(f"pick:{seed}".encode()).digest()
        return fitting[int.from_bytes(drawn[:8], "big") % len(fitting)]

    def wanted(self, request: ResetRequest, episode_id: str) -> Question | OpenQuestion:
        """The question that a reset asks for. Without a seed the id is one: a repeated reset picks
        the same again."""
        if request.question_id is not None:
            return self.get(request.question_id)
        seed = request.seed
        if seed is None:
            seed = int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], "big")
        return self.pick(
            split=request.split, difficulty=request.difficulty, db_id=request.db_id, seed=seed
        )

    def gold(self, question: Question) -> Gold:
        """A question's gold answer, ready to verify against. `QuestionLoadError` where answer and
        type disagree."""
        gold = self._golds.get(question.question_id)
        if gold is None:
            try:
                gold = Gold.of(
                    question.gold_answer,
                    question.answer_type,
                    question.gold_sql,
                    question.question_text,
                )
            except (ValueError, TypeError) as error:
                raise QuestionLoadError(
                    f"the gold answer of question {question.question_id!r} is {error}"
                ) from error
            self._golds[question.question_id] = gold
        return gold

    def settle_ties(self, question: Question, rows: Sequence[Row]) -> Gold:
        """The question's gold, from now on with the ties that the rows of its `ties.sql` show."""
        gold = self._golds[question.question_id] = self.gold(question).with_ties(rows)
        return gold

    def _fitting(
        self, split: str | None, levels: tuple[str, ...], db_id: str | None
    ) -> list[Question]:
        key = (split, tuple(sorted(levels)), db_id)
        found = self._picks.get(key)
        if found is None:
            found = [
                question
                for name in sorted(self.splits)
                if split in (None, name)
                for question in sorted(self.splits[name], key=lambda question: question.question_id)
                if (not levels or question.difficulty in levels)
                and db_id in (None, question.database_name)
            ]
            if found:  # a client's nonsense takes no memory
                self._picks[key] = found
        return found


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except OSError as error:
        raise DatabaseLoadError(f"can't read the database {path}: {error.strerror}") from error
    if header != _HEADER:
        raise DatabaseLoadError(f"{path} is not a SQLite database; build or import the data again")
