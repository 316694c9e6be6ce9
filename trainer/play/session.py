"""One question: an episode played by the training loop's `play_episodes`, recorded step by step."""

import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import Outcome, StepResult
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.play.database import Database
from trainer.play.played import PlayedQuestion, PlayStep
from trainer.rollout.dataset import prompt_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.loop import EpisodeClient, play_episodes
from trainer.rollout.parsing import ParsedAction
from trainer.rollout.prompts import format_observation, opening_messages


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
            generator=agent.generator,
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
    opening = opening_messages(agent.config.system_prompt)
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
