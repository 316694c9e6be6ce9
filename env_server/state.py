"""What an action led to, what an episode remembers of it, and the replies that show it."""

import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from env_server.questions import AnyQuestion
from env_server.render import one_line
from env_server.rewards import EMPTY_LEDGER, REWARD_VERSION, GoldCells
from env_server.sql.jobs import REPEATABLE
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

# An entry of the cache takes this many bytes in addition to its texts.
OVERHEAD_BYTES = 600


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


class ResultCache:
    """Effects of QUERYs by (question_id, statement), at most `max_bytes` of them.

    Databases are read-only and results deterministic, so no entry expires; the least recently used
    go first. 0 bytes: no cache. A question has one database, and one gold for the potential.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = self.hits = self.misses = 0
        self._entries: OrderedDict[tuple[str, str], tuple[Effect, int]] = OrderedDict()

    def get(self, key: tuple[str, str]) -> Effect | None:
        """Return the effect of a statement, or None."""
        if (entry := self._entries.get(key)) is None:
            self.misses += self.max_bytes > 0
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: tuple[str, str], effect: Effect) -> None:
        """Hold an effect, unless it could be another one the next time."""
        size = sum(map(sys.getsizeof, (key[1], effect.text, effect.error))) + OVERHEAD_BYTES
        if effect.error_code not in REPEATABLE or size > self.max_bytes or key in self._entries:
            return
        self._entries[key] = effect, size
        self.held_bytes += size
        while self.held_bytes > self.max_bytes:
            self.held_bytes -= self._entries.popitem(last=False)[1][1]


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
