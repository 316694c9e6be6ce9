"""`SQLEnvironment`: one episode, as a state machine that asks for SQL and runs none itself.

Its logic is two generators, `reset_jobs` and `step_jobs`. They yield `SqlJob`s and are sent
`SqlResult`s, so the same code runs in process (`reset`, `step`, with an executor) and in the server
(`drive_async(jobs, sql_pool.run)`).

A step that fails for reasons that are not the agent's raises and leaves the episode as it was. An
agent's error is in the observation's `error`, with `info.error_code` one of

    no_such_table   sql_error   sql_denied   sql_budget   sql_killed
"""

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from env_server.drive import Jobs, drive
from env_server.questions import AnyQuestion, QuestionBank
from env_server.render import one_line, render_columns, render_rows, render_schema, render_table
from env_server.rewards import EMPTY_LEDGER, REWARD_VERSION, GoldCells, StepFacts, potential, settle
from env_server.sql import JobKind, SqlJob, SqlResult
from env_server.sql.run import tables_hint
from env_server.verifier import (
    STANDARDS,
    STRICT,
    Gold,
    answer_verdicts,
    result_verdicts,
    unwrapped_texts,
)
from shared.actions import ActionType, SQLAction, normalise, parse_action, render_action
from shared.dataset import OpenQuestion, Question
from shared.errors import Conflict, InvalidRequest
from shared.models import (
    DEFAULT_STANDARD,
    DEFAULT_STEP_BUDGET,
    AnswerForm,
    Outcome,
    ResetRequest,
    ResetResult,
    RewardLedger,
    Rewards,
    SQLObservation,
    SQLState,
    StandardName,
    StepInfo,
    StepResult,
)

# Raise it when episodes change: how actions are read, how questions are chosen, what SQL may do,
# error texts, when an episode ends. Rewards, verdicts and rendered text have their own versions.
ENVIRONMENT_VERSION = "3"
TABLES_SHOWN_BY = (ActionType.QUERY, ActionType.SAMPLE)  # with `render_rows`

T = TypeVar("T")


class Executor(Protocol):
    """Runs jobs in process. `env_server.sql.run.SqlRunner` is one."""

    def run(self, job: SqlJob, /) -> SqlResult: ...


@dataclass(slots=True)
class _Effect:
    """What an action led to: `text` to show, or `error`."""

    text: str = ""
    error: str | None = None
    error_code: str | None = None
    described: str | None = None  # a line for schema_info
    potential: float = 0.0
    correct: bool | None = None  # of ANSWER
    unjudged: bool = False  # ANSWER to an open question
    verdicts: dict[str, bool] | None = None  # of ANSWER: standard -> whether it is right


@dataclass(slots=True)
class EpisodeState:
    """The state of one episode between two steps."""

    episode_id: str
    question: AnyQuestion
    db_path: str
    gold: Gold | None  # None of an open question
    gold_cells: GoldCells
    tables: list[str]
    step_budget: int
    answer_form: AnswerForm
    rewards: Rewards
    described: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)  # canonical texts
    # sets are only used for membership, so their order can't leak into a reply
    actions_seen: set[bytes] = field(default_factory=set)  # hashes of normalised texts
    results_seen: set[bytes] = field(default_factory=set)  # hashes of texts
    tables_shown: set[bytes] = field(default_factory=set)  # of those that an ANSWER may copy
    ledger: RewardLedger = field(default_factory=lambda: EMPTY_LEDGER)  # replaced, never changed
    outcome: Outcome | None = None
    verdicts: dict[str, bool] | None = None


