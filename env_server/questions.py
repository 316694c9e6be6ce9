"""`QuestionBank`: a data directory as the server uses it. Loading runs no SQL."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from env_server.rewards import GoldCells
from env_server.sql import JobKind, Jobs, SqlJob, SqlLimits, SqlResult
from env_server.sql.jobs import REPEATABLE
from env_server.verifier import Gold
from shared import dataset
from shared.dataset import AnyQuestion, ColumnTexts, OpenQuestion, Question
from shared.errors import DatabaseLoadError, QuestionLoadError, UnknownQuestion
from shared.models import DIFFICULTIES, Difficulty, ResetRequest

log = logging.getLogger(__name__)
_HEADER = b"SQLite format 3\0"
T = TypeVar("T")
Splits = dict[str, list[Question]]
Levels = Difficulty | Sequence[Difficulty] | None  # of difficulty; None: all
Filters = tuple[str | None, tuple[str, ...], str | None]  # split, difficulties, db_id
Drawable = tuple[str, Question]  # a question that a reset can draw, with its split before it


class QuestionBank:
    """Every question of a data directory, with its database's path and its gold.

    `splits` maps a split to its questions; `open` holds those without gold, which a reset can only
    name by id. Results that never change are remembered: golds, and those of `trusted_jobs`.
    """

    def __init__(
        self,
        data_dir: Path,
        splits: Splits,
        limits: SqlLimits | None = None,
        open_questions: Sequence[OpenQuestion] = (),
    ) -> None:
        """Use `load` to read a directory. `QuestionLoadError` if a question_id occurs twice."""
        self.data_dir = dataset.data_directory(data_dir).absolute()
        self.splits, self.open = splits, list(open_questions)
        self.limits = limits or SqlLimits()
        self.sqlite_version: str = apsw.sqlite_lib_version()
        self.data_digest = dataset.data_digest(self.data_dir)
        self._by_id: dict[str, AnyQuestion] = {}
        self._golds: dict[str, Gold] = {}
        self._gold_cells: dict[str, GoldCells] = {}
        self._trusted: dict[SqlJob, Any] = {}
        # what DESCRIBE shows: by the database's path, the table, its part, with values or not
        self.described: dict[tuple[str, str, str, bool], Any] = {}
        self._matches: dict[Filters, list[Drawable]] = {}
        for question in _every(splits, self.open):
            if self._by_id.setdefault(question.question_id, question) is not question:
                raise QuestionLoadError(f"{data_dir} has two questions {question.question_id!r}")
        self.databases = sorted({question.database_name for question in self._by_id.values()})
        self._paths = {
            db_id: str(dataset.database_path(self.data_dir, db_id)) for db_id in self.databases
        }
        # database -> what DESCRIBE says of its columns, by table and column in lower case
        self.descriptions: dict[str, ColumnTexts] = {
            db_id: dataset.load_descriptions(self.data_dir, db_id) for db_id in self.databases
        }
        # sorted now, as a million questions take seconds
        self._drawable: list[Drawable] = [
            (split, question)
            for split in sorted(splits)
            for question in sorted(splits[split], key=lambda question: question.question_id)
        ]
        self._by_database: dict[str, list[Drawable]] = {}
        for one in self._drawable:
            self._by_database.setdefault(one[1].database_name, []).append(one)
        # database -> split -> how many of its questions a reset can draw
        self.drawable_counts: list[tuple[str, dict[str, int]]] = [
            (db_id, dict(Counter(split for split, _ in questions)))
            for db_id, questions in sorted(self._by_database.items())
        ]

    @classmethod
    def load(
        cls, data_dir: Path | str, limits: SqlLimits | None = None, *, follow_links: bool = False
    ) -> "QuestionBank":
        """Read a data directory. Its `DataError` names the file and the remedy."""
        data_dir = dataset.data_directory(data_dir)
        splits, open_ones = dataset.load_splits(data_dir), dataset.load_open_questions(data_dir)
        every = _every(splits, open_ones)
        dataset.check_databases(data_dir, every, follow_links=follow_links)
        for db_id in sorted({question.database_name for question in every}):
            _check_header(dataset.database_path(data_dir, db_id))
        return cls(data_dir, splits, limits, open_ones)

    @property
    def counts(self) -> dict[str, int]:
        """Split -> number of questions; "open" counts those without gold, if there are any."""
        counts = {split: len(questions) for split, questions in self.splits.items()}
        return {**counts, "open": len(self.open)} if self.open else counts

    def database(self, db_id: str) -> str:
        return self._paths[db_id]

    # -- questions

    def get(self, question_id: str) -> AnyQuestion:
        """Return the question with an id, or raise `UnknownQuestion`."""
        if (question := self._by_id.get(question_id)) is None:
            raise UnknownQuestion(
                f"no question {question_id[:80]!r} on this server; GET /questions lists them"
            )
        return question

    def question_for(self, request: ResetRequest, episode_id: str) -> AnyQuestion:
        """Return the question that a reset asks for, or draw one: the same on every replica, by the
        seed or else the episode's id. `UnknownQuestion` if none matches."""
        if request.question_id is not None:
            return self.get(request.question_id)
        matches = self.matching(request.split, request.difficulty, request.db_id)
        if not matches:
            filters = request.model_dump(include={"split", "difficulty", "db_id"})
            used = [f"{name} {value!r:.80}" for name, value in filters.items() if value is not None]
            raise UnknownQuestion(
                f"no question matches {', '.join(used) or 'a reset without question_id'}; "
                f"splits: {', '.join(self.splits) or 'none'}; "
                f"difficulties: {', '.join(DIFFICULTIES)}; GET /databases lists every db_id"
            )
        seed = request.seed
        if seed is None:
            seed = int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], "big")
        drawn = hashlib.sha256(f"pick:{seed}".encode()).digest()
        return matches[int.from_bytes(drawn[:8], "big") % len(matches)][1]

    def matching(self, split: str | None, difficulty: Levels, db_id: str | None) -> list[Drawable]:
        """Return the questions that a reset with these filters draws from, by split and id."""
        levels = [difficulty] if isinstance(difficulty, str) else sorted(difficulty or ())
        filters = split, tuple(levels), db_id
        if filters not in self._matches:
            asked = self._drawable if db_id is None else self._by_database.get(db_id, [])
            matches = [
                (name, question)
                for name, question in asked
                if split in (None, name) and (not levels or question.difficulty in levels)
            ]
            if not matches:  # filters that match nothing must not fill the memory
                return []
            self._matches[filters] = matches
        return self._matches[filters]

    # -- golds, and SQL that no agent wrote

    def gold(self, question: Question) -> Gold:
        """Return a question's gold; `QuestionLoadError` if answer and type disagree."""
        asked = question.question_id
        if asked not in self._golds:
            answer, kind = question.gold_answer, question.answer_type
            try:
                gold = Gold.of(answer, kind, question.gold_sql, question.question_text)
            except (ValueError, TypeError) as error:
                raise QuestionLoadError(f"the gold answer of {asked!r} is {error}") from error
            self._golds[asked] = gold
        return self._golds[asked]

    def gold_jobs(self, question: Question) -> Jobs[tuple[Gold, GoldCells]]:
        """Return the question's gold, its ties known, and the cells that its SQL returns."""
        gold = self.gold(question)  # first: malformed data must be refused before its SQL runs
        if (cells := self._gold_cells.get(question.question_id)) is None:
            path = self.database(question.database_name)
            result = yield SqlJob(JobKind.GOLD, path, question.gold_sql)
            if result.error is not None:
                raise self.unreadable(question, result)
            cells = GoldCells(result.rows)
            if gold.ties is not None:
                result = yield SqlJob(JobKind.GOLD, path, gold.ties.sql)
                # If it takes too much work, the gold's own order counts, from now on: to try again
                # at every reset could take the whole CPU time. Another replica may manage it.
                if result.error_code not in (None, "sql_budget", "sql_error"):
                    raise self.unreadable(question, result)
                gold = self._golds[question.question_id] = gold.with_ties(result.rows)
            self._gold_cells[question.question_id] = cells
        return gold, cells

    def trusted_jobs(
        self, question: AnyQuestion, job: SqlJob, view: Callable[[SqlResult], T]
    ) -> Jobs[T]:
        """Return `view` of the result of a job that no agent wrote, run once for all episodes.

        A result that may differ the next time (the CPU time or a worker ran out) is not kept.
        Raises `DatabaseLoadError` if the data is broken. A table beyond the SQL limits can't be
        described or sampled; that result holds an error that an agent can act on.
        """
        if job not in self._trusted:
            result = yield job
            recoverable = job.kind in (JobKind.DESCRIBE, JobKind.SAMPLE, JobKind.VALUES)
            if result.error is not None and not (recoverable and result.error_code != "db_error"):
                raise self.unreadable(question, result)
            if result.error_code not in REPEATABLE:
                return view(result)
            self._trusted[job] = view(result)
        return self._trusted[job]  # type: ignore[no-any-return]

    def unreadable(self, question: AnyQuestion, result: SqlResult) -> DatabaseLoadError:
        """Log the path of a database that fails, and return the error for the wire, without it."""
        name, asked = question.database_name, question.question_id
        log.error("database %s, question %s: %s", self.database(name), asked, result.error)
        return DatabaseLoadError(
            f"database {name} fails for question {asked}: {result.error}; "
            "build or import the data again"
        )


def _every(splits: Splits, open_questions: Sequence[OpenQuestion]) -> list[AnyQuestion]:
    return [*(question for split in splits.values() for question in split), *open_questions]


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except OSError as error:
        raise DatabaseLoadError(f"can't read the database {path}: {error.strerror}") from error
    if header != _HEADER:
        raise DatabaseLoadError(f"{path} is not a SQLite database; build or import the data again")
