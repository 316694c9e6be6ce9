"""The episodes of one batch, played side by side against the env servers.

Each round samples a turn for every unfinished episode and then sends all their steps together, so
the servers are waited for once a round. A turn's ids enter the transcript as they were sampled,
before anything is parsed.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from shared.actions import SQLAction, render_action
from shared.client.limits import ClientStats
from shared.errors import DigestMismatch, InvalidRequest, SQLEnvError, UnknownQuestion
from shared.models import Outcome, ResetResult, StepResult
from shared.run_files import observation_digest
from trainer.config import GRPOConfig
from trainer.errors import RolloutError
from trainer.rollout.dataset import Prompt, question_id_of
from trainer.rollout.generators.base import Generator, Policy, Sample, StopReason, View
from trainer.rollout.parsing import parse_model_output
from trainer.rollout.prompts import format_observation
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import ChatCodec, Transcript

# Mistakes of the caller, which every other episode of the run would meet too: raised, not counted
# as lost.
_FATAL = (UnknownQuestion, InvalidRequest, DigestMismatch)


class EpisodeClient(Protocol):
    """The part of `shared.client.sync.SyncSQLEnvClient` that a rollout uses."""

    def reset_many(
        self, requests: Iterable[Mapping[str, Any]]
    ) -> list[ResetResult | SQLEnvError]: ...

    def step_many(
        self, steps: Iterable[tuple[str, SQLAction | str]]
    ) -> list[StepResult | SQLEnvError]: ...

    def close_episode(self, episode_id: str) -> None: ...

    @property
    def stats(self) -> ClientStats: ...


@dataclass(slots=True)
class RolloutStats:
    """Counts and seconds over any number of `play_episodes` calls; pass one object to all of them."""

    episodes: int = 0
    episodes_lost: int = 0  # to infrastructure: never a reward
    steps: int = 0
    parse_failures: int = 0  # texts that were no action and stood as a QUERY
    env_errors: int = 0  # actions that the environment answered with an error
    episodes_truncated: int = 0  # episodes whose context was cut down, once or more, to go on
    # episodes that ended because not even their last observation left room for a turn
    context_overflows: int = 0
    # times that an episode was rebuilt by replay, its server or its place on it lost
    rebuilds: int = 0
    retries: int = 0  # requests to the servers sent again
    sampled_tokens: int = 0
    rollout_s: float = 0.0  # all of it
    generate_s: float = 0.0  # sampling, or a policy's thinking
    env_wait_s: float = 0.0  # waiting for the servers
    rank_wait_s: float = 0.0  # waiting for the other processes' episodes

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Episode:
    """One episode under way; `outcome` is set at its end."""

    prompt: Prompt
    view: View
    stream: tuple[int, ...]
    transcript: Transcript | None = None
    episode_id: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    latest: StepResult | None = None
    rewards: list[float] = field(default_factory=list)  # of the answered steps
    parts: list[dict[str, float]] = field(default_factory=list)  # of each of these rewards
    digests: list[str] = field(default_factory=list)  # of every observation
    outcome: Outcome | None = None
    parse_failures: int = 0
    env_errors: list[str] = field(default_factory=list)
    context_overflow: bool = False
    lost: SQLEnvError | None = None

    @property
    def truncations(self) -> int:
        """Times that its context was cut down."""
        return self.transcript.truncations if self.transcript else 0


class Batch:
    """The episodes of one `play_episodes` call. Without a codec no ids are kept."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        codec: ChatCodec | None,
        config: GRPOConfig,
        client: EpisodeClient,
        stats: RolloutStats,
        before: Mapping[str, int] | None = None,
    ) -> None:
        self.episodes = _begin(prompts, seed, before or {})
        self._codec, self._config, self._client, self._stats = codec, config, client, stats
        # episodes that end on this side; not once a server did not answer to that
        self._closing = True

    def reset(self) -> None:
        """Begin every episode on its server; those that can't be begun are lost."""
        budget = self._config.step_budget
        requests = [
            {"question_id": one.view.question_id, "step_budget": budget} for one in self.episodes
        ]
        with self._waiting():
            replies = self._client.reset_many(requests)
        for episode, reply in zip(self.episodes, replies, strict=True):
            if isinstance(reply, SQLEnvError):
                self._lose(episode, reply)
                continue
            episode.episode_id, episode.latest = reply.episode_id, reply
            episode.view.observations.append(reply.observation)
            episode.digests.append(observation_digest(reply.observation))
            text = format_observation(reply.observation)
            episode.messages = [
                *map(_plain_message, episode.prompt[:-1]),
                {"role": "user", "content": text},
            ]
            if self._codec is not None:
                episode.transcript = Transcript(self._codec.prompt(episode.messages))

    def play_policy(self, policy: Policy) -> None:
        """Play all episodes by text."""
        while live := [one for one in self.episodes if one.outcome is None]:
            with self._generating():
                texts = policy.act([one.view for one in live])
            acting = []
            for episode, text in zip(live, texts, strict=True):
                if isinstance(text, SQLEnvError):
                    self._lose(episode, text)
                    continue
                if text is None:
                    self._abandon(episode)
                    continue
                if episode.transcript is not None and self._codec is not None:
                    if episode.view.actions:
                        episode.transcript.add_environment(
                            self._bridge(self._codec, episode, episode.transcript)
                        )
                    ids = self._codec.action(text)
                    episode.transcript.add_sample(Sample(ids, [0.0] * len(ids), StopReason.EOS))
                acting.append((episode, text))
            self._step(acting)

    def play_generator(self, generator: Generator, codec: ChatCodec) -> None:
        """Play all episodes by sampled ids. What a row is trained on is exactly what was fed and
        sampled."""
        generator.start([one.stream for one in self.episodes])
        while True:
            appended = self._contexts(generator, codec)
            if not appended:
                return
            with self._generating():
                samples = generator.sample(appended)
            acting = []
            for index, sample in samples.items():
                episode = self.episodes[index]
                assert episode.transcript is not None
                episode.transcript.add_sample(sample)
                self._stats.sampled_tokens += len(sample.ids)
                episode.view.prompt_tokens += len(appended[index])
                episode.view.sampled_tokens += len(sample.ids)
                acting.append((episode, codec.text(sample.ids)))
            self._step(acting)

    def _contexts(self, generator: Generator, codec: ChatCodec) -> dict[int, Sequence[int]]:
        """The ids that each unfinished episode appends. A context without room for a turn is cut
        down; an episode for which that isn't enough ends here."""
        appended: dict[int, Sequence[int]] = {}
        for index, episode in enumerate(self.episodes):
            if episode.outcome is not None:
                continue
            transcript = episode.transcript
            assert transcript is not None
            first = not transcript.pairs
            if first:
                ids = (
                    transcript.prompt_ids
                    if len(transcript.prompt_ids) < generator.room(index)
                    else None
                )
            else:
                ids = self._following(
                    generator, index, transcript, self._bridge(codec, episode, transcript)
                )
            if ids is None:
                episode.context_overflow = True
                self._abandon(episode)
            else:
                appended[index] = ids
        return appended

    def _following(
        self, generator: Generator, index: int, transcript: Transcript, bridge: list[int]
    ) -> list[int] | None:
        """The ids to append before a later turn: the bridge, or in a row begun anew the context
        that was cut down."""
        held = len(transcript.prompt_ids) + sum(map(len, transcript.pairs))
        kept = transcript.kept_with(
            bridge, generator.room(index) + held, self._config.max_new_tokens
        )
        if kept == len(transcript.pairs):
            transcript.add_environment(bridge)
            return bridge
        if not kept:
            return None
        generator.restart(index)
        return transcript.truncate(kept, bridge)

    @staticmethod
    def _bridge(codec: ChatCodec, episode: Episode, transcript: Transcript) -> list[int]:
        return codec.bridge(episode.messages[-1]["content"], transcript.pairs[-1][-1])

    def _step(self, acting: Sequence[tuple[Episode, str]]) -> None:
        """Parse what each episode wrote and send all steps together."""
        if not acting:
            return
        steps: list[tuple[str, SQLAction | str]] = []
        for episode, text in acting:
            parsed = parse_model_output(text)
            episode.parse_failures += parsed.fallback
            episode.view.actions.append(text)
            episode.messages.append({"role": "assistant", "content": text})
            steps.append((episode.episode_id, render_action(parsed.action)))
        with self._waiting():
            replies = self._client.step_many(steps)
        for (episode, _), reply in zip(acting, replies, strict=True):
            if isinstance(reply, SQLEnvError):
                self._lose(episode, reply)
            else:
                self._observe(episode, reply)

    def _observe(self, episode: Episode, reply: StepResult) -> None:
        observation = reply.observation
        self._stats.steps += 1
        episode.latest = reply
        episode.view.observations.append(observation)
        episode.digests.append(observation_digest(observation))
        episode.rewards.append(0.0 if reply.reward is None else reply.reward)
        episode.parts.append(reply.info.ledger.step)
        if observation.error is not None:
            episode.env_errors.append(reply.info.error_code or "error")
        if reply.done:
            episode.outcome = reply.info.outcome or Outcome.BUDGET
        if not reply.done or observation.result or observation.error:
            episode.messages.append({"role": "user", "content": format_observation(observation)})

    def _abandon(self, episode: Episode) -> None:
        """End an episode from this side. What it earned so far stays; it gave no answer."""
        episode.outcome = Outcome.ABANDONED
        if not self._closing:
            return
        try:
            with self._waiting():
                self._client.close_episode(episode.episode_id)
        except SQLEnvError:
            # its lease ends it, as it will the others: they don't wait for the server one by one
            self._closing = False

    @staticmethod
    def _lose(episode: Episode, error: SQLEnvError) -> None:
        if isinstance(error, _FATAL):
            raise error
        episode.lost, episode.outcome = error, Outcome.INFRA_FAILED

    def row(self, episode: Episode) -> RolloutRow:
        """Return the record of a finished episode and add its counts to the stats."""
        transcript = self._closed_transcript(episode)
        ledger = episode.latest.info.ledger if episode.latest and not episode.lost else None
        observation = episode.latest.observation if episode.latest else None
        view, lost = episode.view, episode.lost
        self._stats.episodes += 1
        self._stats.episodes_lost += lost is not None
        self._stats.parse_failures += episode.parse_failures
        self._stats.env_errors += len(episode.env_errors)
        self._stats.episodes_truncated += episode.truncations > 0
        self._stats.context_overflows += episode.context_overflow
        assert episode.outcome is not None
        return RolloutRow(
            question_id=view.question_id,
            outcome=episode.outcome,
            prompt_ids=transcript.prompt_ids,
            completion_ids=transcript.completion_ids,
            env_mask=transcript.env_mask,
            logprobs=transcript.logprobs,
            correctness=ledger.correctness if ledger else None,
            progress=ledger.potential if ledger else None,
            operational=ledger.operational if ledger else None,
            reward=ledger.total if ledger else None,
            steps=observation.step_count if observation else 0,
            parse_failures=episode.parse_failures,
            env_errors=episode.env_errors,
            context_overflow=episode.context_overflow,
            context_truncations=episode.truncations,
            prompt_tokens=view.prompt_tokens,
            sampled_tokens=view.sampled_tokens,
            actions=observation.action_history if observation else [],
            rewards=episode.rewards,
            parts=episode.parts,
            observations=episode.digests,
            texts=view.actions,
            transcript=episode.messages,
            lost=lost.message if lost else None,
        )

    def _closed_transcript(self, episode: Episode) -> Transcript:
        """The episode's ids; of a lost one its prompt and a masked EOS, since no part of it may be
        trained."""
        if self._codec is None:
            return Transcript([])
        transcript = episode.transcript
        if transcript is None:
            transcript = Transcript(self._codec.prompt(list(map(_plain_message, episode.prompt))))
        elif episode.lost is not None:
            transcript = Transcript(transcript.prompt_ids)
        transcript.close(self._codec.eos_id, self._codec.pad_id)
        return transcript

    def check_lost(self) -> None:
        """`RolloutError` where more episodes were lost than `config.max_lost_fraction` allows."""
        lost = [episode.lost for episode in self.episodes if episode.lost is not None]
        if error := too_many_lost([one.message for one in lost], len(self.episodes), self._config):
            raise error from lost[0]

    @contextmanager
    def _generating(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._stats.generate_s += time.perf_counter() - started

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        started, client = time.perf_counter(), self._client.stats
        rebuilds, retries = client.rebuilds, client.retries
        try:
            yield
        finally:
            self._stats.env_wait_s += time.perf_counter() - started
            self._stats.rebuilds += client.rebuilds - rebuilds
            self._stats.retries += client.retries - retries


def too_many_lost(lost: Sequence[str], episodes: int, config: GRPOConfig) -> RolloutError | None:
    """The error of a batch of which more episodes were `lost`, for these reasons, than `config`
    allows, else None."""
    if len(lost) <= config.max_lost_fraction * episodes:
        return None
    return RolloutError(
        f"{len(lost)} of {episodes} episodes were lost to infrastructure, more than {config.max_lost_fraction:.0%}: "
        f"check the servers at {', '.join(config.server_urls)}, then resume from the last checkpoint. "
        f"The first error: {lost[0]}",
        lost=len(lost),
        episodes=episodes,
    )


def _begin(prompts: Sequence[Prompt], seed: int, before: Mapping[str, int]) -> list[Episode]:
    """The episodes of a batch, each with a random stream of its own: (seed, question, how often it
    came before).

    `before` is how often a question came in the parts of the batch that other processes play.
    """
    seen = Counter(before)
    episodes = []
    for prompt in prompts:
        question_id = question_id_of(prompt)
        question = int.from_bytes(hashlib.blake2b(question_id.encode(), digest_size=8).digest())
        stream = (seed, question, seen[question_id])
        view = View(question_id, seen[question_id], np.random.default_rng(stream))
        episodes.append(Episode(list(prompt), view, stream))
        seen[question_id] += 1
    return episodes


def _plain_message(message: Mapping[str, Any]) -> dict[str, str]:
    return {"role": str(message["role"]), "content": str(message["content"])}