class SQLEnvironment:
    """One episode at a time over a bank's questions.

    In process:

        env = SQLEnvironment(QuestionBank.load("data"), SqlRunner())
        result = env.reset(question_id="...")
        result = env.step("DESCRIBE: orders")
    """

    def __init__(
        self,
        bank: QuestionBank,
        executor: Executor | None = None,
        step_budget: int = DEFAULT_STEP_BUDGET,
        standard: StandardName = DEFAULT_STANDARD,
    ) -> None:
        """`executor` is for `reset` and `step`; `step_budget` is for resets that name none.

        `standard` decides which answers are right.
        """
        self.bank = bank
        self.executor = executor
        self.step_budget = step_budget
        self.standard = standard
        self._episode: EpisodeState | None = None

    # -- in process

    def reset(self, request: ResetRequest | None = None, **fields: Any) -> ResetResult:
        """Start an episode. `fields` are those of `ResetRequest`. Raises as `reset_jobs` does."""
        return self._drive(self.reset_jobs(request, **fields))

    def step(self, action: SQLAction | str) -> StepResult:
        """Take one action. Raises as `step_jobs` does."""
        return self._drive(self.step_jobs(action))

    @property
    def state(self) -> SQLState:
        """The episode's state on the wire. `Conflict` before the first reset."""
        episode = self._current()
        return wire_state(episode.question, episode)

    @property
    def actions(self) -> list[str]:
        """The canonical texts of the actions so far; each step appends its own."""
        return self._current().actions

    @property
    def verdicts(self) -> dict[str, bool] | None:
        """Whether each standard calls the ANSWER right, for operators; None before an ANSWER."""
        return self._current().verdicts

    def _drive(self, jobs: Jobs[T]) -> T:
        if self.executor is None:
            raise RuntimeError("no executor: pass one, or drive reset_jobs and step_jobs")
        return drive(jobs, self.executor.run)

    # -- without input or output

    def reset_jobs(self, request: ResetRequest | None = None, **fields: Any) -> Jobs[ResetResult]:
        """Start an episode, replay `actions` if there are any, and return the last result.

        Without a seed, the question is drawn by the episode's id, which is a new UUID unless it is
        given. `digest` is not checked. Raises

        UnknownQuestion     no question matches
        ActionParseError       one of `actions` can't be parsed
        InvalidRequest      an open question with answer_form "sql": it has no gold to compare with
        Conflict            `actions` continue after the end
        DataError           the database can't be read, or the gold fails on it
        """
        request = request or ResetRequest(**fields)
        episode_id = request.episode_id or str(uuid.uuid4())
        question = self.bank.question_for(request, episode_id)
        actions = [as_action(action) for action in request.actions or ()]
        if isinstance(question, OpenQuestion) and request.answer_form != "text":
            raise InvalidRequest(f"answer_form: {question.question_id!r} is open and takes text")
        db_path = self.bank.database(question.database_name)
        tables = yield from self.bank.trusted_jobs(question, SqlJob(JobKind.TABLES, db_path))
        gold, cells = None, GoldCells([])
        if isinstance(question, Question):
            gold, cells = yield from self.bank.gold_jobs(question)
        self._episode = episode = EpisodeState(
            episode_id=episode_id,
            question=question,
            db_path=db_path,
            gold=gold,
            gold_cells=cells,
            tables=[str(row[0]) for row in tables.rows],
            step_budget=request.step_budget or self.step_budget,
            answer_form=request.answer_form,
            rewards=request.rewards or "step",
        )
        last = self._result(episode, _Effect(), None)
        for action in actions:
            last = yield from self.step_jobs(action)
        return ResetResult(episode_id=episode_id, **dict(last))

    def step_jobs(self, action: SQLAction | str) -> Jobs[StepResult]:
        """Take one action. Raises

        ActionParseError       `action` can't be parsed
        Conflict            the episode is over, or there is none
        DataError           the database can't be read
        """
        action = as_action(action)
        episode = self._current()
        if episode.outcome is not None:
            raise Conflict(f"the episode is over ({episode.outcome}); reset to start another")
        effect = yield from _HANDLERS[action.action_type](self, episode, action)
        return self._settle(episode, action, effect)

    # -- the actions

    def _inspect(self, episode: EpisodeState, action: SQLAction) -> Jobs[_Effect]:
        """Carry out DESCRIBE or SAMPLE."""
        table = find_table(action.argument, episode.tables)
        if table is None:
            name = " ".join(action.argument.split())[:80]
            text = f"no such table: {name}; {tables_hint(episode.tables)}"
            return _Effect(error=text, error_code="no_such_table")
        job = SqlJob(JobKind[action.action_type], episode.db_path, table)
        result = yield from self.bank.trusted_jobs(episode.question, job)
        if result.error is not None:
            return _Effect(error=result.error, error_code=result.error_code)
        if action.action_type == ActionType.SAMPLE:
            return _Effect(render_rows(result, self.bank.limits.sample_rows))
        return _Effect(render_table(table, result), described=render_columns(table, result))

    def _query(self, episode: EpisodeState, action: SQLAction) -> Jobs[_Effect]:
        limits, gold = self.bank.limits, episode.gold_cells
        # one row more than the gold has shows whether the query returns as many
        max_rows = min(max(limits.shown_rows, gold.rows + 1), limits.gold_rows)
        result = yield from self._agents_sql(episode, action.argument, max_rows)
        if result.error is not None:
            return _Effect(error=result.error, error_code=result.error_code)
        progress = potential(result.rows, result.truncated, gold, result.reads_data)
        return _Effect(render_rows(result, limits.shown_rows), potential=progress)

    def _answer(self, episode: EpisodeState, action: SQLAction) -> Jobs[_Effect]:
        if episode.gold is None:
            return _Effect(unjudged=True)
        if episode.answer_form == "sql":
            return (yield from self._answer_sql(episode, episode.gold, action.argument))
        verdicts = answer_verdicts(
            action.argument, episode.gold, lambda text: digest_of(text) in episode.tables_shown
        )
        return _Effect(correct=verdicts[self.standard], verdicts=verdicts)

    def _answer_sql(self, episode: EpisodeState, gold: Gold, argument: str) -> Jobs[_Effect]:
        statement = unwrapped_texts(argument)[-1]
        result = yield from self._agents_sql(episode, statement, self.bank.limits.gold_rows)
        if result.error is not None or result.truncated:
            return _Effect(
                error=result.error,
                error_code=result.error_code,
                correct=None if result.error_code == "sql_killed" else False,
                verdicts=dict.fromkeys(STANDARDS, False),
            )
        verdicts = result_verdicts(result.rows, gold)
        if not result.reads_data:  # a constant is a guess, however it is written
            verdicts[STRICT] = False
        return _Effect(correct=verdicts[self.standard], verdicts=verdicts)

    # -- the end of a step

    def _settle(self, episode: EpisodeState, action: SQLAction, effect: _Effect) -> StepResult:
        """Compute the reward of an action and add the action to the episode."""
        text = render_action(action)
        about_table = action.action_type in (ActionType.DESCRIBE, ActionType.SAMPLE)
        table = find_table(action.argument, episode.tables) if about_table else None
        answers = effect.correct is not None or effect.unjudged
        # an ANSWER ends the episode, so it repeats nothing, and may be 20,000 signs
        key = (
            b""
            if answers
            else digest_of(normalise(f"{action.action_type}: {table}" if table else text))
        )
        result_key = digest_of(effect.text)
        succeeded = effect.error is None
        facts = StepFacts(
            exec_ok=succeeded,
            new_info=succeeded and not answers and result_key not in episode.results_seen,
            repeat=key in episode.actions_seen,
            potential=effect.potential,
            correct=bool(effect.correct),
        )
        reward, episode.ledger = settle(episode.ledger, facts)
        episode.actions.append(text)
        episode.actions_seen.add(key)
        if facts.new_info:
            episode.results_seen.add(result_key)
        if succeeded and action.action_type in TABLES_SHOWN_BY:
            episode.tables_shown.add(digest_of(effect.text.strip()))  # as an ANSWER is stripped
        if effect.described is not None and effect.described not in episode.described:
            episode.described.append(effect.described)
        episode.verdicts = effect.verdicts
        if effect.correct is not None:
            episode.outcome = Outcome.CORRECT if effect.correct else Outcome.WRONG
        elif effect.unjudged:
            episode.outcome = Outcome.ANSWERED
        elif effect.error_code == "sql_killed":
            episode.outcome = Outcome.SQL_KILLED
        elif len(episode.actions) >= episode.step_budget:
            episode.outcome = Outcome.BUDGET
        return self._result(episode, effect, reward)

    def _result(self, episode: EpisodeState, effect: _Effect, reward: float | None) -> StepResult:
        done = episode.outcome is not None
        withheld = episode.rewards == "end" and not done
        if episode.rewards == "end":
            reward = episode.ledger.total if done else None
        observation = SQLObservation(
            question=episode.question.question_text,
            schema_info=render_schema(episode.tables, episode.described),
            result=effect.text,
            error=effect.error and one_line(effect.error),
            step_count=len(episode.actions),
            budget_remaining=episode.step_budget - len(episode.actions),
            action_history=list(episode.actions),
            done=done,
            reward=reward,
        )
        info = StepInfo(
            question_id=episode.question.question_id,
            reward_version=REWARD_VERSION,
            ledger=None if withheld else episode.ledger,
            error_code=effect.error_code,
            outcome=episode.outcome,
        )
        return StepResult(observation=observation, reward=reward, done=done, info=info)

    # -- SQL

    def _agents_sql(self, episode: EpisodeState, sql: str, max_rows: int) -> Jobs[SqlResult]:
        """Run an agent's statement; `DatabaseLoadError` if the database can't be read."""
        result = yield SqlJob(JobKind.QUERY, episode.db_path, sql, max_rows)
        if result.error_code == "db_error":
            raise self.bank.unreadable(episode.question, result)
        return result

    def _current(self) -> EpisodeState:
        if self._episode is None:
            raise Conflict("no episode yet: reset first")
        return self._episode


