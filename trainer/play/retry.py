"""Another action in place of one that failed before in the same attempt.

The player is asked again at a temperature, a few times. If it keeps to actions that failed, the
attempt ends without an answer.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shared.errors import SQLEnvError
from trainer.play.played import PlayedAttempt
from trainer.rollout.generators.base import AsyncPolicy, EpisodeView, Sample
from trainer.rollout.tokens import ChatCodec

RETRIES = 8
Act = Callable[[EpisodeView], Awaitable[str | SQLEnvError | None]]


class RetryingPolicy:
    """An `AsyncPolicy` for the attempts at one question; `retry` is awaited where `player` repeats
    what failed."""

    def __init__(self, player: AsyncPolicy, retry: Act, attempts: Sequence[PlayedAttempt]) -> None:
        self._acts, self._attempts = (player.act_one, *[retry] * RETRIES), attempts
        self.run_all = player.run_all

    async def act_one(self, view: EpisodeView) -> str | SQLEnvError | None:
        attempt = self._attempts[view.repeat]
        for act in self._acts:
            text = await act(view)
            if not (isinstance(text, str) and attempt.repeats_failure(text)):
                return text
        attempt.stuck = True
        return None


class RetryingGenerator:
    """A `Generator` for the attempts at one question, as `RetryingPolicy`.

    Both players are models in this process. A turn that was refused is in the context of `player`,
    which then forgets it and reads the one that was taken.
    """

    def __init__(
        self, player: Any, retry: Any, codec: ChatCodec, attempts: Sequence[PlayedAttempt]
    ) -> None:
        self._player, self._retry, self._codec, self._attempts = player, retry, codec, attempts
        self._streams: list[tuple[int, ...]] = []
        self._contexts: list[list[int]] = []
        self._kept: dict[int, int] = {}  # row -> ids of its context that `player` may keep

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self._streams, self._contexts = list(streams), [[] for _ in streams]
        self._kept.clear()
        self._player.start(streams)

    def room(self, row: int) -> int:
        return int(self._player.limit) - len(self._contexts[row])

    def restart(self, row: int, kept: int) -> None:
        del self._contexts[row][kept:]
        self._kept[row] = min(kept, self._kept.get(row, kept))

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample | None]:
        fed = {}
        for row, ids in appended.items():
            self._contexts[row] += ids
            kept = self._kept.pop(row, None)
            if kept is not None:
                self._player.restart(row, kept)
            fed[row] = ids if kept is None else self._contexts[row][kept:]
        return {row: self._taken(row, one) for row, one in self._player.sample(fed).items()}

    def _taken(self, row: int, sample: Sample) -> Sample | None:
        """Return a row's turn, or another one if it repeats what failed; None if all do."""
        context, attempt = self._contexts[row], self._attempts[row]
        for number in range(RETRIES + 1):
            if not attempt.repeats_failure(self._codec.turn(sample.ids)):
                context += sample.ids
                return sample
            self._kept[row] = len(context)
            if number == RETRIES:
                break
            if number == 0:
                self._retry.start([(*self._streams[row], len(context))])
            else:
                self._retry.restart(0, len(context) - 1)
            sample = self._retry.sample({0: context[-1:] if number else context})[0]
        attempt.stuck = True
        return None
