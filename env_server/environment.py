"""`SQLEnvironment`: one episode, as a state machine that asks for SQL and runs none itself.

Its logic is two generators, `reset_jobs` and `step_jobs`. They yield `SqlJob`s and are sent
`SqlResult`s: `drive_async(jobs, sql_pool.run)` runs them.

A step that fails for a reason that is not the agent's raises and leaves the episode as it was. An
error of the agent's is in the observation's `error`, with `info.error_code` one of

    no_such_table   sql_error   sql_denied   sql_budget   sql_killed
"""

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from env_server.describe import describe_jobs, find_part, sample_jobs
from env_server.questions import QuestionBank
from env_server.render import one_line, render_remarks, render_rows, render_schema
from env_server.rewards import EMPTY_LEDGER, REWARD_VERSION, GoldCells, StepFacts, potential, settle
from env_server.sql import JobKind, Jobs, SqlJob, SqlResult
from env_server.sql.statement import tables_hint
from env_server.verifier import STANDARDS, STRICT, Gold, answer_verdicts, result_verdicts
from shared.actions import ActionType, SQLAction, as_action, normalise, render_action
from shared.answer_text import unwrapped_texts
from shared.dataset import AnyQuestion, OpenQuestion, Question
from shared.errors import Conflict, InvalidRequest
from shared.models import (
    DEFAULT_STANDARD,
    DEFAULT_STEP_BUDGET,
    AnswerForm,
    Explanation,
    Outcome,
    ResetRequest,
    ResetResult,
    RewardLedger,
    Rewards,
    SQLObservation,
    StandardName,
    StepInfo,
    StepResult,
)

