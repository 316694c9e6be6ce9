"""The episodes of one batch, played side by side against the environment servers.

A policy, or a model in this process, writes turns for all episodes, and the steps of those that
have ended are sent together. With a model server, each episode goes on as soon as its own turn or
step is answered. A turn's ids enter the transcript as they were sampled, before they are parsed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal

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
from trainer.config.settings import GRPOConfig
from trainer.rollout.chat_codec import ChatCodec
from trainer.rollout.episode import Episode, EpisodeObserver
from trainer.rollout.generators.base import AnyPolicy, AsyncGenerator, AsyncPolicy, Generator
from trainer.rollout.parsing import ParsedAction, parse_with_fallback
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.rollout.transcript import Sample, Transcript

# The caller's mistakes, which all other episodes would meet too: raised, not counted as lost.
_FATAL = (UnknownQuestion, InvalidRequest, DigestMismatch, Forbidden)

EpisodeClient = SyncSQLEnvClient  # its reset_many, step_many, start_step, close_episode and stats
Text = str | SQLEnvError | None  # of a turn: see `Policy`
Busy = Literal["generate_s", "env_wait_s"]


class EpisodeBatch:
    """The episodes of one `play_episodes` call. Without a codec no ids are kept."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        codec: ChatCodec | None,
        config: GRPOConfig,
        client: EpisodeClient,
        stats: RolloutStats,
        observer: EpisodeObserver | None = None,
    ) -> None:
        self.episodes = episodes
        self._codec, self._config, self._client, self._stats = codec, config, client, stats
        self._observer = observer or EpisodeObserver()
        self._busy: Counter[Busy] = Counter()  # turns and steps under way
        self._changed_s = 0.0  # when one of them started or ended

    def reset(self) -> None:
        options = {
            "step_budget": self._config.step_budget,
            "rewards": "step",
            "explain": self._config.explain,
        }
        requests = [{"question_id": one.row.question_id, **options} for one in self.episodes]
        with self._timed("env_wait_s"):
            replies = self._client.reset_many(requests)
        for episode, reply in zip(self.episodes, replies, strict=True):
            if isinstance(reply, SQLEnvError):
                self._lose(episode, reply)
                continue
            episode.episode_id = reply.episode_id
            episode.row.transcript += [
                {"role": str(message["role"]), "content": str(message["content"])}
                for message in episode.prompt[:-1]
            ]
            episode.show(reply, self._config.system_prompt)
            if self._codec is not None:
                episode.transcript = Transcript(self._codec.prompt(episode.row.transcript))
            self._observer.on_start(episode)

    def play_policy(self, policy: AnyPolicy) -> None:
        """Play all episodes with a policy that writes text. An asynchronous one's has no ids."""
        if isinstance(policy, AsyncPolicy):
            self._play_apart(policy, policy.act_one)
            return

        def act(live: Sequence[Episode]) -> list[tuple[Episode, Text]]:
            texts = policy.act(live)
            self._observer.on_tokens(0, 0, len(texts))
            for episode, text in zip(live, texts, strict=True):
                if self._codec is not None and isinstance(text, str):
                    if episode.transcript.pairs:
                        episode.transcript.add_environment(self._bridge(self._codec, episode))
                    ids = self._codec.action(text)
                    episode.transcript.add_sample(Sample(ids, [0.0] * len(ids)))
            return list(zip(live, texts, strict=True))

        self._play_together(act)

    def play_generator(self, generator: Generator, codec: ChatCodec) -> None:
        """Play all episodes with sampled ids: a row trains on exactly what was fed and sampled."""
        generator.start([episode.stream for episode in self.episodes])
        if isinstance(generator, AsyncGenerator):

            async def sample_one(episode: Episode) -> Text:
                if (ids := self._appended(generator, codec, episode)) is None:
                    return None
                sample = await generator.sample_one(episode.index, ids)
                return self._sampled(codec, episode, sample)

            self._play_apart(generator, sample_one)
            return

        under_way: set[int] = set()  # episodes whose turn has not ended

        def act(live: Sequence[Episode]) -> list[tuple[Episode, Text]]:
            appended = {
                one.index: ids
                for one in live
                if one.index not in under_way
                and (ids := self._appended(generator, codec, one)) is not None
            }
            samples = generator.sample(appended)
            under_way.update(appended)
            under_way.difference_update(samples)
            return [
                (one, self._sampled(codec, one, samples.get(one.index)))  # None: no room for a turn
                for one in live
                if one.index not in under_way
            ]

        self._play_together(act)

    def _sampled(
        self, codec: ChatCodec, episode: Episode, sample: Sample | SQLEnvError | None
    ) -> Text:
        if sample is None or isinstance(sample, SQLEnvError):
            return sample
        episode.transcript.add_sample(sample)
        episode.row.sampled_tokens += len(sample.ids)
        return codec.turn(sample.ids)

    def _play_together(
        self, act: Callable[[Sequence[Episode]], Sequence[tuple[Episode, Text]]]
    ) -> None:
        while live := [episode for episode in self.episodes if not episode.done]:
            with self._timed("generate_s"):
                texts = act(live)
            steps = [
                (episode, parsed)
                for episode, text in texts
                if (parsed := self._parsed(episode, text)) is not None
            ]
            with self._timed("env_wait_s"):
                replies = self._client.step_many(
                    [(one.episode_id, render_action(parsed.action)) for one, parsed in steps]
                )
            for (episode, parsed), reply in zip(steps, replies, strict=True):
                self._observe(episode, parsed, reply)
            self._end()

    def _play_apart(
        self, loop: AsyncGenerator | AsyncPolicy, act: Callable[[Episode], Awaitable[Text]]
    ) -> None:

        async def play(episode: Episode) -> None:
            row = episode.row
            while not episode.done:
                read, written = row.prompt_tokens, row.sampled_tokens
                with self._timed("generate_s"):
                    text = await act(episode)
                self._observer.on_tokens(row.prompt_tokens - read, row.sampled_tokens - written, 1)
                if (parsed := self._parsed(episode, text)) is None:
                    break
                reply: StepResult | SQLEnvError
                with self._timed("env_wait_s"):
                    try:
                        action = render_action(parsed.action)
                        step = self._client.start_step(episode.episode_id, action)
                        reply = await asyncio.wrap_future(step)
                    except SQLEnvError as error:
                        reply = error
                self._observe(episode, parsed, reply)
            self._end()

        loop.run_all([partial(play, one) for one in self.episodes if not one.done])

    def _appended(
        self, generator: Generator, codec: ChatCodec, episode: Episode
    ) -> list[int] | None:
        """Return the ids to append to an episode's context before its next turn: the prompt, the
        bridge, or what follows the prompt in a context that was cut. None if there is no room for a
        turn."""
        transcript = episode.transcript
        room, ids = generator.room(episode.index), transcript.prompt_ids
        if not transcript.pairs:
            overflow = len(ids) >= room
        else:
            bridge = self._bridge(codec, episode)
            window = room + len(ids) + sum(map(len, transcript.pairs))
            kept = transcript.kept_with(bridge, window, self._config.max_new_tokens)
            overflow = not kept
            if kept == len(transcript.pairs):
                transcript.add_environment(bridge)
                ids = bridge
            elif kept:
                generator.restart(episode.index, len(transcript.prompt_ids))
                ids = transcript.truncate(kept, bridge)
        episode.row.context_overflow = overflow
        if overflow:
            return None
        episode.row.prompt_tokens += len(ids)
        return ids

    @staticmethod
    def _bridge(codec: ChatCodec, episode: Episode) -> list[int]:
        observation = episode.row.transcript[-1]["content"]
        return codec.bridge(observation, episode.transcript.pairs[-1][-1])

    def _parsed(self, episode: Episode, text: Text) -> ParsedAction | None:
        if isinstance(text, SQLEnvError):
            self._lose(episode, text)
            return None
        if text is None:
            episode.done = True
            return None
        parsed = parse_with_fallback(text)
        episode.row.inferred_actions += parsed.inferred
        episode.row.parse_failures += parsed.fallback
        episode.row.texts.append(text)
        episode.row.transcript.append({"role": "assistant", "content": text})
        return parsed

    def _observe(
        self, episode: Episode, parsed: ParsedAction, reply: StepResult | SQLEnvError
    ) -> None:
        row = episode.row
        if isinstance(reply, EpisodeTooLarge):  # the agent's own doing, not a fault
            row.too_large = episode.done = True
            return
        if isinstance(reply, SQLEnvError):
            self._lose(episode, reply)
            return
        self._stats.steps += 1
        row.rewards.append(0.0 if reply.reward is None else reply.reward)
        row.parts.append(reply.ledger.step)
        if reply.observation.error is not None:
            row.env_errors.append(reply.info.error_code or "error")
        if reply.done:
            episode.done, row.outcome = True, reply.info.outcome or Outcome.BUDGET
        episode.show(reply, self._config.system_prompt)
        self._observer.on_step(episode, parsed, reply)

    def _lose(self, episode: Episode, error: SQLEnvError) -> None:
        self._observer.on_lost(episode, error)
        if isinstance(error, _FATAL):
            raise error
        episode.done = True
        episode.row.lost, episode.row.outcome = error.message, Outcome.INFRA_FAILED

    def _end(self) -> None:
        ended = [episode for episode in self.episodes if episode.done and not episode.seen]
        for episode in ended:
            episode.finished(self._codec)
            episode.seen = True
        if ended:
            self._observer.on_end([episode.row for episode in ended])

    def rows(self) -> list[RolloutRow]:
        """Return the rows of the finished episodes, and add their counts to the stats. Episodes
        that ended without an answer are closed on their servers; they keep their rewards."""
        self._end()  # those that could not be started
        # leases end the others, too: don't wait for an unresponsive server once per episode
        with suppress(SQLEnvError), self._timed("env_wait_s"):
            for episode in self.episodes:
                if episode.row.outcome is Outcome.ABANDONED:
                    self._client.close_episode(episode.episode_id)
        rows = [episode.row for episode in self.episodes]
        self._stats.episodes += len(rows)
        self._stats.episodes_lost += sum(row.lost is not None for row in rows)
        self._stats.parse_failures += sum(row.parse_failures for row in rows)
        return rows

    @contextmanager
    def _timed(self, name: Busy) -> Iterator[None]:
        """Add the seconds of the block to the stats; while other blocks are under way too, each
        second counts once, as generation if there is any."""
        self._count_seconds()
        self._busy[name] += 1
        try:
            yield
        finally:
            self._count_seconds()
            self._busy[name] -= 1

    def _count_seconds(self) -> None:
        now = time.perf_counter()
        if self._busy["generate_s"]:
            self._stats.generate_s += now - self._changed_s
        elif self._busy["env_wait_s"]:
            self._stats.env_wait_s += now - self._changed_s
        self._changed_s = now
