"""Carries an episode's calls to a server that can play it, and the episode with them.

An episode stays on its server while that serves, whatever servers come and go. Where its server has
lost it, or is lost itself, it is rebuilt by replay, there or elsewhere. The rebuild's reply must be
the one that the episode was last answered with: that is checked, so that a server that plays
differently is an error and never another episode.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from shared.client.fleet import Fleet
from shared.client.replica import ClientStats, Replica, encode, is_loss
from shared.client.retry import Attempts, RetryPolicy, with_retries
from shared.errors import (
    Behind,
    CapacityReached,
    DataError,
    DigestMismatch,
    InternalError,
    NotReady,
    SQLEnvError,
    UnknownEpisode,
    is_retryable,
)
from shared.models import ResetResult, StepResult

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# One server says so, another may play: it is full, has other data, or a fault of its own fails the
# request.
_REFUSALS = (CapacityReached, DigestMismatch, InternalError, DataError)


@dataclass(slots=True, eq=False)
class OpenEpisode:
    """What rebuilds an episode: its question, its options, its actions. `held`: as far as is known,
    by its replica."""

    episode_id: str
    replica: Replica
    digest: str
    question_id: str
    step_budget: int | None
    answer_form: str | None
    actions: list[str]
    latest: StepResult  # the reply to the last of `actions`, or to the reset
    held: bool = True
    order: asyncio.Lock = field(default_factory=asyncio.Lock)  # one call at a time


def parse(model: type[M], body: Any) -> M:
    """`body` as `model`, or a `SQLEnvError` saying what in it is not."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the reply"
        raise SQLEnvError(
            f"not a {model.__name__}: {where}: {first['msg']}; is the server's version ours?"
        ) from error


class Carrier:
    """Finds a server for each call, as often as `retry` allows."""

    def __init__(self, fleet: Fleet, retry: RetryPolicy, stats: ClientStats) -> None:
        self._fleet, self._retry, self._stats = fleet, retry, stats

    async def begin(self, episode_id: str, play: Callable[[Replica], Awaitable[T]]) -> T:
        """`play` on the server that the id names, or on another where that one is lost or refuses."""
        await self._fleet.open()
        return await self._carry(episode_id, self._fleet.home(episode_id), play)

    async def go_on(self, episode: OpenEpisode, play: Callable[[Replica], Awaitable[T]]) -> T:
        """`play` where the episode is held, once it is: rebuilt first where it was lost."""
        losses, began = 0, monotonic()

        async def there(home: Replica) -> T:
            if not (episode.held and episode.replica is home):
                await self._rebuild(episode, home)
            return await play(home)

        while True:
            try:
                return await self._carry(episode.episode_id, episode.replica, there)
            except (UnknownEpisode, Behind):
                episode.held = False
                if self._retry.spent(losses, monotonic() - began):
                    raise
            if losses:  # lost again at once
                await self._fleet.pause(self._retry.backoff(losses))
            losses += 1

    async def find(
        self,
        episode_id: str,
        call: Callable[[Replica], Awaitable[T]],
        likeliest: Replica | None = None,
    ) -> T:
        """`call` on the first server that knows the episode, from the likeliest or the one that its
        id places it on."""
        await self._fleet.open()
        unknown: UnknownEpisode | None = None
        for replica in dict.fromkeys(
            [*([likeliest] if likeliest else []), *self._fleet.ranked(episode_id)]
        ):
            if unknown is not None and replica.lost is not None:
                continue
            try:
                return await with_retries(
                    lambda replica=replica: call(replica),  # type: ignore[misc]
                    self._retry,
                    self._count_retry,
                    pause=self._fleet.pause,
                )
            except UnknownEpisode as error:
                unknown = unknown or error
        assert unknown is not None
        raise unknown

    async def _carry(
        self, episode_id: str, home: Replica, play: Callable[[Replica], Awaitable[T]]
    ) -> T:
        """`play` on `home`, or on others: once on each that serves, then a wait, as often as the
        policy allows."""
        attempts, tried, passing = Attempts(self._retry), set[Replica](), False
        while True:
            try:
                return await play(home)
            except SQLEnvError as error:
                tried.add(home)
                passing |= is_retryable(error)
                other = self._elsewhere(episode_id, home, error, tried)
                if other is None:
                    # Where all that serve refuse, one that is lost may play once it is back, or one
                    # that is full.
                    hopeful = isinstance(error, _REFUSALS) and (passing or self._fleet.some_lost)
                    wait_s = attempts.wait_s(error, hopeful=hopeful)
                    if wait_s is None:
                        if is_retryable(error):
                            error.details.setdefault("attempts", attempts.count)
                        raise
                    self._count_retry()
                    await self._fleet.pause(wait_s)
                    tried.clear()
                    attempts.count, passing = attempts.count + 1, False
                else:
                    home = other

    def _elsewhere(
        self, episode_id: str, home: Replica, error: SQLEnvError, tried: set[Replica]
    ) -> Replica | None:
        """The server to try after `home` failed with `error`; None where it is `home` again, or all
        were `tried`."""
        if isinstance(error, DigestMismatch):
            home.forget_digest()
        elif isinstance(error, NotReady):
            self._fleet.lose(home, error)
        elif not (isinstance(error, _REFUSALS) or (is_loss(error) and home.lost is not None)):
            return None
        return self._fleet.pick(episode_id, tried)

    async def _rebuild(self, episode: OpenEpisode, home: Replica) -> None:
        self._stats.rebuilds += 1
        request = {
            "episode_id": episode.episode_id,
            "question_id": episode.question_id,
            "step_budget": episode.step_budget,
            "answer_form": episode.answer_form,
            "actions": episode.actions,
            "digest": episode.digest,
        }
        item = encode({name: value for name, value in request.items() if value})
        found, last = parse(ResetResult, await home.reset(episode.episode_id, item)), episode.latest
        if (found.observation, found.reward, found.info) != (
            last.observation,
            last.reward,
            last.info,
        ):
            raise SQLEnvError(
                f"{home.url} replays episode {episode.episode_id} to another reply than it had, though its digest is "
                "the same: its data or rules have changed under it, so the episode is given up",
                url=home.url,
            )
        self._stats.moves += home is not episode.replica
        episode.replica, episode.held = home, True

    def _count_retry(self) -> None:
        self._stats.retries += 1
