"""The wire format between an agent's driver and the environment server, as pydantic models.

Observations hold no id, no time and no gold data, so the same question, options and actions give
the same bytes on every replica.
Paths and replies over HTTP resemble OpenEnv's, whose clients play over `/ws`.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from shared.actions import SQLAction
from shared.sqltext import split_names

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
AnswerType = Literal["integer", "float", "string", "list", "table"]
AnswerForm = Literal["text", "sql"]
# What observations explain beside the data itself: docs/api.md#explanations
Explanation = Literal["values", "empty", "errors", "remarks"]
EXPLANATIONS: tuple[Explanation, ...] = ("values", "empty", "errors", "remarks")
Rewards = Literal["step", "end"]
StandardName = Literal["strict", "spider", "bird"]  # of right answers: docs/trust.md
DEFAULT_STANDARD: StandardName = "strict"
DEFAULT_STEP_BUDGET = 10  # of the server, and of the trainer, which names its own in every reset
MAX_STEP_BUDGET = 100
MAX_PAGE = 500  # of a list's entries in one reply


class Outcome(StrEnum):
    """How an episode ended."""

    CORRECT = "correct"  # a right ANSWER
    WRONG = "wrong"  # a wrong ANSWER
    ANSWERED = "answered"  # an ANSWER to an open question, which has no gold
    BUDGET = "budget"  # the step budget ran out before an ANSWER
    ABANDONED = "abandoned"  # the driver closed it, or its lease ran out
    SQL_KILLED = "sql_killed"  # a query killed its worker twice: the agent's error
    INFRA_FAILED = "infra_failed"  # the driver could not finish it; never a reward


class WireModel(BaseModel):
    # the text under a field is its description in OpenAPI and in JSON schemas
    model_config = ConfigDict(use_attribute_docstrings=True)


class RewardLedger(WireModel):
    """Where an episode's reward comes from. `total` is the sum of all step rewards so far."""

    step: dict[str, float]
    """The parts of this step's reward that are not 0, which sum to it. Operational: exec_ok,
    new_info, repeat, step_cost, and clamp, which keeps their sum in its bounds. The others:
    progress, correctness."""
    operational: float
    """Running sum of the operational parts, clamped to [-0.25, 0.05]."""
    progress: float
    """0.15 x `potential`."""
    correctness: float
    """1.0 after a right ANSWER, else 0.0."""
    potential: float
    """From 0 to 1: how close the best QUERY so far came to the gold rows."""
    total: float
    """Sum of all step rewards so far."""


class SQLObservation(WireModel):
    """What an agent may see after a reset or a step, except `reward`, which is for the driver."""

    question: str
    """Question in plain language, which an ANSWER answers."""
    schema_info: str
    """"Tables: a, b" at first, then one block for each table described."""
    result: str
    """Result of the last action as text; empty if the action failed."""
    error: str | None = None
    """What was wrong with the last action; null if it worked."""
    step_count: int
    """Steps taken so far."""
    budget_remaining: int
    """Steps left; the episode ends when there are none."""
    action_history: list[str]
    """Canonical text of every action so far."""
    done: bool
    """Whether the episode has ended."""
    reward: float | None = None
    """The same as beside the observation."""

    @property
    def tables(self) -> list[str]:
        """The names of the database's tables, from the first line of `schema_info`."""
        return split_names(self.schema_info.partition("\n")[0].removeprefix("Tables:").strip())


class StepInfo(WireModel):
    """What the driver gets besides the observation, and the agent never."""

    question_id: str
    """Id of the question, which a reset takes."""
    reward_version: str
    """Version of the rules that rewards follow."""
    ledger: RewardLedger | None
    """Where the reward comes from; null in an episode with `rewards` "end"."""
    error_code: str | None = None  # those that exist: env_server.episode
    """Kind of the last action's error, for programs; null if it worked."""
    outcome: Outcome | None = None
    """How the episode ended; null until then."""


