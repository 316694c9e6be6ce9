"""The asynchronous client of the environment servers: its public calls. `shared.client` exports
what users import."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import perf_counter
from typing import Any, Self, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import httpx

from shared.actions import AnyAction, as_action, render_action
from shared.client import failover
from shared.client.auth import bearer
from shared.client.failover import REBUILT, Call, OpenEpisode
from shared.client.fleet import Fleet, until_ready
from shared.client.limits import ClientLimits, ClientStats
from shared.client.proxies import ProxyTransport
from shared.client.replica import Replica, encode, is_loss
from shared.client.resolver import Resolve, system_addresses
from shared.errors import DigestMismatch, SQLEnvError, TimedOut, UnknownEpisode
from shared.models import (
    AnswerForm,
    Explanation,
    ResetResult,
    Rewards,
    ServerMetadata,
    SQLState,
    StepResult,
)

T = TypeVar("T")

# A running host accepts within milliseconds; one that is down should not use up the whole timeout.
CONNECT_TIMEOUT_S = 5.0
ENDED_KEPT = 10_000  # ended episodes whose server is remembered


class AsyncClient:
    """Episodes on one or several environment servers.

    `urls`: one server or several; an episode's id decides which plays it. A host name that resolves
    to several addresses (a scaled Compose service, a headless Kubernetes one) stands for a server
    at each of them; `resolve` looks them up. `limits`: timeouts, retries and batch sizes.
    `transport` replaces the network (tests, an app in this process). With `digest`, servers whose
    data or rules differ start no episode. `api_key`, by default the environment's SQLENV_API_KEY,
    is sent to every server. Use the client inside `async with`, in one event loop.

    A call that is cancelled loses nothing: a step is settled by the next call on its episode, an
    episode whose reset was cancelled is closed, and a close is carried out.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        limits: ClientLimits | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        digest: str | None = None,
        resolve: Resolve | None = system_addresses,
        api_key: str | None = None,
    ) -> None:
        made = partial(type(self), urls, limits, transport=transport, digest=digest)
        # makes a client of the same servers, without connections and episodes
        self._anew = partial(made, resolve=resolve, api_key=api_key)
        limits = limits or ClientLimits()
        if transport is not None and resolve is system_addresses:
            resolve = None  # the transport decides what names mean
        self.stats = ClientStats()
        self._http = httpx.AsyncClient(
            transport=transport or ProxyTransport(),
            # a small compressed reply could become a large one
            headers={"Accept-Encoding": "identity", **bearer(api_key)},
            # the replica sets one deadline for the whole request
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, limits.timeout_s)),
            # A gateway's cookie would tie every episode to one server.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        self._fleet = Fleet(urls, self._http, limits, self.stats, resolve)
        self._digest = digest
        self._episodes: dict[str, OpenEpisode] = {}
        self._ended: dict[str, Replica] = {}
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # episode -> number and text of a step that was sent and has no reply
        self._pending: dict[str, tuple[int, str]] = {}
        # what ends a cancelled call -> its episode and the call's own task
        self._leaving: dict[asyncio.Task[None], tuple[str, asyncio.Task[Any]]] = {}
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None  # of the first call
        self._waiting_since = 0.0

    @property
    def open_episodes(self) -> list[str]:
        """Ids of the episodes that this client started and that were neither ended nor closed."""
        return list(self._episodes)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._anew, ()

    async def __aenter__(self) -> Self:
        with self._call():
            await self._http.__aenter__()  # which refuses to be opened twice
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the calls under way and close the connections; open episodes keep their leases."""
        with self._call():
            # `leaving` alone would not cancel its call before it has run for the first time
            tasks = [
                task for leaving, (_, call) in self._leaving.items() for task in (leaving, call)
            ]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._fleet.close()
            await self._http.aclose()

    async def reset(
        self,
        *,
        question_id: str | None = None,
        split: str | None = None,
        difficulty: str | Sequence[str] | None = None,
        db_id: str | None = None,
        seed: int | None = None,
        step_budget: int | None = None,
        answer_form: AnswerForm | None = None,
        rewards: Rewards | None = None,
        explain: Sequence[Explanation] | None = None,
        episode_id: str | None = None,
        actions: Sequence[AnyAction] | None = None,
    ) -> ResetResult:
        """Start an episode, under a new id unless one is given. See `shared.models.ResetRequest`.

        With `actions`, the episode starts with them played, and the reply is the last one's.
        `rewards` "step" asks for every step's reward (`Forbidden` for an agent's key), "end" for
        none before the last reply. `explain` names what observations explain; None: everything.
        """
        episode_id = episode_id or str(uuid4())
        request = {
            "episode_id": episode_id,
            "question_id": question_id,
            "split": split,
            "difficulty": difficulty,
            "db_id": db_id,
            "seed": seed,
            "step_budget": step_budget,
            "answer_form": answer_form,
            "rewards": rewards,
            "explain": None if explain is None else list(explain),
            "actions": [_text(action) for action in actions or ()] or None,
        }
        places: set[tuple[Replica, str]] = set()

        async def start(server: Replica) -> tuple[OpenEpisode, ResetResult]:
            its_digest = await server.digest()
            digest = self._digest or its_digest
            # Behind a gateway it may reach another server than the one that stated its digest.
            pinned = digest if self._digest or server.is_gateway else None
            item = encode({**request, "digest": pinned})
            places.add(server.place(episode_id))
            close = partial(server.close_episode, episode_id)
            result = await self._completed(episode_id, server.reset(episode_id, item), close)
            options = {name: request[name] for name in REBUILT}
            places.add(server.place(episode_id))
            return OpenEpisode(episode_id, server, digest, options, result, places), result

        with self._call():
            if leaving := [one for one, (left, _) in self._leaving.items() if left == episode_id]:
                await asyncio.wait(leaving)
            episode, result = await failover.run(self._fleet, episode_id, start)
        self._episodes[episode_id] = episode
        if result.done:
            del self._episodes[episode_id]
        return result

    async def step(self, episode_id: str, action: AnyAction, step: int | None = None) -> StepResult:
        """Play one action (its text, or its fields) and return its reply.

        `step` is the number of steps that the caller has seen answered; the client fills it in, and
        asks the server for it if another client started the episode. Repeating an answered step
        returns its stored reply; `Behind` if `step` is ahead of the episode. An episode of this
        client that is lost with its server is rebuilt first, elsewhere if need be.

        A step that was sent and got no reply, as the call was cancelled or failed
        (`ServerUnreachable`, `TimedOut`), is settled by the next call on the episode, which sends
        it again. If that call is `step` with the same action, it returns the reply; if not, its
        action is played afterwards, and `step(episode_id, action, number)` returns the reply.
        """
        text = _text(action)
        with self._call():
            async with self._orders.setdefault(episode_id, asyncio.Lock()):
                if (pending := self._pending.get(episode_id)) is not None:
                    if step is None and text == pending[1]:
                        step = pending[0]
                    if (step, text) != pending:
                        await self._settle(episode_id)
                result = await self._play(episode_id, text, step)
        self.stats.steps += 1
        return result

    async def reset_many(
        self, requests: Iterable[Mapping[str, Any]]
    ) -> list[ResetResult | SQLEnvError]:
        """Run `reset(**request)` for each at once; return results in order, errors in place."""
        return await _gather([self.reset(**request) for request in requests])

    async def step_many(
        self, steps: Iterable[tuple[str, AnyAction]]
    ) -> list[StepResult | SQLEnvError]:
        """Run `step(episode_id, action)` for each at once, as `reset_many` does."""
        return await _gather([self.step(episode_id, action) for episode_id, action in steps])

    async def close_episode(self, episode_id: str) -> None:
        """End an episode and free its place; one that its server no longer has is closed already.

        Few attempts are made (`ServerUnreachable`), as the episode also ends with its lease.
        """
        with suppress(UnknownEpisode), self._call():
            episode = self._episodes.pop(episode_id, None)
            self._pending.pop(episode_id, None)
            if episode is None:
                call = self._find(episode_id, lambda server: server.close_episode(episode_id))
                await self._completed(episode_id, call)
            elif episode.replica.lost is None:
                await self._completed(episode_id, episode.replica.close_episode(episode_id))
                self._close_copies(episode)

    async def state(self, episode_id: str) -> SQLState:
        """Return where an episode stands. One of this client's that is lost is rebuilt first."""
        with self._call():
            async with self._orders.setdefault(episode_id, asyncio.Lock()):
                await self._settle(episode_id)
                return await self._state(episode_id)

    async def metadata(self) -> ServerMetadata:
        """Return what the servers are; `DigestMismatch` names two that differ in data or rules."""
        with self._call():
            first, *others = await self._fleet.open()
            metadata = await first.metadata()
            for other in others:
                digest = (await other.metadata()).digest
                if digest != metadata.digest:
                    raise DigestMismatch(
                        f"{other.url} and {first.url} serve different data or rules (digests"
                        f" {digest[:12]} and {metadata.digest[:12]}); start both with the same data"
                        " and version"
                    )
        return metadata

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when every server is ready; `ServerUnreachable` names one that is not in time."""
        deadline = perf_counter() + timeout_s
        with self._call():
            for replica in await self._fleet.open():
                await until_ready(replica, deadline, timeout_s)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Count a call as one that waits; `RuntimeError` in another process or event loop than the
        first call's, where it would wait without end."""
        here = (os.getpid(), asyncio.get_running_loop())
        self._home = self._home or here
        if self._home != here:
            where = "event loop" if self._home[0] == here[0] else f"process ({self._home[0]})"
            raise RuntimeError(
                f"this client was opened in another {where}: open one of its own here, with"
                " 'async with SQLEnvClient(...)', or use SQLEnvClient(...).sync()"
            )
        if self.stats.calls_waiting == 0:
            self._waiting_since = perf_counter()
        self.stats.calls_waiting += 1
        try:
            yield
        finally:
            self.stats.calls_waiting -= 1
            if self.stats.calls_waiting == 0:
                self.stats.wait_s += perf_counter() - self._waiting_since

    async def _settle(self, episode_id: str) -> None:
        """Get the reply to the episode's pending step, if there is one."""
        if (pending := self._pending.get(episode_id)) is not None:
            number, text = pending
            try:
                await self._play(episode_id, text, number)
            except SQLEnvError:
                if episode_id in self._pending:  # else it was refused, and so not played
                    raise

    async def _play(self, episode_id: str, text: str, step: int | None) -> StepResult:
        """Send a step, by default the next one; it is pending until it is answered or refused."""
        episode = self._episodes.get(episode_id)
        answered = None if episode is None else episode.latest.observation.step_count
        if step is None and (step := answered) is None:
            # without its number, a step whose reply is lost would be counted twice
            step = (await self._state(episode_id)).step_count
        item = encode({"episode_id": episode_id, "action": text, "step": step})

        def send(server: Replica) -> Awaitable[StepResult]:
            return server.step(episode_id, item)

        if answered is None or step >= answered:
            self._pending[episode_id] = step, text
        try:
            if answered is None or step > answered:  # another client plays it too
                result = await self._find(episode_id, send)
            else:
                result = await failover.run(self._fleet, episode_id, send, episode)
        except SQLEnvError as error:
            if not (is_loss(error) or isinstance(error, TimedOut)):
                self._pending.pop(episode_id, None)
            raise
        self._pending.pop(episode_id, None)
        if episode is not None:
            if step == answered:
                episode.latest = result
            if result.done and self._episodes.get(episode_id) is episode:
                del self._episodes[episode_id]
                self._ended[episode_id] = episode.replica
                self._close_copies(episode)
                if len(self._ended) > ENDED_KEPT:
                    del self._ended[next(iter(self._ended))]
        return result

    def _close_copies(self, episode: OpenEpisode) -> None:
        left = episode.places - {episode.replica.place(episode.episode_id)}
        left = {(replica, server) for replica, server in left if server or not replica.is_gateway}
        self._fleet.close_copies(episode.episode_id, left)

    async def _state(self, episode_id: str) -> SQLState:
        def ask(server: Replica) -> Awaitable[SQLState]:
            return server.state(episode_id)

        if (episode := self._episodes.get(episode_id)) is None:
            return await self._find(episode_id, ask)
        return await failover.run(self._fleet, episode_id, ask, episode)

    async def _find(self, episode_id: str, call: Call[T]) -> T:
        return await failover.find(self._fleet, episode_id, call, self._ended.get(episode_id))

    async def _completed(
        self,
        episode_id: str,
        call: Coroutine[Any, Any, T],
        undo: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Return what `call` returns. If this is cancelled, `call` goes on, and `undo` follows."""
        task = asyncio.create_task(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            leaving = asyncio.create_task(_leave(task, undo))
            self._leaving[leaving] = episode_id, task
            leaving.add_done_callback(self._leaving.pop)
            raise


async def _gather(calls: Sequence[Awaitable[T]]) -> list[T | SQLEnvError]:
    """Return every call's result or `SQLEnvError`; raise any other exception after all ended."""
    found: list[T | SQLEnvError] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, SQLEnvError):
            raise result
        found.append(result)
    return found


async def _leave(call: asyncio.Task[Any], undo: Callable[[], Awaitable[None]] | None) -> None:
    with suppress(SQLEnvError):
        await call
        if undo is not None:
            await undo()


def _text(action: AnyAction) -> str:
    return action if isinstance(action, str) else render_action(as_action(action))
