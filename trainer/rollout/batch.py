"""The episodes of one batch, played side by side against the environment servers.

Each round samples a turn for every unfinished episode and then sends all their steps together, so
the servers are waited for once per round. A turn's ids enter the transcript as they were sampled,
before anything is parsed.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from shared.actions import render_action
from shared.client.sync import SyncSQLEnvClient
from shared.errors import (
    DigestMismatch,
    EpisodeTooLarge,
    Forbidden,
    InvalidRequest,
    SQLEnvError,
    UnknownQuestion,
)
from shared.models import Outcome, StepResult
from shared.run_files import observation_digest
from trainer.config import GRPOConfig
from trainer.rollout.dataset import Prompt, question_id_of
from trainer.rollout.generators.base import EpisodeView, Generator, Policy, Sample, StopReason
from trainer.rollout.parsing import ParsedAction, fallback_warnings, parse_with_fallback
from trainer.rollout.prompts import format_observation
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.rollout.tokens import ChatCodec, Transcript

# The caller's mistakes, which all other episodes would meet too: raised, not counted as lost.
_FATAL = (UnknownQuestion, InvalidRequest, DigestMismatch, Forbidden)


class EpisodeObserver:
    """Sees the episodes of a batch while they are played. An exception that it raises ends them."""

    def on_start(self, view: EpisodeView) -> None:
        """See an episode after its first observation."""

    def on_step(
        self, view: EpisodeView, parsed: ParsedAction, reply: StepResult, env_s: float
    ) -> None:
        """See an answered step; the servers took `env_s` seconds for all steps of the round."""

    def on_lost(self, view: EpisodeView, error: SQLEnvError) -> None:
        """See the error of an episode that infrastructure lost."""


@dataclass(slots=True)
class Episode:
    """One episode under way; `outcome` is set at its end."""

    index: int  # in the batch
    prompt: Prompt
    view: EpisodeView
    stream: tuple[int, ...]
    transcript: Transcript = field(default_factory=lambda: Transcript([]))
    episode_id: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    latest: StepResult | None = None
    rewards: list[float] = field(default_factory=list)  # of the answered steps
    parts: list[dict[str, float]] = field(default_factory=list)  # of each of these rewards
    digests: list[str] = field(default_factory=list)  # of every observation
    outcome: Outcome | None = None
    parse_failures: int = 0
    inferred_actions: int = 0
    replaced_ids: int = 0
    env_errors: list[str] = field(default_factory=list)
    context_overflow: bool = False
    too_large: bool = False
    lost: SQLEnvError | None = None


EpisodeClient = SyncSQLEnvClient  # its reset_many, step_many, close_episode and stats
Text = str | SQLEnvError | None  # of a turn: see `Policy`


class EpisodeBatch:
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
        observer: EpisodeObserver | None = None,
    ) -> None:
        self.episodes = _start(prompts, seed, before or {})
        self._codec, self._config, self._client, self._stats = codec, config, client, stats
        self._observer = observer or EpisodeObserver()
        self._closing = True  # whether to close abandoned episodes on the server

    def reset(self) -> None:
        """Start every episode on its server; those that can't be started are lost."""
        budget = self._config.step_budget
        requests = [
            {"question_id": one.view.question_id, "step_budget": budget, "rewards": "step"}
            for one in self.episodes
        ]
        with self._timed("env_wait_s"):
            replies = self._client.reset_many(requests)
        for episode, reply in zip(self.episodes, replies, strict=True):
            if isinstance(reply, SQLEnvError):
                self._lose(episode, reply)
                continue
            episode.episode_id, episode.latest = reply.episode_id, reply
            episode.view.observations.append(reply.observation)
            episode.digests.append(observation_digest(reply.observation))
            text = format_observation(reply.observation, self._config.system_prompt)
            episode.messages = [
                {"role": str(message["role"]), "content": str(message["content"])}
                for message in episode.prompt[:-1]
            ]
            episode.messages.append({"role": "user", "content": text})
            if self._codec is not None:
                episode.transcript = Transcript(self._codec.prompt(episode.messages))
            self._observer.on_start(episode.view)

    def play_policy(self, policy: Policy) -> None:
        """Play all episodes with a policy that writes text."""

        def act(live: Sequence[Episode]) -> Sequence[Text]:
            with self._timed("generate_s"):
                texts = policy.act([episode.view for episode in live])
            for episode, text in zip(live, texts, strict=True):
                if self._codec is not None and isinstance(text, str):
                    if episode.transcript.pairs:
                        episode.transcript.add_environment(self._bridge(self._codec, episode))
                    ids = self._codec.action(text)
                    episode.transcript.add_sample(Sample(ids, [0.0] * len(ids), StopReason.EOS))
            return texts

        self._play(act)

    def play_generator(self, generator: Generator, codec: ChatCodec) -> None:
        """Play all episodes with sampled ids: a row trains on exactly what was fed and sampled."""

        def act(live: Sequence[Episode]) -> Sequence[Text]:
            appended = {
                episode.index: ids
                for episode in live
                if (ids := self._appended(generator, codec, episode)) is not None
            }
            if not appended:
                return [None] * len(live)
            with self._timed("generate_s"):
                samples = generator.sample(appended)
            texts = dict[int, Text]()
            for index, sample in samples.items():
                if isinstance(sample, SQLEnvError):
                    texts[index] = sample
                    continue
                episode, texts[index] = self.episodes[index], codec.text(sample.ids)
                episode.transcript.add_sample(sample)
                episode.replaced_ids += len(sample.replaced)
                self._stats.sampled_tokens += len(sample.ids)
                episode.view.prompt_tokens += len(appended[index])
                episode.view.sampled_tokens += len(sample.ids)
            return [texts.get(episode.index) for episode in live]

        generator.start([episode.stream for episode in self.episodes])
        self._play(act)

    def _play(self, act: Callable[[Sequence[Episode]], Sequence[Text]]) -> None:
        """Play rounds until every episode has ended; `act` writes a turn's text for each."""
        while live := [episode for episode in self.episodes if episode.outcome is None]:
            acting = []
            for episode, text in zip(live, act(live), strict=True):
                if isinstance(text, SQLEnvError):
                    self._lose(episode, text)
                elif text is None:
                    self._abandon(episode)
                else:
                    acting.append((episode, text))
            self._step(acting)

    def _appended(
        self, generator: Generator, codec: ChatCodec, episode: Episode
    ) -> list[int] | None:
        """Return the ids to append to an episode's context before its next turn.

        The first time they are the prompt and later the bridge, or the cut context of a row that
        starts again. None if the context window has no room for a turn.
        """
        transcript = episode.transcript
        room, prompt = generator.room(episode.index), transcript.prompt_ids
        if not transcript.pairs:
            episode.context_overflow = len(prompt) >= room
            return None if episode.context_overflow else prompt
        bridge = self._bridge(codec, episode)
        window = room + len(prompt) + sum(map(len, transcript.pairs))
        kept = transcript.kept_with(bridge, window, self._config.max_new_tokens)
        if kept == len(transcript.pairs):
            transcript.add_environment(bridge)
            return bridge
        if not kept:
            episode.context_overflow = True
            return None
        generator.restart(episode.index)
        return transcript.truncate(kept, bridge)

    @staticmethod
    def _bridge(codec: ChatCodec, episode: Episode) -> list[int]:
        return codec.bridge(episode.messages[-1]["content"], episode.transcript.pairs[-1][-1])

    def _step(self, acting: Sequence[tuple[Episode, str]]) -> None:
        """Parse what each episode wrote and send all steps together."""
        if not acting:
            return
        steps = []
        for episode, text in acting:
            parsed = parse_with_fallback(text)
            steps.append((episode, parsed))
            episode.inferred_actions += parsed.inferred
            if parsed.fallback:
                episode.parse_failures += 1
                fallback_warnings.add(text)
            episode.view.actions.append(text)
            episode.messages.append({"role": "assistant", "content": text})
        waited_s = self._stats.env_wait_s
        with self._timed("env_wait_s"):
            replies = self._client.step_many(
                [(episode.episode_id, render_action(parsed.action)) for episode, parsed in steps]
            )
        env_s = self._stats.env_wait_s - waited_s
        for (episode, parsed), reply in zip(steps, replies, strict=True):
            if isinstance(reply, EpisodeTooLarge):  # the agent's own doing, not a fault
                episode.too_large = True
                self._abandon(episode)
            elif isinstance(reply, SQLEnvError):
                self._lose(episode, reply)
            else:
                self._observe(episode, reply)
                self._observer.on_step(episode.view, parsed, reply, env_s)

    def _observe(self, episode: Episode, reply: StepResult) -> None:
        observation = reply.observation
        self._stats.steps += 1
        episode.latest = reply
        episode.view.observations.append(observation)
        episode.digests.append(observation_digest(observation))
        episode.rewards.append(0.0 if reply.reward is None else reply.reward)
        episode.parts.append(reply.ledger.step)
        if observation.error is not None:
            episode.env_errors.append(reply.info.error_code or "error")
        if reply.done:
            episode.outcome = reply.info.outcome or Outcome.BUDGET
        if not reply.done or observation.result or observation.error:
            text = format_observation(observation, self._config.system_prompt)
            episode.messages.append({"role": "user", "content": text})

    def _abandon(self, episode: Episode) -> None:
        """End an episode without an answer; it keeps the rewards that it has."""
        episode.outcome = Outcome.ABANDONED
        if not self._closing:
            return
        try:
            with self._timed("env_wait_s"):
                self._client.close_episode(episode.episode_id)
        except SQLEnvError:
            # leases end the others, too: do not wait for an unresponsive server once per episode
            self._closing = False

    def _lose(self, episode: Episode, error: SQLEnvError) -> None:
        self._observer.on_lost(episode.view, error)
        if isinstance(error, _FATAL):
            raise error
        episode.lost, episode.outcome = error, Outcome.INFRA_FAILED

    def row(self, episode: Episode) -> RolloutRow:
        """Return the record of a finished episode and add its counts to the stats."""
        transcript = self._closed_transcript(episode)
        ledger = episode.latest.ledger if episode.latest and not episode.lost else None
        observation = episode.latest.observation if episode.latest else None
        view, lost = episode.view, episode.lost
        self._stats.episodes += 1
        self._stats.episodes_lost += lost is not None
        self._stats.parse_failures += episode.parse_failures
        self._stats.inferred_actions += episode.inferred_actions
        self._stats.replaced_ids += episode.replaced_ids
        self._stats.env_errors += len(episode.env_errors)
        self._stats.episodes_truncated += episode.transcript.truncations > 0
        self._stats.context_overflows += episode.context_overflow
        self._stats.episodes_too_large += episode.too_large
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
            inferred_actions=episode.inferred_actions,
            replaced_ids=episode.replaced_ids,
            env_errors=episode.env_errors,
            context_overflow=episode.context_overflow,
            too_large=episode.too_large,
            context_truncations=episode.transcript.truncations,
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
        """Return the episode's ids; of a lost one only the prompt and a masked EOS: no part of it
        may be trained on."""
        if self._codec is None:
            return Transcript([])
        transcript = episode.transcript
        if episode.lost is not None:
            prompt_ids = transcript.prompt_ids  # none if it was lost before its first observation
            transcript = Transcript(prompt_ids or self._codec.prompt(episode.prompt))
        transcript.close(self._codec.eos_id, self._codec.pad_id)
        return transcript

    @contextmanager
    def _timed(self, name: Literal["generate_s", "env_wait_s"]) -> Iterator[None]:
        """Add the block's seconds and the client's rebuilds and retries to the stats."""
        start, stats, client = time.perf_counter(), self._stats, self._client.stats
        rebuilds, retries = client.rebuilds, client.retries
        try:
            yield
        finally:
            setattr(stats, name, getattr(stats, name) + time.perf_counter() - start)
            stats.rebuilds += client.rebuilds - rebuilds
            stats.retries += client.retries - retries


def _start(prompts: Sequence[Prompt], seed: int, before: Mapping[str, int]) -> list[Episode]:
    """Return the episodes of a batch, each with its own random stream.

    The stream is (seed, question, occurrence of the question); `before` counts the occurrences in
    the parts of the batch that other processes play.
    """
    seen = Counter(before)
    episodes = []
    for index, prompt in enumerate(prompts):
        question_id = question_id_of(prompt)
        question = int.from_bytes(hashlib.blake2b(question_id.encode(), digest_size=8).digest())
        stream = (seed, question, seen[question_id])
        view = EpisodeView(question_id, seen[question_id], np.random.default_rng(stream))
        episodes.append(Episode(index, list(prompt), view, stream))
        seen[question_id] += 1
    return episodes
