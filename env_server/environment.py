"""`SQLEnvironment`: one episode, a state machine that asks for SQL and does none itself.

Its logic is two generators, `reset_jobs` and `step_jobs`. They yield `SqlJob`s and are sent
`SqlResult`s, so the same code runs in process (`reset`, `step`, over an executor with `run(job)`)
and in the server (`await sql_pool.run(job)`).

A step that fails for reasons that are not the agent's (an exception, thrown in or raised) leaves
the episode as it was. What is the agent's is in the observation's `error`, with `info.error_code`
one of

    no_such_table   sql_error   sql_denied   sql_budget   sql_killed
"""

import hashlib
import logging
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from env_server.questions import QuestionBank
from env_server.render import render_columns, render_rows, render_schema, render_table
from env_server.rewards import EMPTY_LEDGER, REWARD_VERSION, StepFacts, potential, settle
from env_server.sql import JobKind, SqlJob, SqlResult
from env_server.sql.jobs import Row
from env_server.sql.run import tables_hint
from env_server.verifier import (
    STANDARDS,
    TRAINING_STANDARD,
    Gold,
    TieQuery,
    answer_verdicts,
    result_verdicts,
    unwrapped_texts,
)
from shared.actions import ActionType, SQLAction, normalise, parse_action, render_action
from shared.dataset import OpenQuestion, Question
from shared.errors import Conflict, DatabaseLoadError, InvalidRequest
from shared.models import (
    AnswerForm,
    Outcome,
    ResetRequest,
    ResetResult,
    RewardLedger,
    SQLObservation,
    SQLState,
    StepInfo,
    StepResult,
)

log = logging.getLogger(__name__)

# Raise it when an episode goes otherwise: reading of actions, choice of questions, what SQL may do,
# error texts, when an episode ends. Rewards, verdicts and rendered text have versions of their own.
ENVIRONMENT_VERSION = "1"
DEFAULT_STEP_BUDGET = 15
_ABOUT_TABLES = (ActionType.DESCRIBE, ActionType.SAMPLE)  # their argument is a table's name

T = TypeVar("T")
Jobs = Generator[SqlJob, SqlResult, T]


class Executor(Protocol):
    """Runs a job at once. `env_server.sql.SqlRunner` is one."""

    def run(self, job: SqlJob, /) -> SqlResult: ...


@dataclass(slots=True)
class _Shown:
    """What an action led to. Either `text` is shown or `error` is said."""

    text: str = ""
    error: str | None = None
    error_code: str | None = None
    described: str | None = None  # a line for schema_info
    potential: float = 0.0
    correct: bool | None = None  # of ANSWER
    unjudged: bool = False  # ANSWER to an open question
    verdicts: dict[str, bool] | None = None  # of ANSWER: standard -> is it right?


@dataclass(slots=True)
class _Episode:
    episode_id: str
    question: Question | OpenQuestion
    gold: Gold | None  # None of an open question
    gold_rows: list[Row]
    tables: list[str]
    step_budget: int
    answer_form: AnswerForm
    described: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    # normalised; only ever asked for membership, as is the next
    actions_seen: set[str] = field(default_factory=set)
    results_seen: set[bytes] = field(default_factory=set)
    ledger: RewardLedger = field(default_factory=lambda: EMPTY_LEDGER)  # replaced, never changed
    outcome: Outcome | None = None
    verdicts: dict[str, bool] | None = None  # for people, never for the agent


