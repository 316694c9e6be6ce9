"""One question: an episode of the training loop's own, watched from both of its ends.

`play_episodes` plays it. What the agent writes is heard at the generator or the policy, what the
server answers at the client; both tell the `_Watch` between them.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from shared.actions import SQLAction
from shared.client.limits import ClientStats
from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import Outcome, ResetResult, SQLObservation, StepResult
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.rollout.dataset import prompt_of
from trainer.rollout.generators.base import Generator, Policy, Sample, View
from trainer.rollout.loop import EpisodeClient, play_episodes
from trainer.rollout.parsing import parse_model_output
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
    watch = _Watch(agent, client, played, on_start, on_step)
    prompt = prompt_of(question_id, question, agent.config)
    began = time.perf_counter()
    with agent.compute():
        (row,) = play_episodes(
            [prompt],
            None,
            agent.tokenizer,
            agent.config,
            client=watch,
            policy=_HeardPolicy(agent.policy, watch) if agent.policy else None,
            generator=cast(Generator, _HeardGenerator(agent.make_generator(), watch))
            if agent.make_generator
            else None,
            greedy=agent.sampling.greedy,
            seed=agent.sampling.seed,
            check_lost=False,
        )
    played.wall_s = time.perf_counter() - began
    if row.lost is not None:
        raise watch.lost or PlayError(row.lost)
    played.outcome = row.outcome
    played.context_overflow = row.context_overflow
    played.context_truncations = row.context_truncations
    played.operational_reward = row.operational
    if played.outcome == Outcome.ANSWERED:
        played.answer = played.steps[-1].action.argument
    return played


class _Watch:
    """The client of one episode, which reports every step; what the agent wrote last is `said` to
    it first."""

    def __init__(
        self,
        agent: Agent,
        client: EpisodeClient,
        played: Played,
        on_start: OnStart,
        on_step: OnStep,
    ) -> None:
        self._agent, self._client, self._played = agent, client, played
        self._on_start, self._on_step = on_start, on_step
        self._text, self._tokens, self._agent_s = "", cast("int | None", None), 0.0
        self.lost: SQLEnvError | None = None

    def said(self, text: str, tokens: int | None, seconds: float) -> None:
        self._text, self._tokens, self._agent_s = text, tokens, seconds

    @property
    def stats(self) -> ClientStats:
        return self._client.stats

    def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> list[ResetResult | SQLEnvError]:
        (reply,) = self._client.reset_many(requests)
        if isinstance(reply, SQLEnvError):
            raise _explained(reply)
        self._begin(reply.observation)
        return [reply]

    def step_many(
        self, steps: Iterable[tuple[str, SQLAction | str]]
    ) -> list[StepResult | SQLEnvError]:
        began = time.perf_counter()
        (reply,) = self._client.step_many(steps)
        seconds = time.perf_counter() - began
        if isinstance(reply, SQLEnvError):
            raise _explained(reply)
        parsed = parse_model_output(self._text)
        step = Step(
            number=reply.observation.step_count,
            text=self._text,
            action=parsed.action,
            fallback=parsed.fallback,
            observation=reply.observation,
            error_code=reply.info.error_code,
            tokens=self._tokens,
            agent_s=self._agent_s,
            env_s=seconds,
        )
        self._played.steps.append(step)
        self._on_step(step)
        return [reply]

    def close_episode(self, episode_id: str) -> None:
        self._client.close_episode(episode_id)

    def _begin(self, first: SQLObservation) -> None:
        """`DatabaseLoadError` where there is nothing to explore, `PlayError` where it doesn't fit
        the window."""
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
                    f"the question and the names of {len(self._played.tables):,} tables are {length:,} tokens long, "
                    f"more than {self._agent.name} reads ({window:,}): take a model with a larger window (--model, "
                    "--base-url), or a copy of the database with fewer tables"
                )
        self._on_start(first)


class _HeardGenerator:
    """The generator itself, but that the watch hears what it samples."""

    def __init__(self, generator: Generator, watch: _Watch) -> None:
        self._generator, self._watch = generator, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample]:
        began = time.perf_counter()
        samples = self._generator.sample(appended)
        seconds, codec = time.perf_counter() - began, self._watch._agent.codec
        assert codec is not None
        for sample in samples.values():
            self._watch.said(codec.text(sample.ids), len(sample.ids), seconds)
        return samples


class _HeardPolicy:
    """The policy itself, but that the watch hears what it writes."""

    def __init__(self, policy: Policy, watch: _Watch) -> None:
        self._policy, self._watch = policy, watch

    def act(self, views: Sequence[View]) -> Sequence[str | SQLEnvError | None]:
        (view,) = views
        began, before = time.perf_counter(), view.sampled_tokens
        (text,) = self._policy.act(views)
        if isinstance(text, SQLEnvError):
            self._watch.lost = text
        elif text is not None:
            # a server that doesn't count says 0, of a text too
            self._watch.said(
                text, view.sampled_tokens - before or None, time.perf_counter() - began
            )
        return [text]


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