class StepResult(WireModel):
    """The reply to a step. `reward` is the step's, and None at a reset.

    In an episode with `rewards` "end" it is None until the last reply, whose reward is 1 for a
    right answer, else 0.
    """

    observation: SQLObservation
    """What the agent may see."""
    reward: float | None
    """Reward of the step; null at a reset and as long as rewards are withheld."""
    done: bool
    """Whether the episode has ended."""
    info: StepInfo
    """What the driver gets besides, and must not show its agent."""

    @property
    def ledger(self) -> RewardLedger:
        """The ledger; `ValueError` if it is withheld."""
        if self.info.ledger is None:
            raise ValueError(
                "the ledger is withheld: reset with rewards 'step', and not with an agent's key"
            )
        return self.info.ledger


class ResetResult(StepResult):
    """The reply to a reset: with `actions`, the last replayed step's reply."""

    episode_id: str
    """Id of the episode, which every step names."""


class SQLState(WireModel):
    """`GET /state`: where an episode stands, without gold data."""

    episode_id: str
    """Id of the episode."""
    question_id: str
    """Id of its question."""
    question: str
    """Question in plain language."""
    db_id: str
    """Database that the question is about."""
    step_count: int
    """Steps taken so far."""
    step_budget: int
    """Steps that the episode has in all."""
    action_history: list[str]
    """Canonical text of every action so far."""
    done: bool
    """Whether the episode has ended."""
    outcome: Outcome | None = None
    """How the episode ended; null until then."""


class ListedQuestion(WireModel):
    """One question that a reset can draw, without anything about its answer."""

    question_id: str
    """Id, which a reset takes."""
    question: str
    """Question in plain language."""
    db_id: str
    """Database that the question is about."""
    split: str
    """Split that has the question: "train" or "eval"."""
    difficulty: Difficulty
    """Difficulty by which a reset can draw."""


class _Page(WireModel):
    total: int
    """Number of entries that match, on all pages."""
    next_offset: int | None
    """`offset` of the next page; null on the last one."""


class QuestionPage(_Page):
    """`GET /questions`: some of the questions that match, by split and id."""

    questions: list[ListedQuestion]
    """Questions of this page."""


class ListedDatabase(WireModel):
    """One database, with the number of questions about it that a reset can draw."""

    db_id: str
    """Id, which a reset takes."""
    questions: dict[str, int]
    """Number of questions by split."""


class DatabasePage(_Page):
    """`GET /databases`: some of the databases, by id."""

    databases: list[ListedDatabase]
    """Databases of this page."""


class QuestionTries(WireModel):
    """The tries of one question by one agent's key: its ANSWERs that were judged."""

    key: str
    """Name of the key: "agent-1" is the first of SQLENV_AGENT_KEYS."""
    question_id: str
    """Id of the question."""
    tries: int
    """Number of tries."""
    right: int
    """Number of those that were right."""
    first_right: bool
    """Whether the first one was right."""


class TriesPage(_Page):
    """`GET /operator/tries`: tries by key and question, most tries first."""

    tries: list[QuestionTries]
    """Tries of this page."""


class _Request(WireModel):
    model_config = ConfigDict(extra="forbid")


_Difficulties = Annotated[  # no more than there are: 200,000 took 1.5 s
    list[Difficulty], Field(min_length=1, max_length=len(DIFFICULTIES), fail_fast=True)
]
_Actions = Annotated[list[SQLAction | str], Field(max_length=MAX_STEP_BUDGET, fail_fast=True)]