class SQLEnvironment:
    """One episode at a time over a bank's questions. `executor` is needed for `reset` and `step`
    alone.

    In process:

        env = SQLEnvironment(QuestionBank.load("data"), SqlRunner())
        result = env.reset(question_id="...")
        result = env.step("DESCRIBE: orders")
    """

    def __init__(
        self,
        bank: QuestionBank,
        executor: Executor | None = None,
        *,
        step_budget: int = DEFAULT_STEP_BUDGET,
    ) -> None:
        """`step_budget`: steps of an episode whose reset names no budget."""
        self.bank = bank
        self.executor = executor
        self.step_budget = step_budget
        self._episode: _Episode | None = None

    # -- in process
    # ------------------------------------------------------------------------------------------------

    def reset(self, request: ResetRequest | None = None, **fields: Any) -> ResetResult:
        """Start an episode. `fields` are those of `ResetRequest`. Raises as `reset_jobs` does."""
        return self._drive(self.reset_jobs(request, **fields))

    def step(self, action: SQLAction | str) -> StepResult:
        """Take one action. Raises as `step_jobs` does."""
        return self._drive(self.step_jobs(action))

    @property
    def state(self) -> SQLState:
        """Where the episode stands. `Conflict` before the first reset."""
        episode = self._current()
        return SQLState(
            episode_id=episode.episode_id,
            question_id=episode.question.question_id,
            question=episode.question.question_text,
            db_id=episode.question.database_name,
            step_count=len(episode.history),
            step_budget=episode.step_budget,
            action_history=list(episode.history),
            done=episode.outcome is not None,
            outcome=episode.outcome,
        )

    @property
    def verdicts(self) -> dict[str, bool] | None:
        """Standard -> whether it calls the episode's ANSWER right; None before there is one. For
        people alone."""
        return self._current().verdicts

    def _drive(self, jobs: Jobs[T]) -> T:
        if self.executor is None:
            raise RuntimeError(
                "this SQLEnvironment has no executor: pass one, or drive reset_jobs and step_jobs"
            )
        return drive(jobs, self.executor.run)

    # -- without input or output
    # -----------------------------------------------------------------------------------

    def reset_jobs(self, request: ResetRequest | None = None, **fields: Any) -> Jobs[ResetResult]:
        """Start an episode, and replay `actions` where there are any: then the result is that of
        the last.

        Without a seed the episode's id, a fresh UUID unless given, is the seed. `digest` is not
        looked at. Raises

        UnknownQuestion     no question fits
        InvalidAction       one of `actions` is none
        InvalidRequest      an open question's answer as a statement: there is no gold to compare its result with
        Conflict            `actions` go on after the end
        DataError           the database can't be read, or the gold fails on it
        """
        request = request or ResetRequest(**fields)
        episode_id = request.episode_id or str(uuid.uuid4())
        question = self.bank.wanted(request, episode_id)
        actions = [as_action(action) for action in request.actions or ()]
        if isinstance(question, OpenQuestion) and request.answer_form != "text":
            raise InvalidRequest(
                f"answer_form: question {question.question_id!r} is an open one, answered as text"
            )
        tables = yield from self._trusted(
            question, SqlJob(JobKind.TABLES, self.bank.database(question.database_name))
        )
        gold, rows = (
            (None, []) if isinstance(question, OpenQuestion) else (yield from self._gold(question))
        )
        self._episode = episode = _Episode(
            episode_id=episode_id,
            question=question,
            gold=gold,
            gold_rows=rows,
            tables=[str(row[0]) for row in tables.rows],
            step_budget=request.step_budget or self.step_budget,
            answer_form=request.answer_form,
        )
        last = self._result(episode, _Shown(), None)
        for action in actions:
            last = yield from self.step_jobs(action)
        return ResetResult(
            episode_id=episode_id,
            observation=last.observation,
            reward=last.reward,
            done=last.done,
            info=last.info,
        )

    def step_jobs(self, action: SQLAction | str) -> Jobs[StepResult]:
        """Take one action. Raises

        InvalidAction       `action` is none
        Conflict            the episode is over, or not begun
        DataError           the database can't be read
        """
        action = as_action(action)
        episode = self._current()
        if episode.outcome is not None:
            raise Conflict(f"the episode is over ({episode.outcome}); reset to begin another")
        shown = yield from _HANDLERS[action.action_type](self, episode, action.argument)
        return self._settle(episode, action, shown)

    # -- the actions
    # -----------------------------------------------------------------------------------------------

    def _describe(self, episode: _Episode, argument: str) -> Jobs[_Shown]:
        table = find_table(argument, episode.tables)
        if table is None:
            return _no_such_table(argument, episode)
        job = SqlJob(JobKind.DESCRIBE, self.bank.database(episode.question.database_name), table)
        result = yield from self._trusted(episode.question, job)
        if result.error is not None:
            return _Shown(error=result.error, error_code=result.error_code)
        return _Shown(render_table(table, result), described=render_columns(table, result))

    def _sample(self, episode: _Episode, argument: str) -> Jobs[_Shown]:
        table = find_table(argument, episode.tables)
        if table is None:
            return _no_such_table(argument, episode)
        job = SqlJob(JobKind.SAMPLE, self.bank.database(episode.question.database_name), table)
        result = yield from self._trusted(episode.question, job)
        if result.error is not None:
            return _Shown(error=result.error, error_code=result.error_code)
        return _Shown(render_rows(result, self.bank.limits.sample_rows))

    def _query(self, episode: _Episode, argument: str) -> Jobs[_Shown]:
        limits = self.bank.limits
        path = self.bank.database(episode.question.database_name)
        # One row more than the gold has tells whether the query has as many.
        most = min(max(limits.shown_rows, len(episode.gold_rows) + 1), limits.gold_rows)
        result = yield SqlJob(JobKind.QUERY, path, argument, most)
        if result.error is not None:
            if result.error_code == "db_error":
                raise _unreadable(self.bank, episode.question, result)
            return _Shown(error=result.error, error_code=result.error_code)
        near = potential(result.rows, result.truncated, episode.gold_rows, bool(result.tables_read))
        return _Shown(render_rows(result, limits.shown_rows), potential=near)

    def _answer(self, episode: _Episode, argument: str) -> Jobs[_Shown]:
        if episode.gold is None:
            return _Shown(unjudged=True)
        if episode.answer_form == "sql":
            return (yield from self._answer_sql(episode, episode.gold, argument))
        verdicts = answer_verdicts(argument, episode.gold)
        return _Shown(correct=verdicts[TRAINING_STANDARD], verdicts=verdicts)

    def _answer_sql(self, episode: _Episode, gold: Gold, argument: str) -> Jobs[_Shown]:
        path = self.bank.database(episode.question.database_name)
        result = yield SqlJob(
            JobKind.QUERY, path, unwrapped_texts(argument)[-1], self.bank.limits.gold_rows
        )
        if result.error_code == "db_error":
            raise _unreadable(self.bank, episode.question, result)
        if result.error is not None or result.truncated:
            correct = None if result.error_code == "sql_killed" else False
            no = dict.fromkeys(STANDARDS, False)
            return _Shown(
                error=result.error, error_code=result.error_code, correct=correct, verdicts=no
            )
        verdicts = result_verdicts(result.rows, gold)
        if not result.tables_read:  # a constant is a guess, however it is written
            verdicts[TRAINING_STANDARD] = False
        return _Shown(correct=verdicts[TRAINING_STANDARD], verdicts=verdicts)

    # -- one step's end
    # --------------------------------------------------------------------------------------------

    def _settle(self, episode: _Episode, action: SQLAction, shown: _Shown) -> StepResult:
        """Pay for the action and enter it into the episode."""
        text = render_action(action)
        table = (
            find_table(action.argument, episode.tables)
            if action.action_type in _ABOUT_TABLES
            else None
        )
        key = normalise(f"{action.action_type}: {table}" if table else text)
        seen = hashlib.blake2b(shown.text.encode(errors="replace"), digest_size=16).digest()
        answers = shown.correct is not None or shown.unjudged
        facts = StepFacts(
            exec_ok=shown.error is None,
            new_info=shown.error is None and not answers and seen not in episode.results_seen,
            repeat=key in episode.actions_seen,
            potential=shown.potential,
            correct=bool(shown.correct),
        )
        reward, episode.ledger = settle(episode.ledger, facts)
        episode.history.append(text)
        episode.actions_seen.add(key)
        if facts.new_info:
            episode.results_seen.add(seen)
        if shown.described is not None and shown.described not in episode.described:
            episode.described.append(shown.described)
        episode.verdicts = shown.verdicts
        if shown.correct is not None:
            episode.outcome = Outcome.CORRECT if shown.correct else Outcome.WRONG
        elif shown.unjudged:
            episode.outcome = Outcome.ANSWERED
        elif shown.error_code == "sql_killed":
            episode.outcome = Outcome.SQL_KILLED
        elif len(episode.history) >= episode.step_budget:
            episode.outcome = Outcome.BUDGET
        return self._result(episode, shown, reward)

    def _result(self, episode: _Episode, shown: _Shown, reward: float | None) -> StepResult:
        done = episode.outcome is not None
        observation = SQLObservation(
            question=episode.question.question_text,
            schema_info=render_schema(episode.tables, episode.described),
            result=shown.text,
            error=shown.error,
            step_count=len(episode.history),
            budget_remaining=episode.step_budget - len(episode.history),
            action_history=list(episode.history),
            done=done,
            reward=reward,
        )
        info = StepInfo(
            question_id=episode.question.question_id,
            reward_version=REWARD_VERSION,
            ledger=episode.ledger,
            error_code=shown.error_code,
            outcome=episode.outcome,
        )
        return StepResult(observation=observation, reward=reward, done=done, info=info)

    def _trusted(self, question: Question | OpenQuestion, job: SqlJob) -> Jobs[SqlResult]:
        """The result of a job that no agent wrote, remembered in the bank. `DatabaseLoadError`
        where data is broken.

        A table beyond the size limits can't be described or sampled; that is an error that an
        agent can act on.
        """
        result = self.bank.memo.get(job)
        if result is None:
            result = yield job
            about_one_table = job.kind in (JobKind.DESCRIBE, JobKind.SAMPLE)
            if result.error is not None and (
                not about_one_table or result.error_code == "db_error"
            ):
                raise _unreadable(self.bank, question, result)
            if result.error_code != "sql_killed":
                self.bank.memo[job] = result
        return result

    def _gold(self, question: Question) -> Jobs[tuple[Gold, list[Row]]]:
        """The question's gold, its ties known, and the rows of its SQL."""
        gold = self.bank.gold(question)  # first, since bad data must be refused before it is run
        job = SqlJob(JobKind.GOLD, self.bank.database(question.database_name), question.gold_sql)
        rows = (yield from self._trusted(question, job)).rows
        if gold.ties is not None:
            gold = yield from self._with_ties(question, gold.ties)
        return gold, rows

    def _with_ties(self, question: Question, ties: TieQuery) -> Jobs[Gold]:
        """The gold with its ties known; where the query for them fails, the gold's own order
        counts."""
        result = yield SqlJob(JobKind.GOLD, self.bank.database(question.database_name), ties.sql)
        # the same on every replica
        if result.error is None or result.error_code in ("sql_budget", "sql_error"):
            return self.bank.settle_ties(question, result.rows)
        raise _unreadable(self.bank, question, result)

    def _current(self) -> _Episode:
        if self._episode is None:
            raise Conflict("no episode yet: reset first")
        return self._episode