# Raise it when episodes change: how actions are read, how questions are chosen, what SQL may do,
# error texts, when an episode ends. Rewards, verdicts and rendered text have their own versions.
ENVIRONMENT_VERSION = "6"
ABOUT_A_TABLE = (ActionType.DESCRIBE, ActionType.SAMPLE)  # their argument is a table's name
COPYABLE = (ActionType.QUERY, ActionType.SAMPLE)  # rows, which an ANSWER may copy


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action led to: `text` to show, or `error`."""

    text: str = ""
    remarks: tuple[str, ...] = ()  # shown below the text; no information of the data's
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

    question: AnyQuestion
    db_path: str
    gold: Gold | None  # None for an open question
    gold_cells: GoldCells
    tables: list[str]
    schema_info: str
    step_budget: int
    answer_form: AnswerForm
    rewards: Rewards
    explain: tuple[Explanation, ...]
    described: list[str] = field(default_factory=list)  # lines of schema_info
    actions: list[str] = field(default_factory=list)  # canonical texts
    # lists of at most `MAX_STEP_BUDGET` hashes: sets would take 650 to 2,200 bytes per episode
    actions_seen: list[bytes] = field(default_factory=list)  # of normalised texts
    results_seen: list[bytes] = field(default_factory=list)  # of texts
    copyable: list[bytes] = field(default_factory=list)  # digests of results shown
    ledger: RewardLedger = field(default_factory=lambda: EMPTY_LEDGER)  # replaced, never changed
    outcome: Outcome | None = None
    verdicts: dict[str, bool] | None = None  # of the ANSWER, by standard


def step_result(episode: EpisodeState, effect: Effect, reward: float | None) -> StepResult:
    """Return the reply to an action that led to `effect`, once the episode counts the action.

    With `rewards="end"`, the last reply alone has a reward: whether the answer is right. All other
    parts would tell how near the queries were to the gold.
    """
    done = episode.outcome is not None
    withheld = episode.rewards == "end"
    if withheld:
        reward = episode.ledger.correctness if done else None
    observation = SQLObservation(
        question=episode.question.question_text,
        schema_info=episode.schema_info,
        result=render_remarks(effect.text, effect.remarks),
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


class SQLEnvironment:
    """One episode at a time over a bank's questions."""

    __slots__ = ("_episode", "bank", "standard")

    def __init__(self, bank: QuestionBank, standard: StandardName = DEFAULT_STANDARD) -> None:
        self.bank, self.standard = bank, standard
        self._episode: EpisodeState | None = None

    @property
    def actions(self) -> list[str]:
        """The canonical texts of the actions so far; each step appends its own."""
        return self._current().actions

    @property
    def verdicts(self) -> dict[str, bool] | None:
        """Standard -> whether the ANSWER is right by it, for operators; None before an ANSWER."""
        return self._current().verdicts

    def reset_jobs(self, request: ResetRequest) -> Jobs[ResetResult]:
        """Start an episode, replay the request's `actions`, and return the last result.

        Raises `UnknownQuestion`, `ActionParseError`, `InvalidRequest` for an open question with
        answer_form "sql", `Conflict` if `actions` continue after the end, and `DataError`.
        """
        episode_id = request.episode_id or str(uuid.uuid4())
        question = self.bank.question_for(request, episode_id)
        actions = [as_action(action) for action in request.actions or ()]
        if isinstance(question, OpenQuestion) and request.answer_form != "text":
            raise InvalidRequest(
                f"answer_form: question {question.question_id!r} has no gold: use 'text'"
            )
        db_path = self.bank.database(question.database_name)
        job = SqlJob(JobKind.TABLES, db_path)
        rows = yield from self.bank.trusted_jobs(question, job, lambda result: result.rows)
        tables = [str(row[0]) for row in rows]
        gold, cells = None, GoldCells([])
        if isinstance(question, Question):
            gold, cells = yield from self.bank.gold_jobs(question)
        self._episode = episode = EpisodeState(
            question=question,
            db_path=db_path,
            gold=gold,
            gold_cells=cells,
            tables=tables,
            schema_info=render_schema(tables, ()),
            step_budget=request.step_budget or DEFAULT_STEP_BUDGET,
            answer_form=self.bank.answer_form(question, request),
            rewards=request.rewards or "step",
            explain=request.explanations,
        )
        last = step_result(episode, Effect(), None)
        for action in actions:
            last = yield from self.step_jobs(action)
        return ResetResult(episode_id=episode_id, **dict(last))

    def step_jobs(self, action: SQLAction | str) -> Jobs[StepResult]:
        """Take one action.

        Raises `ActionParseError`, `Conflict` without an unfinished episode, or `DataError`.
        """
        action = as_action(action)
        episode = self._current()
        if episode.outcome is not None:
            raise Conflict(f"the episode is over ({episode.outcome}); reset to start another")
        effect = yield from _HANDLERS[action.action_type](self, episode, action)
        return self._settle(episode, action, effect)

    # -- the actions

    def _inspect(self, episode: EpisodeState, action: SQLAction) -> Jobs[Effect]:
        found = find_part(action.argument, episode.tables)
        if found is None:
            name = " ".join(action.argument.split())[:80]
            text = f"no such table: {name}; {tables_hint(episode.tables)}"
            return Effect(error=text, error_code="no_such_table")
        if action.action_type == ActionType.SAMPLE:
            shown = yield from sample_jobs(self.bank, episode.question, *found)
        else:
            values = "values" in episode.explain
            shown = yield from describe_jobs(self.bank, episode.question, *found, values=values)
        return Effect(shown.text, (), shown.error, shown.error_code, shown.described)

    def _query(self, episode: EpisodeState, action: SQLAction) -> Jobs[Effect]:
        limits, gold = self.bank.limits, episode.gold_cells
        withheld = episode.rewards == "end"
        # one row more than the gold has shows whether the query returns as many
        wanted = 0 if withheld else gold.rows + 1
        max_rows = min(max(limits.shown_rows, wanted), limits.gold_rows)
        explain = tuple(one for one in episode.explain if one != "values")
        result = yield from self._run_agent_sql(episode, action.argument, max_rows, explain)
        if result.error is not None:
            return Effect(error=result.error, error_code=result.error_code)
        progress = 0.0  # where rewards are withheld: the time to compare would tell the gold
        if not withheld:
            progress = potential(result.rows, result.truncated, gold, result.reads_data)
        text = render_rows(result, limits.shown_rows)
        return Effect(text, tuple(result.remarks), potential=progress)

    def _answer(self, episode: EpisodeState, action: SQLAction) -> Jobs[Effect]:
        if episode.gold is None:
            return Effect(unjudged=True)
        if episode.answer_form == "sql":
            return (yield from self._answer_sql(episode, episode.gold, action.argument))
        verdicts = answer_verdicts(
            action.argument, episode.gold, lambda text: digest_of(text) in episode.copyable
        )
        return Effect(correct=verdicts[self.standard], verdicts=verdicts)

    def _answer_sql(self, episode: EpisodeState, gold: Gold, argument: str) -> Jobs[Effect]:
        statement = unwrapped_texts(argument)[-1]
        result = yield from self._run_agent_sql(episode, statement, self.bank.limits.gold_rows)
        if result.error is not None or result.truncated:
            return Effect(
                error=result.error,
                error_code=result.error_code,
                correct=None if result.error_code == "sql_killed" else False,
                verdicts=dict.fromkeys(STANDARDS, False),
            )
        verdicts = result_verdicts(result.rows, gold)
        if not result.reads_data:  # a constant is a guess, however it is written
            verdicts[STRICT] = False
        return Effect(correct=verdicts[self.standard], verdicts=verdicts)

    # -- the end of a step

    def _settle(self, episode: EpisodeState, action: SQLAction, effect: Effect) -> StepResult:
        """Add an action and its reward to the episode."""
        is_answer = effect.correct is not None or effect.unjudged
        # an ANSWER ends the episode, so it repeats nothing, and may have 20,000 characters
        key = b"" if is_answer else digest_of(comparable(action, episode.tables))
        result_key = digest_of(effect.text)
        succeeded = effect.error is None
        facts = StepFacts(
            exec_ok=succeeded,
            new_info=succeeded and not is_answer and result_key not in episode.results_seen,
            repeat=key in episode.actions_seen,
            potential=effect.potential,
            correct=bool(effect.correct),
        )
        reward, episode.ledger = settle(episode.ledger, facts)
        episode.actions.append(render_action(action))
        episode.actions_seen.append(key)
        if facts.new_info:
            episode.results_seen.append(result_key)
        if succeeded and action.action_type in COPYABLE:
            episode.copyable.append(digest_of(effect.text.strip()))  # as an ANSWER is stripped
        if effect.described is not None and effect.described not in episode.described:
            episode.described.append(effect.described)
            episode.schema_info = render_schema(episode.tables, episode.described)
        episode.verdicts = effect.verdicts
        episode.outcome = outcome_of(effect, episode.step_budget - len(episode.actions))
        return step_result(episode, effect, reward)

    # -- SQL

    def _run_agent_sql(
        self, episode: EpisodeState, sql: str, max_rows: int, explain: tuple[str, ...] = ()
    ) -> Jobs[SqlResult]:
        """Run an agent's statement. `DatabaseLoadError` if the database can't be read."""
        result = yield SqlJob(JobKind.QUERY, episode.db_path, sql, max_rows, explain)
        if result.error_code == "db_error":
            raise self.bank.unreadable(episode.question, result)
        return result

    def _current(self) -> EpisodeState:
        if self._episode is None:
            raise Conflict("no episode yet: reset first")
        return self._episode


