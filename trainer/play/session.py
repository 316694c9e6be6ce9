"""One question: an episode played by the training loop's `play_episodes`, recorded step by step."""

import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.actions import ActionType
from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import Outcome, StepResult
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.play.database import Database
from trainer.rollout.dataset import prompt_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.loop import EpisodeClient, play_episodes
from trainer.rollout.parsing import ParsedAction
from trainer.rollout.prompts import format_observation, opening_messages


@dataclass(frozen=True)
class PlayStep:
    """One turn: the agent's text, the action parsed from it, and the environment's reply."""

    step: int
    text: str
    action: ActionType
    argument: str
    parse_fallback: bool  # the text held no action and ran as a QUERY
    result: str
    error: str | None
    error_code: str | None
    steps_left: int
    tokens: int | None  # of the text; None if the model's server does not count
    agent_s: float
    env_s: float


@dataclass
class PlayedQuestion:
    """How one question was played. `answer` is None if the agent gave none; see `outcome`."""

    question: str
    tables: list[str] = field(default_factory=list)
    steps: list[PlayStep] = field(default_factory=list)
    outcome: Outcome = Outcome.ABANDONED
    answer: str | None = None
    context_overflow: bool = False
    too_large: bool = False  # its actions reached the server's limit on bytes
    context_truncations: int = 0  # how often old turns were dropped from the agent's context
    operational_reward: float | None = None
    wall_s: float = 0.0

    @property
    def tokens(self) -> int | None:
        counts = [step.tokens for step in self.steps if step.tokens is not None]
        return sum(counts) if len(counts) == len(self.steps) else None

    @property
    def agent_s(self) -> float:
        return sum(step.agent_s for step in self.steps)

    @property
    def fallbacks(self) -> int:
        return sum(step.parse_fallback for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "answer": self.answer,
            "outcome": str(self.outcome),
            "tables": self.tables,
            "context_overflow": self.context_overflow,
            "too_large": self.too_large,
            "context_truncations": self.context_truncations,
            "operational_reward": self.operational_reward,
            "parse_fallbacks": self.fallbacks,
            "tokens": self.tokens,
            "agent_s": round(self.agent_s, 4),
            "wall_s": round(self.wall_s, 4),
            "steps": [asdict(step) for step in self.steps],
        }


class Display:
    """Shows questions while they are played. This one shows nothing."""

    def start(self, database: Database, how: str, agent: Agent) -> None:
        """Show what is about to be played; `how` says how the file is read."""

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Show `what` while the block runs."""
        return nullcontext()

    def question(self, text: str, tables: Sequence[str]) -> None:
        """Show the question when its episode has started."""

    def step(self, step: PlayStep) -> None:
        """Show a step when it has been answered."""

    def end(self, played: PlayedQuestion) -> None:
        """Show how the question ended."""

    def note(self, text: str) -> None:
        """Show a remark."""


def check_fits(agent: Agent, question: str) -> None:
    """Raise `PlayError` if a local model's context window can't hold the question."""
    if agent.codec is None:
        return
    room = max(0, (agent.window or 0) - len(agent.codec.prompt(_messages(agent, ""))))
    length = len(agent.codec.plain(question))
    if length >= room:
        raise PlayError(
            f"the question is {length:,} tokens long, and {agent.name} has room for {room:,}, "
            "including the database's tables: shorten it, or use a model with a larger window "
            "(--model, --base-url)"
        )


def ask(
    agent: Agent, client: EpisodeClient, question_id: str, question: str, display: Display
) -> PlayedQuestion:
    """Play one question that the client's server hosts."""
    played = PlayedQuestion(question)
    start = time.perf_counter()
    with agent.compute():
        (row,) = play_episodes(
            [prompt_of(question_id, question, agent.config)],
            None,
            agent.tokenizer,
            agent.config,
            client=client,
            policy=agent.policy,
            generator=agent.make_generator() if agent.make_generator else None,
            greedy=agent.sampling.greedy,
            seed=agent.sampling.seed,
            check_lost=False,
            observer=_Recorder(agent, played, display),
        )
    played.wall_s = time.perf_counter() - start
    played.outcome = row.outcome
    played.context_overflow = row.context_overflow
    played.too_large = row.too_large
    played.context_truncations = row.context_truncations
    played.operational_reward = row.operational
    if played.outcome == Outcome.ANSWERED:
        played.answer = played.steps[-1].argument
    return played


class _Recorder(EpisodeObserver):
    """Records the steps of one episode in `played`, and raises the error that loses it."""

    def __init__(self, agent: Agent, played: PlayedQuestion, display: Display) -> None:
        self._agent, self._played, self._display = agent, played, display
        self._shown_s, self._tokens = 0.0, 0  # time of the last observation; tokens before it

    def on_start(self, view: EpisodeView) -> None:
        """Raise an error for a database without tables, or if the prompt exceeds the window."""
        first = view.observations[0]
        self._played.tables = first.tables
        if not first.tables:
            raise DatabaseLoadError("the database holds no table or view to explore")
        codec, window = self._agent.codec, self._agent.window
        if codec is not None and window is not None:
            shown = format_observation(first, self._agent.config.system_prompt)
            length = len(codec.prompt(_messages(self._agent, shown)))
            if length >= window:
                raise PlayError(
                    f"the question and the names of {len(first.tables):,} tables are {length:,} "
                    f"tokens long, more than {self._agent.name} reads ({window:,}): use a model "
                    "with a larger window (--model, --base-url), or a copy of the database with "
                    "fewer tables"
                )
        self._display.question(self._played.question, first.tables)
        self._shown_s = time.perf_counter()

    def on_step(
        self, view: EpisodeView, parsed: ParsedAction, reply: StepResult, env_s: float
    ) -> None:
        step = PlayStep(
            step=reply.observation.step_count,
            text=view.actions[-1],
            action=parsed.action.action_type,
            argument=parsed.action.argument,
            parse_fallback=parsed.fallback,
            result=reply.observation.result,
            error=reply.observation.error,
            steps_left=reply.observation.budget_remaining,
            error_code=reply.info.error_code,
            tokens=view.sampled_tokens - self._tokens or None,  # 0 if the server does not count
            agent_s=round(time.perf_counter() - self._shown_s - env_s, 4),
            env_s=round(env_s, 4),
        )
        self._played.steps.append(step)
        self._display.step(step)
        self._shown_s, self._tokens = time.perf_counter(), view.sampled_tokens

    def on_lost(self, view: EpisodeView, error: SQLEnvError) -> None:
        raise _explained(error)


def _messages(agent: Agent, user: str) -> list[dict[str, str]]:
    opening = opening_messages(agent.config.system_prompt, agent.config.few_shot)
    return [*opening, {"role": "user", "content": user}]


def _explained(error: SQLEnvError) -> SQLEnvError:
    """Return the server's error about its data with a remedy for the user's own database."""
    if not isinstance(error, DataError):
        return error
    match = re.fullmatch(
        r"database \S+ fails for question \S+: (.*); build or import the data again", error.message
    )
    return DatabaseLoadError(
        f"{match[1] if match else error.message}. Check it with: sqlite3 FILE 'PRAGMA "
        "integrity_check'; save what is left with: sqlite3 FILE .recover"
    )