_HANDLERS: dict[ActionType, Callable[[SQLEnvironment, _Episode, str], Jobs[_Shown]]] = {
    ActionType.DESCRIBE: SQLEnvironment._describe,
    ActionType.SAMPLE: SQLEnvironment._sample,
    ActionType.QUERY: SQLEnvironment._query,
    ActionType.ANSWER: SQLEnvironment._answer,
}


def drive(jobs: Jobs[T], run: Callable[[SqlJob], SqlResult]) -> T:
    """Run a generator of jobs to its end, in process."""
    try:
        job = next(jobs)
        while True:
            try:
                result = run(job)
            except Exception as error:
                job = jobs.throw(error)
            else:
                job = jobs.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def as_action(action: SQLAction | str) -> SQLAction:
    """An action, or the one that a text writes; else `InvalidAction`."""
    return parse_action(action) if isinstance(action, str) else action


def find_table(argument: str, tables: list[str]) -> str | None:
    """The table that an agent means: letter case, quotes and a final semicolon do not count."""
    name = argument.strip().rstrip(";").strip()
    if len(name) >= 2 and name[0] + name[-1] in ('""', "''", "``", "[]"):
        name = name[1:-1]
    if name in tables:
        return name
    return next((table for table in tables if table.lower() == name.lower()), None)


def _no_such_table(argument: str, episode: _Episode) -> _Shown:
    name = " ".join(argument.split())[:80]
    return _Shown(
        error=f"no such table: {name}; {tables_hint(episode.tables)}", error_code="no_such_table"
    )


def _unreadable(
    bank: QuestionBank, question: Question | OpenQuestion, result: SqlResult
) -> DatabaseLoadError:
    # for the log alone: the error crosses the wire, and names no path
    path = bank.database(question.database_name)
    log.error("database %s, question %s fails: %s", path, question.question_id, result.error)
    return DatabaseLoadError(
        f"database {question.database_name} fails for question {question.question_id}: {result.error}; "
        "build or import the data again"
    )