class ResetRequest(_Request):
    """Start an episode, or rebuild it by replaying `actions`.

    `question_id` wins over the filters; a `seed` picks the same question on every server. With a
    `digest`, a server whose own differs refuses. With `answer_form` "sql", ANSWER holds a statement
    whose result is compared with the gold's. This is another task than training's; the driver must
    tell its agent that ANSWER takes SQL.
    """

    # can't be '..', as it is part of a URL's path
    episode_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$")
    """Id of the episode, 1 to 64 letters, digits and _ . : - ; without it the server makes one."""
    question_id: str | None = None
    """Id of the question, as `GET /questions` lists it; without it the server draws one."""
    split: str | None = None
    """Draw from this split: "train" or "eval"."""
    difficulty: Difficulty | _Difficulties | None = None
    """Draw among questions of this difficulty, or of these."""
    db_id: str | None = None
    """Draw among questions about this database, as `GET /databases` lists it."""
    seed: int | None = None
    """Draw by this number, the same question on every server; without it by `episode_id`."""
    step_budget: int | None = Field(default=None, ge=1, le=MAX_STEP_BUDGET)
    """Steps that the episode has; without it the server's."""
    answer_form: AnswerForm = "text"
    """Whether ANSWER holds a value as text, as without this field, or a SQL statement."""
    rewards: Rewards | None = None
    """Show rewards at each step ("step"), or only whether the answer was right, as to agents."""
    explain: list[Explanation] | None = Field(default=None, max_length=len(EXPLANATIONS))
    """What observations explain: "values", "empty", "errors", "remarks"; without it all four."""
    actions: _Actions | None = None
    """Actions to replay, to rebuild an episode that a server has lost."""
    digest: str | None = None
    """`digest` in `GET /metadata` of the server that the episode started on; another refuses."""

    @property
    def explanations(self) -> tuple[Explanation, ...]:
        """`explain`, or its default, each once and in a fixed order."""
        asked = EXPLANATIONS if self.explain is None else self.explain
        return tuple(one for one in EXPLANATIONS if one in asked)


class StepRequest(_Request):
    """Play one action. `step` is the number of steps that the caller has seen answered."""

    episode_id: str
    """Id in the reply to the reset."""
    action: SQLAction | str
    """Action as text, 'TYPE: argument', or as an object."""
    step: int | None = Field(default=None, ge=0)
    """Steps answered so far. With it a repeat is safe: it gets the same reply and counts once."""


# The items of a batch are validated one by one, so that one bad item fails alone.


class ResetBatchRequest(_Request):
    """Start many episodes."""

    resets: list[Any]
    """Resets, each a `ResetRequest`."""


class StepBatchRequest(_Request):
    """Take many steps."""

    steps: list[Any]
    """Steps, each a `StepRequest`."""


class PageRequest(_Request):
    """Which part of a list to return."""

    offset: int = Field(default=0, ge=0, le=2**53)
    """Number of entries to skip: `next_offset` of the page before."""
    limit: int = Field(default=100, ge=1, le=MAX_PAGE)
    """Largest number of entries to return."""


class QuestionsRequest(PageRequest):
    """Which questions to list."""

    split: str | None = None
    """List only this split's: "train" or "eval"."""
    difficulty: Difficulty | _Difficulties | None = None
    """List only questions of this difficulty, or of these."""
    db_id: str | None = None
    """List only questions about this database."""


class ServerMetadata(WireModel):
    """`GET /metadata`. Servers with equal `digest` (data, rules, limits) replay to equal bytes."""

    name: str
    """Name of the program."""
    description: str
    """What it serves."""
    version: str
    """Version of the installed package."""
    reward_version: str
    """Version of the rules that rewards follow."""
    sqlite_version: str
    """Version of SQLite, on which plans and budgets depend."""
    digest: str
    """SHA-256 over `rules`: everything that a reply depends on."""
    rules: dict[str, str] = {}
    """What decides a reply, by its part: digests of data, limits and code, versions, settings."""
    data_digest: str
    """SHA-256 over questions and databases."""
    questions: dict[str, int]
    """Number of questions by split; "open" counts those without gold, which are not listed."""
    databases: int
    """Number of databases."""
    step_budget: int
    """Steps of an episode whose reset sets none."""
    standard: StandardName
    """Standard of right answers, which decides outcomes and rewards."""
    capacity: int
    """Largest number of unfinished episodes."""
