"""`Episode`: a state machine that asks for SQL and runs none itself.

Its logic is two generators, `start_jobs` and `step_jobs`. They yield `SqlJob`s and are sent
`SqlResult`s: `drive_async(jobs, sql_pool.run)` runs them. `reply` then shows where it stands.

A step that fails for a reason that is not the agent's raises and leaves the episode as it was. An
error of the agent's is in the observation's `error`, with `info.error_code` one of

    no_such_table   sql_error   sql_denied   sql_budget   sql_killed
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from env_server.describe import Effect, describe_jobs, find_part, sample_jobs
from env_server.questions import QuestionBank
from env_server.render import one_line, render_remarks, render_rows, render_schema
from env_server.rewards import (
    EMPTY_LEDGER,
    REWARD_VERSION,
    RULES,
    GoldCells,
    RewardRules,
    StepFacts,
    potential,
    settle,
)
from env_server.sql import JobKind, Jobs, SqlJob, SqlResult, drive_async
from env_server.sql.statement import tables_hint
from env_server.verifier import STRICT, Gold, answer_verdicts, result_verdicts
from shared.actions import ActionType, SQLAction, normalise, parse_action, render_action
from shared.answers.text import unwrapped_texts
from shared.dataset import AnyQuestion, Question
from shared.errors import Conflict, InvalidRequest
from shared.models import (
    DEFAULT_STANDARD,
    DEFAULT_STEP_BUDGET,
    AnswerForm,
    Explanation,
    Outcome,
    ResetRequest,
    RewardLedger,
    Rewards,
    SQLObservation,
    SQLState,
    StandardName,
    StepInfo,
    StepResult,
)

ABOUT_A_TABLE = (ActionType.DESCRIBE, ActionType.SAMPLE)  # their argument is a table's name
COPYABLE = (ActionType.QUERY, ActionType.SAMPLE)  # rows, which an ANSWER may copy
NO_CELLS, NO_EFFECT = GoldCells([]), Effect()


class Options(NamedTuple):
    """What a reset decides. Replies depend on it, the data and the actions, and on nothing else."""

    question_id: str
    step_budget: int
    answer_form: AnswerForm
    rewards: Rewards
    explain: tuple[Explanation, ...]

    @classmethod
    def of(
        cls,
        request: ResetRequest,
        bank: QuestionBank,
        episode_id: str = "",
        step_budget: int = DEFAULT_STEP_BUDGET,
    ) -> "Options":
        """Decide by a request, whose question is drawn by `episode_id` if it has no seed."""
        question, form = bank.question_for(request, episode_id), request.answer_form
        if isinstance(question, Question):
            # with SQL also where the question's answer is too large
            form = "sql" if question.answer_form == "sql" else form
        elif form != "text":
            raise InvalidRequest(
                f"answer_form: question {question.question_id!r} has no gold: use 'text'"
            )
        budget = request.step_budget or step_budget
        rewards, explain = request.rewards or "step", request.explanations
        return cls(question.question_id, budget, form, rewards, explain)


@dataclass(slots=True, eq=False)
class Episode:
    """One episode: its options, where it stands, its last reply, and its place in a pool."""

    bank: QuestionBank
    options: Options
    standard: StandardName = DEFAULT_STANDARD  # which decides whether an answer is right
    rules: RewardRules = RULES
    question: AnyQuestion = field(init=False)
    started: bool = False
    # What the next step needs, so that an episode that has ended holds none of it.
    db_path: str = ""
    gold: Gold | None = None  # None for an open question
    gold_cells: GoldCells = NO_CELLS
    tables: list[str] = field(default_factory=list)
    described: list[str] = field(default_factory=list)  # lines of schema_info
    # lists of at most `MAX_STEP_BUDGET` hashes: sets would take 650 to 2,200 bytes per episode
    actions_seen: list[bytes] = field(default_factory=list)  # of normalised texts
    results_seen: list[bytes] = field(default_factory=list)  # of texts
    copyable: list[bytes] = field(default_factory=list)  # digests of results shown
    # What replies show.
    actions: list[str] = field(default_factory=list)  # canonical texts
    schema_info: str = ""
    ledger: RewardLedger = field(default_factory=lambda: EMPTY_LEDGER)  # replaced, never changed
    effect: Effect = NO_EFFECT  # of the last action
    reward: float | None = None  # of the last action
    outcome: Outcome | None = None
    # Its place among others, which the pool keeps.
    episode_id: str = ""
    owner: str = ""  # the name of the key that began it; "" without keys
    attempt: int = 0  # number of an agent's try among those of the question; 0 if it is none
    touched: float = 0.0  # monotonic seconds of the last request
    action_bytes: int = 0  # of the actions' UTF-8
    shown_bytes: int = 0  # of memory, by what its last reply shows
    held_bytes: int = 0  # by that and its actions
    users: int = 0  # requests that hold or await `turn`; with any, the episode is not idle
    gone: bool = False  # removed from the pool
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.question = self.bank.get(self.options.question_id)

    def start_jobs(self) -> Jobs[None]:
        """Read what the first reply shows. Raises `DataError`."""
        question, path = self.question, self.bank.database(self.question.database_name)
        job = SqlJob(JobKind.TABLES, path)
        rows = yield from self.bank.trusted_jobs(question, job, lambda result: result.rows)
        if isinstance(question, Question):
            self.gold, self.gold_cells = yield from self.bank.gold_jobs(question)
        self.db_path, self.tables = path, [str(row[0]) for row in rows]
        self.schema_info = render_schema(self.tables, ())
        self.started = True

    def step_jobs(self, action: SQLAction, text: str) -> Jobs[None]:
        """Take one action, whose canonical form is `text`. Raises `DataError` and `Conflict`."""
        if self.outcome is not None:
            raise Conflict(
                f"the episode is over after {len(self.actions)} steps ({self.outcome}); "
                "start another",
                step_count=len(self.actions),
                outcome=self.outcome,
            )
        effect = yield from _HANDLERS[action.action_type](self, action)
        self._settle(action, text, effect)

    def reply(self) -> StepResult:
        """Return the reply to the last action, or to the start."""
        question, effect, options = self.question, self.effect, self.options
        done, withheld, reward = self.outcome is not None, options.rewards == "end", self.reward
        if withheld:  # the other parts would tell how near the queries were to the gold
            reward = self.ledger.correctness if done else None
        observation = SQLObservation(
            question=question.question_text,
            schema_info=self.schema_info,
            result=render_remarks(effect.text, effect.remarks),
            error=effect.error and one_line(effect.error),
            step_count=len(self.actions),
            budget_remaining=options.step_budget - len(self.actions),
            action_history=list(self.actions),
            done=done,
            reward=reward,
        )
        info = StepInfo(
            question_id=question.question_id,
            reward_version=REWARD_VERSION,
            ledger=None if withheld else self.ledger,
            error_code=effect.error_code,
            outcome=self.outcome,
        )
        return StepResult(observation=observation, reward=reward, done=done, info=info)

    def state(self) -> SQLState:
        question = self.question
        return SQLState(
            episode_id=self.episode_id,
            question_id=question.question_id,
            question=question.question_text,
            db_id=question.database_name,
            step_count=len(self.actions),
            step_budget=self.options.step_budget,
            action_history=list(self.actions),
            done=self.outcome is not None,
            outcome=self.outcome,
        )

    # -- the actions

    def _inspect(self, action: SQLAction) -> Jobs[Effect]:
        found = find_part(action.argument, self.tables)
        if found is None:
            name = " ".join(action.argument.split())[:80]
            text = f"no such table: {name}; {tables_hint(self.tables)}"
            return Effect(error=text, error_code="no_such_table")
        if action.action_type == ActionType.SAMPLE:
            return (yield from sample_jobs(self.bank, self.question, *found))
        values = "values" in self.options.explain
        return (yield from describe_jobs(self.bank, self.question, *found, values=values))

    def _query(self, action: SQLAction) -> Jobs[Effect]:
        limits, gold = self.bank.limits, self.gold_cells
        withheld = self.options.rewards == "end"
        # one row more than the gold has shows whether the query returns as many
        wanted = 0 if withheld else gold.rows + 1
        max_rows = min(max(limits.shown_rows, wanted), limits.gold_rows)
        explain = tuple(one for one in self.options.explain if one != "values")
        result = yield from self._run_agent_sql(action.argument, max_rows, explain)
        if result.error is not None:
            return Effect(error=result.error, error_code=result.error_code)
        progress = 0.0  # where rewards are withheld: the time to compare would tell the gold
        if not withheld:
            progress = potential(result.rows, result.truncated, gold, result.reads_data)
        text = render_rows(result, limits.shown_rows)
        return Effect(text, tuple(result.remarks), potential=progress)

    def _answer(self, action: SQLAction) -> Jobs[Effect]:
        if self.gold is None:
            return Effect(unjudged=True)
        if self.options.answer_form == "sql":
            return (yield from self._answer_sql(self.gold, action.argument))
        verdicts = answer_verdicts(
            action.argument, self.gold, lambda text: digest_of(text) in self.copyable
        )
        return Effect(correct=verdicts[self.standard])

    def _answer_sql(self, gold: Gold, argument: str) -> Jobs[Effect]:
        statement = unwrapped_texts(argument)[-1]
        result = yield from self._run_agent_sql(statement, self.bank.limits.gold_rows)
        if result.error is not None or result.truncated:
            return Effect(
                error=result.error,
                error_code=result.error_code,
                correct=None if result.error_code == "sql_killed" else False,
            )
        verdicts = result_verdicts(result.rows, gold)
        if not result.reads_data:  # a constant is a guess, however it is written
            verdicts[STRICT] = False
        return Effect(correct=verdicts[self.standard])

    def _run_agent_sql(
        self, sql: str, max_rows: int, explain: tuple[str, ...] = ()
    ) -> Jobs[SqlResult]:
        """Run an agent's statement. `DatabaseLoadError` if the database can't be read."""
        result = yield SqlJob(JobKind.QUERY, self.db_path, sql, max_rows, explain)
        if result.error_code == "db_error":
            raise self.bank.unreadable(self.question, result)
        return result

    # -- the end of a step

    def _settle(self, action: SQLAction, text: str, effect: Effect) -> None:
        is_answer = effect.correct is not None or effect.unjudged
        # an ANSWER ends the episode, so it repeats nothing, and may have 20,000 characters
        key = b"" if is_answer else digest_of(comparable(action, text, self.tables))
        result_key = digest_of(effect.text)
        succeeded = effect.error is None
        facts = StepFacts(
            exec_ok=succeeded,
            new_info=succeeded and not is_answer and result_key not in self.results_seen,
            repeat=key in self.actions_seen,
            potential=effect.potential,
            correct=bool(effect.correct),
        )
        self.reward, self.ledger = settle(self.ledger, facts, self.rules)
        self.effect = effect
        self.actions.append(text)
        self.actions_seen.append(key)
        if facts.new_info:
            self.results_seen.append(result_key)
        if succeeded and action.action_type in COPYABLE:
            self.copyable.append(digest_of(effect.text.strip()))  # as an ANSWER is stripped
        if effect.described is not None and effect.described not in self.described:
            self.described.append(effect.described)
            self.schema_info = render_schema(self.tables, self.described)
        if effect.correct is not None:
            self.outcome = Outcome.CORRECT if effect.correct else Outcome.WRONG
        elif effect.unjudged:
            self.outcome = Outcome.ANSWERED
        elif effect.error_code == "sql_killed":
            self.outcome = Outcome.SQL_KILLED
        elif len(self.actions) >= self.options.step_budget:
            self.outcome = Outcome.BUDGET
        if self.outcome is not None:
            self.gold, self.gold_cells, self.tables, self.described = None, NO_CELLS, [], []
            self.actions_seen, self.results_seen, self.copyable = [], [], []


_HANDLERS: dict[ActionType, Callable[[Episode, SQLAction], Jobs[Effect]]] = {
    ActionType.DESCRIBE: Episode._inspect,
    ActionType.SAMPLE: Episode._inspect,
    ActionType.QUERY: Episode._query,
    ActionType.ANSWER: Episode._answer,
}


async def replay(
    episode: Episode, actions: Iterable[str], run: Callable[[SqlJob], Awaitable[SqlResult]]
) -> AsyncIterator[StepResult]:
    """Start an episode and take its actions; yield the reply to the start and to each."""
    await drive_async(episode.start_jobs(), run)
    yield episode.reply()
    for text in actions:
        action = parse_action(text)
        await drive_async(episode.step_jobs(action, render_action(action)), run)
        yield episode.reply()


def comparable(action: SQLAction, text: str, tables: list[str]) -> str:
    """Return a text that is the same for actions that count as a repeat of each other."""
    found = find_part(action.argument, tables) if action.action_type in ABOUT_A_TABLE else None
    named = None if found is None else f"{action.action_type}: {' '.join(found)}".strip()
    return normalise(named or text)


def digest_of(text: str) -> bytes:
    """Return a hash of a text, to remember it in 16 bytes."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()
