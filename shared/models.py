"""The wire format between an agent's driver and the environment server, as pydantic models.

Observations hold no id, no time and no gold data, so the same question, options and actions give
the same bytes on every replica.

Paths and replies resemble OpenEnv's over HTTP, but are not compatible with its clients. Replies
have its `observation`, `reward` and `done`, and more fields; the observation repeats `reward` and
`done`. `/reset` takes its `seed` and `episode_id`, and refuses fields that it does not know.
`/step` and `/state` name the episode, since here state outlives a request; OpenEnv's
`{"action": {...}}` alone is refused.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from shared.actions import SQLAction

Difficulty = Literal["easy", "medium", "hard"]
AnswerType = Literal["integer", "float", "string", "list", "table"]
AnswerForm = Literal["text", "sql"]
Rewards = Literal["step", "end"]
StandardName = Literal["strict", "spider", "bird"]  # of right answers: docs/trust-answers.md
DEFAULT_STANDARD: StandardName = "strict"
DEFAULT_STEP_BUDGET = 10  # of the server, and of the trainer, which names its own in every reset
MAX_STEP_BUDGET = 100


class Outcome(StrEnum):
    """How an episode ended."""

    CORRECT = "correct"  # a right ANSWER
    WRONG = "wrong"  # a wrong ANSWER
    ANSWERED = "answered"  # an ANSWER to an open question, which has no gold
    BUDGET = "budget"  # the step budget ran out before an ANSWER
    ABANDONED = "abandoned"  # the driver closed it, or its lease ran out
    SQL_KILLED = "sql_killed"  # a query killed its worker twice: the agent's error
    INFRA_FAILED = "infra_failed"  # the driver could not finish it; never a reward


class RewardLedger(BaseModel):
    """Where an episode's reward comes from. `total` is the sum of all step rewards so far."""

    # This step's parts, which sum to its reward: exec_ok, new_info, repeat, step_cost and clamp
    # (what the bounds take back) are operational; progress and correctness. Parts that are 0 are
    # left out.
    step: dict[str, float]
    operational: float  # running sum, clamped to [-0.25, 0.05]
    progress: float  # 0.15 x potential
    correctness: float  # 1.0 after a right ANSWER, else 0.0
    potential: float  # [0, 1], of the best QUERY so far
    total: float


class SQLObservation(BaseModel):
    """What an agent may see after a reset or a step, except `reward`, which is for the driver."""

    question: str
    schema_info: str  # "Tables: a, b" at first, then one block for each table described
    result: str  # of the last action, as text; empty if it failed
    error: str | None = None  # of the last action
    step_count: int
    budget_remaining: int
    action_history: list[str]  # canonical text of every action so far
    done: bool
    reward: float | None = None  # as in `StepResult`

    @property
    def tables(self) -> list[str]:
        """The names of the database's tables, from the first line of `schema_info`."""
        listed = self.schema_info.partition("\n")[0].removeprefix("Tables:").strip()
        return listed.split(", ") if listed else []


class StepInfo(BaseModel):
    """What the driver gets besides the observation, and the agent never."""

    question_id: str
    reward_version: str
    ledger: RewardLedger | None  # None as long as rewards are withheld
    error_code: str | None = None  # of the last action: see env_server.environment
    outcome: Outcome | None = None  # set at the end


class StepResult(BaseModel):
    """The reply to a step. `reward` is the step's, and None at a reset.

    In an episode with `rewards` "end" it is None until the last reply, whose reward is the
    episode's total.
    """

    observation: SQLObservation
    reward: float | None
    done: bool
    info: StepInfo

    @property
    def ledger(self) -> RewardLedger:
        """The ledger; `ValueError` if it is withheld."""
        if self.info.ledger is None:
            raise ValueError("rewards are withheld until the end: reset with rewards 'step'")
        return self.info.ledger


class ResetResult(StepResult):
    """The reply to a reset: with `actions`, the last replayed step's reply."""

    episode_id: str


class SQLState(BaseModel):
    """`GET /state`: where an episode stands, without gold data."""

    episode_id: str
    question_id: str
    question: str
    db_id: str
    step_count: int
    step_budget: int
    action_history: list[str]
    done: bool
    outcome: Outcome | None = None


class EpisodeVerdicts(BaseModel):
    """`GET /operator/verdicts/{episode_id}`: an ended episode's answer by every standard."""

    episode_id: str
    question_id: str
    answer_form: AnswerForm
    outcome: Outcome
    standard: StandardName  # the one of `verdicts` that decided outcome and reward
    verdicts: dict[str, bool] | None  # standard -> was the ANSWER right; None without an ANSWER


class FormTotals(BaseModel):
    """Counts of the episodes that ended with an ANSWER of one form."""

    answered: int
    right: dict[str, int]  # standard -> episodes whose answer is right by it


class VerdictTotals(BaseModel):
    """`GET /operator/verdicts`: all answers since the server's start, replayed ones included."""

    standard: StandardName  # the one that decides outcomes and rewards
    forms: dict[AnswerForm, FormTotals]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


_Difficulties = Annotated[  # no more than there are: 200,000 took 1.5 s
    list[Difficulty], Field(min_length=1, max_length=len(get_args(Difficulty)), fail_fast=True)
]
_Actions = Annotated[list[SQLAction | str], Field(max_length=MAX_STEP_BUDGET, fail_fast=True)]


class ResetRequest(_Request):
    """Start an episode, or rebuild it by replaying `actions`.

    `question_id` wins over the filters; a `seed` picks the same question on every server. With a
    `digest`, a server whose own differs refuses. With `answer_form` "sql", ANSWER holds a statement
    whose result is compared with the gold's: another task than training's, counted separately, of
    which the driver must inform its agent.
    """

    # can't be '..', as it is part of a URL's path
    episode_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$")
    question_id: str | None = None
    split: str | None = None  # "train" or "eval"
    difficulty: Difficulty | _Difficulties | None = None
    db_id: str | None = None
    seed: int | None = None
    step_budget: int | None = Field(default=None, ge=1, le=MAX_STEP_BUDGET)
    answer_form: AnswerForm = "text"
    rewards: Rewards | None = None
    actions: _Actions | None = None
    digest: str | None = None  # of the server that the episode started on


class StepRequest(_Request):
    """Play one action. `step` is the number of steps that the caller has seen answered."""

    episode_id: str
    action: SQLAction | str
    step: int | None = Field(default=None, ge=0)


class ResetBatchRequest(_Request):
    resets: list[Any]  # each a ResetRequest, validated alone so that one bad item fails alone


class StepBatchRequest(_Request):
    steps: list[Any]  # each a StepRequest, validated alone


class ServerMetadata(BaseModel):
    """`GET /metadata`. Servers with equal `digest` (data, rules, limits) replay to equal bytes."""

    name: str
    description: str
    version: str
    reward_version: str
    sqlite_version: str
    digest: str
    data_digest: str
    questions: dict[str, int]  # split -> number
    databases: int
    step_budget: int
    standard: StandardName  # that decides outcomes and rewards
    capacity: int