_HANDLERS: dict[ActionType, Callable[[SQLEnvironment, EpisodeState, SQLAction], Jobs[_Effect]]] = {
    ActionType.DESCRIBE: SQLEnvironment._inspect,
    ActionType.SAMPLE: SQLEnvironment._inspect,
    ActionType.QUERY: SQLEnvironment._query,
    ActionType.ANSWER: SQLEnvironment._answer,
}


def digest_of(text: str) -> bytes:
    """Return a hash of a text, to remember it in 16 bytes."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()


def as_action(action: SQLAction | str) -> SQLAction:
    """Parse an action's text form; raises `ActionParseError`."""
    return parse_action(action) if isinstance(action, str) else action


class Progress(Protocol):
    """How far an episode is: what its state on the wire holds beside the question."""

    episode_id: str
    step_budget: int
    actions: list[str]
    outcome: Outcome | None


def wire_state(question: AnyQuestion, episode: Progress) -> SQLState:
    """Return what `GET /state` shows of an episode."""
    return SQLState(
        episode_id=episode.episode_id,
        question_id=question.question_id,
        question=question.question_text,
        db_id=question.database_name,
        step_count=len(episode.actions),
        step_budget=episode.step_budget,
        action_history=list(episode.actions),
        done=episode.outcome is not None,
        outcome=episode.outcome,
    )


def find_table(argument: str, tables: list[str]) -> str | None:
    """Return the table that an agent names, whatever its letter case, quotes or final semicolon."""
    name = argument.strip().rstrip(";").strip()
    if len(name) >= 2 and name[0] + name[-1] in ('""', "''", "``", "[]"):
        name = name[1:-1]
    if name in tables:
        return name
    return next((table for table in tables if table.lower() == name.lower()), None)
