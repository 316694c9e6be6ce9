"""Another action, at a higher temperature, in place of one that failed before in the attempt."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shared.errors import SQLEnvError
from trainer.play.played import PlayedAttempt
from trainer.rollout.chat_codec import ChatCodec
from trainer.rollout.episode import Episode
from trainer.rollout.generators.base import AsyncPolicy
from trainer.rollout.transcript import Sample

RETRIES = 8
RETRY_TEMPERATURE = 1.2
Act = Callable[[Episode], Awaitable[str | SQLEnvError | None]]


class RetryingPolicy:
    """An `AsyncPolicy` that awaits `retry` where `player` repeats what failed in the same
    attempt."""

    def __init__(self, player: AsyncPolicy, retry: Act, attempts: Sequence[PlayedAttempt]) -> None:
        self._acts, self._attempts = (player.act_one, *[retry] * RETRIES), attempts
        self.run_all = player.run_all

    async def act_one(self, episode: Episode) -> str | SQLEnvError | None:
        attempt = self._attempts[episode.row.repeat]
        for act in self._acts:
            text = await act(episode)
            if not (isinstance(text, str) and attempt.repeats_failure(text)):
                return text
        attempt.stuck = True
        return None


class RetryingGenerator:
    """A `Generator` for the attempts at one question, as `RetryingPolicy`, over a `LocalGenerator`,
    which draws a turn that was refused again at `RETRY_TEMPERATURE`."""

    def __init__(self, player: Any, codec: ChatCodec, attempts: Sequence[PlayedAttempt]) -> None:
        self._player, self._codec, self._attempts = player, codec, attempts
        self._refused: Counter[int] = Counter()  # by row, in its turn under way
        self._last: list[int] = []  # by row, the id before that turn
        self._again: list[int] = []  # rows of which it is drawn again
        self.room, self.restart = player.room, player.restart

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self._player.start(streams)
        self._last = [0] * len(streams)

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample | None]:
        taken: dict[int, Sample | None] = {}
        for row, ids in appended.items():
            self._last[row] = ids[-1]
        fed = dict(appended)
        while not taken:
            samples = self._player.sample(fed | {row: [self._last[row]] for row in self._again})
            if not samples:
                break
            fed, self._again = {}, []
            for row, sample in samples.items():
                taken |= self._taken(row, sample)
        return taken

    def _taken(self, row: int, sample: Sample) -> dict[int, Sample | None]:
        attempt = self._attempts[row]
        refused = attempt.repeats_failure(self._codec.turn(sample.ids))
        if refused and self._refused[row] < RETRIES:
            self._refused[row] += 1
            self._player.heat(row, RETRY_TEMPERATURE)
            # forget the turn and the id before it, which is then fed again
            length = self._player.limit - self._player.room(row)
            self._player.restart(row, length - len(sample.ids) - 1)
            self._again.append(row)
            return {}
        attempt.stuck = refused
        del self._refused[row]
        self._player.heat(row, None)
        return {row: None if refused else sample}