_HANDLERS: dict[ActionType, Callable[[SQLEnvironment, EpisodeState, SQLAction], Jobs[Effect]]] = {
    ActionType.DESCRIBE: SQLEnvironment._inspect,
    ActionType.SAMPLE: SQLEnvironment._inspect,
    ActionType.QUERY: SQLEnvironment._query,
    ActionType.ANSWER: SQLEnvironment._answer,
}


def outcome_of(effect: Effect, steps_left: int) -> Outcome | None:
    """Return how an action ended its episode, or None if the episode continues."""
    if effect.correct is not None:
        return Outcome.CORRECT if effect.correct else Outcome.WRONG
    if effect.unjudged:
        return Outcome.ANSWERED
    if effect.error_code == "sql_killed":
        return Outcome.SQL_KILLED
    return None if steps_left > 0 else Outcome.BUDGET


def comparable(action: SQLAction, tables: list[str]) -> str:
    """Return a text that is the same for actions that count as a repeat of each other."""
    found = find_part(action.argument, tables) if action.action_type in ABOUT_A_TABLE else None
    named = None if found is None else f"{action.action_type}: {' '.join(found)}".strip()
    return normalise(named or render_action(action))


def digest_of(text: str) -> bytes:
    """Return a hash of a text, to remember it in 16 bytes."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()
