"""Another action in place of one that failed before in the same episode.

The player is asked again at a temperature, a few times. If it keeps to actions that failed, the
episode ends without an answer.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from shared.errors import SQLEnvError
from trainer.play.played import PlayedQuestion
from trainer.rollout.generators.base import AsyncPolicy, EpisodeView, Sample
from trainer.rollout.tokens import ChatCodec

RETRIES = 8


class RetryingPolicy:
    """A `Policy` for one episode; `retry` is asked where `player` repeats what failed."""

    def __init__(self, player: AsyncPolicy, retry: AsyncPolicy, played: PlayedQuestion) -> None:
        self._player, self._retry, self._played = player, retry, played

    def act(self, views: Sequence[EpisodeView]) -> list[str | SQLEnvError | None]:
        [view] = views
        for policy in (self._player, *[self._retry] * RETRIES):
            [text] = policy.run_all([partial(policy.act_one, view)])
            if not (isinstance(text, str) and self._played.repeats_failure(text)):
                return [text]
        self._played.stuck = True
        return [None]


class RetryingGenerator:
    """A `Generator` for one episode, as `RetryingPolicy`.

    Both players are models in this process. A turn that was refused is in the context of `player`,
    which then starts again with the one that was taken.
    """

    def __init__(self, player: Any, retry: Any, codec: ChatCodec, played: PlayedQuestion) -> None:
        self._player, self._retry, self._codec, self._played = player, retry, codec, played
        self._stream: tuple[int, ...] = ()
        self._context: list[int] = []
        self._stale = False  # whether the context of `player` is another

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        [self._stream] = streams
        self._player.start(streams)

    def room(self, row: int) -> int:
        return int(self._player.limit) - len(self._context)

    def restart(self, row: int, kept: int) -> None:
        self._context, self._stale = self._context[:kept], True

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample | None]:
        if not appended:
            return {}
        self._context += appended[0]
        if self._stale:
            self._player.restart(0, 0)
        sample = self._player.sample({0: self._context if self._stale else appended[0]})[0]
        self._stale = False
        for attempt in range(RETRIES + 1):
            if not self._played.repeats_failure(self._codec.turn(sample.ids)):
                self._context += sample.ids
                return {0: sample}
            if attempt < RETRIES:
                self._stale = True
                self._retry.start([(*self._stream, len(self._context), attempt)])
                sample = self._retry.sample({0: self._context})[0]
        self._played.stuck = True
        return {0: None}
