"""What an action led to, what an episode remembers of it, and the replies that show it."""

from dataclasses import dataclass, field
from typing import Protocol

from env_server.questions import AnyQuestion
from env_server.render import one_line
from env_server.rewards import EMPTY_LEDGER, REWARD_VERSION, GoldCells
from env_server.verifier import Gold
from shared.models import (
    AnswerForm,
    Outcome,
    RewardLedger,
    Rewards,
    SQLObservation,
    SQLState,
    StepInfo,
    StepResult,
)


@dataclass(frozen=True, slots=True)
class Effect:
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
    gold: Gold | None  # None for an open question
    gold_cells: GoldCells
    tables: list[str]
    schema_info: str
    step_budget: int
    answer_form: AnswerForm
    rewards: Rewards
    described: list[str] = field(default_factory=list)  # lines of schema_info
    actions: list[str] = field(default_factory=list)  # canonical texts
    # lists of at most `MAX_STEP_BUDGET` hashes: sets would take 650 to 2,200 bytes per episode
    actions_seen: list[bytes] = field(default_factory=list)  # of normalised texts
    results_seen: list[bytes] = field(default_factory=list)  # of texts
    tables_shown: list[bytes] = field(default_factory=list)  # of those that an ANSWER may copy
    ledger: RewardLedger = field(default_factory=lambda: EMPTY_LEDGER)  # replaced, never changed
    outcome: Outcome | None = None
    verdicts: dict[str, bool] | None = None  # of the ANSWER, by standard


def step_result(episode: EpisodeState, effect: Effect, reward: float | None) -> StepResult:
    """Return the reply to an action that led to `effect`, once the episode counts the action.

    With `rewards="end"`, replies have no rewards before the end; the last has their sum.
    """
    done = episode.outcome is not None
    withheld = episode.rewards == "end" and not done
    if episode.rewards == "end":
        reward = episode.ledger.total if done else None
    observation = SQLObservation(
        question=episode.question.question_text,
        schema_info=episode.schema_info,
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


class Progress(Protocol):
    """How far an episode is: what its state on the wire has besides the question."""

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
