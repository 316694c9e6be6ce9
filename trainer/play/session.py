"""Play one question: an episode of the training loop, with every step reported as it is answered."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from shared.actions import SQLAction
from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import Outcome, SQLObservation, StepResult
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.rollout.batch import EpisodeClient, EpisodeObserver
from trainer.rollout.dataset import prompt_of
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.loop import play_episodes
from trainer.rollout.parsing import ParsedAction
from trainer.rollout.prompts import format_observation, get_system_prompt


@dataclass(frozen=True)
class Step:
    """One turn: what the agent wrote, how it was read and what the environment said. Times in
    seconds.

    `fallback`: the text was no action and stood as a QUERY. `tokens` are those of the text, None
    where nobody counts.
    """

    number: int
    text: str
    action: SQLAction
    fallback: bool
    observation: SQLObservation
    error_code: str | None
    tokens: int | None
    agent_s: float
    env_s: float

    def as_json(self) -> dict[str, Any]:
        seen = self.observation
        return {
            "step": self.number,
            "text": self.text,
            "action": str(self.action.action_type),
            "argument": self.action.argument,
            "parse_fallback": self.fallback,
            "result": seen.result,
            "error": seen.error,
            "error_code": self.error_code,
            "steps_left": seen.budget_remaining,
            "tokens": self.tokens,
            "agent_s": round(self.agent_s, 4),
            "env_s": round(self.env_s, 4),
        }


@dataclass
class Played:
    """How one question was played. `answer` is None where the agent gave none; `outcome` says why."""

    question: str
    tables: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outcome: Outcome = Outcome.ABANDONED
    answer: str | None = None
    context_overflow: bool = False
    context_truncations: int = 0  # times that old turns were dropped from the agent's context
    operational_reward: float | None = None
    wall_s: float = 0.0

    @property
    def tokens(self) -> int | None:
        counts = [step.tokens for step in self.steps]
        return None if None in counts else sum(cast("list[int]", counts))

    @property
    def agent_s(self) -> float:
        return sum(step.agent_s for step in self.steps)

    @property
    def fallbacks(self) -> int:
        return sum(step.fallback for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "answer": self.answer,
            "outcome": str(self.outcome),
            "tables": self.tables,
            "context_overflow": self.context_overflow,
            "context_truncations": self.context_truncations,
            "operational_reward": self.operational_reward,
            "parse_fallbacks": self.fallbacks,
            "tokens": self.tokens,
            "agent_s": round(self.agent_s, 4),
            "wall_s": round(self.wall_s, 4),
            "steps": [step.as_json() for step in self.steps],
        }


OnStart = Callable[[SQLObservation], None]
OnStep = Callable[[Step], None]


def check_fits(agent: Agent, question: str) -> None:
    """`PlayError` where a local model's window can't hold the question, whatever the database."""
    if agent.codec is None:
        return
    room = (agent.window or 0) - len(agent.codec.prompt(_messages(agent, "")))
    length = len(agent.codec.plain(question))
    if length >= room:
        raise PlayError(
            f"the question is {length:,} tokens long, and {agent.name} has room for {max(0, room):,}, the database's "
            "tables included: ask it in fewer words, or take a model with a larger window (--model, --base-url)"
        )


def ask(
    agent: Agent,
    client: EpisodeClient,
    question_id: str,
    question: str,
    on_start: OnStart = lambda _: None,
    on_step: OnStep = lambda _: None,
) -> Played:
    """Play one question that the client's server hosts. Errors of the database, the servers and the
    model are raised.

    `on_start` sees the first observation, `on_step` every step as soon as it is answered.
    """
    played = Played(question)
    prompt = prompt_of(question_id, question, agent.config)
    start = time.perf_counter()
    with agent.compute():
        (row,) = play_episodes(
            [prompt],
            None,
            agent.tokenizer,
            agent.config,
            client=client,
            policy=agent.policy,
            generator=agent.make_generator() if agent.make_generator else None,
            greedy=agent.sampling.greedy,
            seed=agent.sampling.seed,
            check_lost=False,
            observer=_Recorder(agent, played, on_start, on_step),
        )
    played.wall_s = time.perf_counter() - start
    played.outcome = row.outcome
    played.context_overflow = row.context_overflow
    played.context_truncations = row.context_truncations
    played.operational_reward = row.operational
    if played.outcome == Outcome.ANSWERED:
        played.answer = played.steps[-1].action.argument
    return played


class _Recorder(EpisodeObserver):
    """Records the steps of one episode in `played`, and raises the error that loses it."""

    def __init__(self, agent: Agent, played: Played, on_start: OnStart, on_step: OnStep) -> None:
        self._agent, self._played = agent, played
        self._report_start, self._report_step = on_start, on_step
        self._shown_s, self._tokens = 0.0, 0  # time of the last observation; tokens before it

    def on_start(self, view: EpisodeView) -> None:
        """`DatabaseLoadError` if there is nothing to explore, `PlayError` if it does not fit the
        agent's window."""
        first = view.observations[0]
        listed = first.schema_info.removeprefix("Tables:").strip()
        if not listed:
            raise DatabaseLoadError(
                "the database holds no table and no view, so there is nothing to explore"
            )
        self._played.tables = listed.split(", ")
        codec, window = self._agent.codec, self._agent.window
        if codec is not None and window is not None:
            length = len(codec.prompt(_messages(self._agent, format_observation(first))))
            if length >= window:
                raise PlayError(
                    f"the question and the names of {len(self._played.tables):,} tables are "
                    f"{length:,} tokens long, more than {self._agent.name} reads ({window:,}): use "
                    "a model with a larger window (--model, --base-url), or a copy of the "
                    "database with fewer tables"
                )
        self._report_start(first)
        self._shown_s = time.perf_counter()

    def on_step(
        self, view: EpisodeView, parsed: ParsedAction, reply: StepResult, env_s: float
    ) -> None:
        step = Step(
            number=reply.observation.step_count,
            text=view.actions[-1],
            action=parsed.action,
            fallback=parsed.fallback,
            observation=reply.observation,
            error_code=reply.info.error_code,
            tokens=view.sampled_tokens - self._tokens or None,  # 0 if nobody counts
            agent_s=time.perf_counter() - self._shown_s - env_s,
            env_s=env_s,
        )
        self._played.steps.append(step)
        self._report_step(step)
        self._shown_s, self._tokens = time.perf_counter(), view.sampled_tokens

    def on_lost(self, view: EpisodeView, error: SQLEnvError) -> None:
        raise _explained(error)


def _messages(agent: Agent, user: str) -> list[dict[str, str]]:
    system = get_system_prompt(agent.config.system_prompt)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _explained(error: SQLEnvError) -> SQLEnvError:
    """An error of the server's as the user can mend it, who alone has built the database."""
    if not isinstance(error, DataError):
        return error
    found = re.fullmatch(
        r"database \S+ fails for question \S+: (.*); build or import the data again", error.message
    )
    return DatabaseLoadError(
        f"{found[1] if found else error.message}. Check it with: sqlite3 FILE 'PRAGMA integrity_check'; save what is "
        "left with: sqlite3 FILE .recover"
    )
