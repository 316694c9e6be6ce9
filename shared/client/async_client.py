"""The asynchronous client of the environment servers: its public calls. `shared.client` exports
what users import."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import perf_counter
from typing import Any, Self, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import httpx
from pydantic import ValidationError

from shared.actions import SQLAction, render_action
from shared.client.auth import bearer
from shared.client.failover import REBUILT, Failover, OpenEpisode
from shared.client.fleet import Fleet
from shared.client.limits import ClientLimits, ClientStats
from shared.client.proxies import ProxyTransport
from shared.client.replica import Replica, encode
from shared.client.resolver import Resolve, system_addresses
from shared.errors import (
    DigestMismatch,
    InvalidRequest,
    ServerUnreachable,
    SQLEnvError,
    UnknownEpisode,
    first_problem,
    is_retryable,
)
from shared.models import (
    AnswerForm,
    EpisodeVerdicts,
    ResetResult,
    Rewards,
    ServerMetadata,
    SQLState,
    StepResult,
)

T = TypeVar("T")

# A running host accepts within milliseconds; one that is down should not use up the whole timeout.
CONNECT_TIMEOUT_S = 5.0
# Shorter than any server's, so that no request meets a connection that is about to be closed.
KEEPALIVE_S = 4.0
HEALTH_TIMEOUT_S = 5.0
READY_POLL_S = (0.1, 2.0)  # first and longest wait between two looks at a server that is not ready
SETTLED_KEPT = 1_000  # replies to cancelled steps
ENDED_KEPT = 10_000  # ended episodes whose server is remembered; any other is searched for


class _Waiting:
    """Adds to `stats.wait_s` the time in which at least one `with` block is under way.

    Raises `RuntimeError` in another process or event loop than that of the first block: the
    connections are theirs, and a call would wait without end.
    """

    def __init__(self, stats: ClientStats) -> None:
        self._stats, self._since = stats, 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def __enter__(self) -> None:
        if self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            self._begin()
        if self._stats.calls_waiting == 0:
            self._since = perf_counter()
        self._stats.calls_waiting += 1

    def _begin(self) -> None:
        if self._loop is not None:
            where = "event loop" if self._pid == os.getpid() else f"process ({self._pid})"
            raise RuntimeError(
                f"this client was opened in another {where}: open one of its own here, with"
                " 'async with SQLEnvClient(...)', or use SQLEnvClient(...).sync()"
            )
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def __exit__(self, *exc_info: object) -> None:
        self._stats.calls_waiting -= 1
        if self._stats.calls_waiting == 0:
            self._stats.wait_s += perf_counter() - self._since


class AsyncClient:
    """Episodes on one or several environment servers.

    `urls`: one server or several; an episode's id decides which plays it. A host name that resolves
    to several addresses (a scaled Compose service, a headless Kubernetes one) stands for a server
    at each of them; `resolve` looks them up. `limits`: timeouts, retries and batch sizes.
    `transport` replaces the network (tests, an app in this process). With `digest`, servers whose
    data or rules differ start no episode. `api_key`, by default the environment's SQLENV_API_KEY,
    is sent to every server. Use the client inside `async with`, in one event loop.

    A call that is cancelled loses nothing: a step is settled by the next call on its episode, and
    an episode whose reset was cancelled is closed.
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
        self._made_by = partial(
            type(self),
            urls,
            limits,
            transport=transport,
            digest=digest,
            resolve=resolve,
            api_key=api_key,
        )
        limits = limits or ClientLimits()
        if transport is not None and resolve is system_addresses:
            resolve = None  # the transport decides what names mean
        self.stats = ClientStats()
        self._http = httpx.AsyncClient(
            transport=transport
            or ProxyTransport(
                httpx.Limits(
                    max_connections=None,
                    max_keepalive_connections=None,
                    keepalive_expiry=KEEPALIVE_S,
                )
            ),
            headers=bearer(api_key),
            # the replica sets one deadline for the whole request
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, limits.timeout_s)),
            # A gateway's cookie would tie every episode to one server.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        self._fleet = Fleet(urls, self._http, limits, self.stats, resolve)
        self._failover = Failover(self._fleet, limits, self.stats)
        self._digest = digest
        self._episodes: dict[str, OpenEpisode] = {}
        self._ended: OrderedDict[str, Replica] = OrderedDict()
        # one call at a time on each episode that another client started
        self._foreign: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = _Waiting(self.stats)
        # episode -> number and text of a step under way, or that was cancelled
        self._pending: dict[str, tuple[int | None, str]] = {}
        self._settled: OrderedDict[str, StepResult] = OrderedDict()  # the reply to one, by episode
        self._abandoned: dict[str, asyncio.Task[None]] = {}  # episodes whose reset was cancelled
        self._closed = False

    @property
    def urls(self) -> list[str]:
        """The URLs of the servers known so far."""
        return [replica.url for replica in self._fleet.replicas]

    @property
    def open_episodes(self) -> list[str]:
        """Ids of the episodes that this client started and that were neither ended nor closed."""
        return list(self._episodes)

    def _anew(self) -> Self:
        """Return a client of the same servers without connections and episodes, for another
        process or after this one was closed."""
        made: Self = self._made_by()  # type: ignore[assignment]
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made_by, ()

    async def __aenter__(self) -> Self:
        if self._closed:
            raise RuntimeError("this client was closed: make another one with SQLEnvClient(...)")
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the calls under way and close the connections. Open episodes stay on their servers
        until their leases end."""
        self._closed = True
        for task in self._abandoned.values():
            task.cancel()
        await asyncio.gather(*self._abandoned.values(), return_exceptions=True)
        await self._fleet.close()
        for held in (self._episodes, self._ended, self._pending, self._settled):
            held.clear()
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
        episode_id: str | None = None,
        actions: Sequence[SQLAction | Mapping[str, Any] | str] | None = None,
        digest: str | None = None,
    ) -> ResetResult:
        """Start an episode, under a new id unless one is given. See `shared.models.ResetRequest`.

        With `actions`, the episode starts with them played, and the reply is the last one's. With
        `digest`, a server whose data or rules differ refuses (`DigestMismatch`). `rewards` "step"
        asks for every step's reward (`Forbidden` for an agent's key), "end" for none before the
        last reply.
        """
        episode_id = episode_id or str(uuid4())
        several = difficulty is not None and not isinstance(difficulty, str)
        request = {
            "episode_id": episode_id,
            "question_id": question_id,
            "split": split,
            "difficulty": list(difficulty or ()) if several else difficulty,
            "db_id": db_id,
            "seed": seed,
            "step_budget": step_budget,
            "answer_form": answer_form,
            "rewards": rewards,
            "actions": [_text(action) for action in actions or ()] or None,
            "digest": digest or self._digest,
        }
        item = encode(request)

        async def start(server: Replica) -> tuple[OpenEpisode, ResetResult]:
            its_digest = await server.digest()
            result = await server.reset(episode_id, item)
            options = {name: request[name] for name in REBUILT}
            return OpenEpisode(episode_id, server, its_digest, options, result), result

        with self._waiting:
            if (cancelled := self._abandoned.get(episode_id)) is not None:
                await asyncio.wait([cancelled])
            starting = asyncio.ensure_future(self._failover.run(episode_id, start))
            try:
                episode, result = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._abandon(episode_id, starting)
                raise
        self._pending.pop(episode_id, None)
        if result.done:
            self._episodes.pop(episode_id, None)
        else:
            self._episodes[episode_id] = episode
        return result

    async def step(
        self, episode_id: str, action: SQLAction | Mapping[str, Any] | str, step: int | None = None
    ) -> StepResult:
        """Play one action (its text, or its fields) and return its reply.

        `step` is the number of steps that the caller has seen answered; the client fills it in, and
        asks the server for it if another client started the episode. Repeating an answered step
        returns its stored reply. An episode of this client that is lost with its server is rebuilt
        first, elsewhere if need be. `Behind` if `step` is ahead of the episode.

        A step whose call was cancelled, or failed without a reply, is settled by the next one:
        the same action is taken for its repetition, and before another action it is played to its
        end; `last_reply` returns what it returned. It is never played later if the call was still
        waiting for an earlier step of the episode.
        """
        text = _text(action)
        episode = self._episodes.get(episode_id)
        with self._waiting:
            if episode is None:
                result = await self._step_foreign(episode_id, text, step)
            else:
                async with episode.order:
                    if episode_id in self._pending:
                        await self._settle(episode_id, episode, unless=text)
                    result = await self._step_own(episode, text, step)
        self.stats.steps += 1
        return result

    async def last_reply(self, episode_id: str) -> StepResult:
        """Return the reply to the last step of an episode of this client, or to its reset.

        A step whose call was cancelled is settled first. `UnknownEpisode` for an episode that has
        ended, unless such a step ended it.
        """
        if (episode := self._episodes.get(episode_id)) is not None:
            with self._waiting:
                async with episode.order:
                    if episode_id in self._pending:
                        await self._settle(episode_id, episode)
                    return episode.latest
        if (settled := self._settled.get(episode_id)) is not None:
            return settled
        raise UnknownEpisode(f"episode {episode_id} is not open in this client: see `state`")

    async def _step_own(self, episode: OpenEpisode, text: str, step: int | None) -> StepResult:
        episode_id, played = episode.episode_id, len(episode.actions)
        if step is not None and step > played:  # another client plays it too
            result = await self._step_foreign(episode_id, text, step)
        else:
            number = played if step is None else step
            item = encode({"episode_id": episode_id, "action": text, "step": number})
            if number == played:
                self._pending[episode_id] = number, text
            try:
                result = await self._failover.run(
                    episode_id, lambda server: server.step(episode_id, item), episode
                )
            except SQLEnvError as error:
                if not is_retryable(error):
                    self._pending.pop(episode_id, None)
                raise
            self._pending.pop(episode_id, None)
            if number == played:
                episode.latest = result
        if result.done and self._episodes.get(episode_id) is episode:
            self._remember_ended(episode)
        return result

    async def _settle(self, episode_id: str, episode: OpenEpisode | None, unless: str = "") -> None:
        """Play a step whose call was cancelled to its end, unless the next call repeats it."""
        number, text = self._pending[episode_id]
        if text == unless:
            return
        if episode is not None:
            result = await self._step_own(episode, text, number)
        else:
            result = await self._send_foreign(episode_id, text, number)
        self._settled[episode_id] = result
        if len(self._settled) > SETTLED_KEPT:
            self._settled.popitem(last=False)

    def _abandon(
        self, episode_id: str, starting: "asyncio.Future[tuple[OpenEpisode, ResetResult]]"
    ) -> None:
        """Close an episode whose reset was cancelled, once the server has started it."""

        async def close() -> None:
            with suppress(SQLEnvError):
                episode, result = await starting
                if not result.done:
                    await episode.replica.close_episode(episode_id)

        if not self._closed:
            task = asyncio.ensure_future(close())
            self._abandoned[episode_id] = task
            task.add_done_callback(lambda _: self._abandoned.pop(episode_id, None))

    async def reset_many(
        self, requests: Iterable[Mapping[str, Any]]
    ) -> list[ResetResult | SQLEnvError]:
        """Run `reset(**request)` for each at once; return results in order, errors in place."""
        return await _gather([self.reset(**request) for request in requests])

    async def step_many(
        self, steps: Iterable[tuple[str, SQLAction | Mapping[str, Any] | str]]
    ) -> list[StepResult | SQLEnvError]:
        """Run `step(episode_id, action)` for each at once; return results in order, errors in
        place."""
        return await _gather([self.step(episode_id, action) for episode_id, action in steps])

    async def close_episode(self, episode_id: str) -> None:
        """End an episode and free its place; one that its server no longer has is closed already.

        Few attempts are made (`ServerUnreachable`), as the episode also ends with its lease.
        """
        episode = self._episodes.pop(episode_id, None)
        self._pending.pop(episode_id, None)
        with suppress(UnknownEpisode), self._waiting:
            if episode is None:
                await self._find(episode_id, lambda server: server.close_episode(episode_id))
            elif episode.replica.lost is None:
                await episode.replica.close_episode(episode_id)

    async def state(self, episode_id: str) -> SQLState:
        """Return where an episode stands. One of this client's that is lost is rebuilt first."""
        episode = self._episodes.get(episode_id)
        with self._waiting:
            if episode is None:
                return await self._find(episode_id, lambda server: server.state(episode_id))
            async with episode.order:
                return await self._failover.run(
                    episode_id, lambda server: server.state(episode_id), episode
                )

    async def verdicts(self, episode_id: str) -> EpisodeVerdicts:
        """Return an ended episode's verdicts by every standard: for people, never for the agent."""
        with self._waiting:
            return await self._find(episode_id, lambda server: server.verdicts(episode_id))

    async def metadata(self) -> ServerMetadata:
        """Return what the servers are; `DigestMismatch` names two that differ in data or rules."""
        first: ServerMetadata | None = None
        with self._waiting:
            for replica in await self._fleet.open():
                metadata = await replica.metadata()
                first = first or metadata
                if metadata.digest != first.digest:
                    raise DigestMismatch(
                        f"{replica.url} and {self.urls[0]} serve different data or rules (digests"
                        f" {metadata.digest[:12]} and {first.digest[:12]}); start both with the"
                        " same data and version"
                    )
        assert first is not None
        return first

    async def health(self) -> dict[str, str]:
        """Return URL -> the status that each server reports, asked once and without retries."""
        found = {}
        with self._waiting:
            for replica in await self._fleet.open():
                body = await replica.request_once("GET", "/health", timeout_s=HEALTH_TIMEOUT_S)
                found[replica.url] = str(body.get("status", "")) if isinstance(body, dict) else ""
        return found

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when every server is ready; `ServerUnreachable` names the first that is not in
        time."""
        deadline = perf_counter() + timeout_s
        with self._waiting:
            for replica in await self._fleet.open():
                await _until_ready(replica, deadline, timeout_s)

    async def _step_foreign(self, episode_id: str, text: str, step: int | None) -> StepResult:
        async with self._foreign.setdefault(episode_id, asyncio.Lock()):
            if episode_id in self._pending:
                await self._settle(episode_id, None, unless=text)
            if step is None and episode_id in self._pending:
                step = self._pending[episode_id][0]
            return await self._send_foreign(episode_id, text, step)

    async def _send_foreign(self, episode_id: str, text: str, step: int | None) -> StepResult:
        self._pending[episode_id] = step, text
        try:
            if step is None:  # without it, a step whose reply is lost would be counted twice
                step = (await self.state(episode_id)).step_count
                self._pending[episode_id] = step, text
            item = encode({"episode_id": episode_id, "action": text, "step": step})
            result = await self._find(episode_id, lambda server: server.step(episode_id, item))
        except SQLEnvError as error:
            if not is_retryable(error):
                self._pending.pop(episode_id, None)
            raise
        self._pending.pop(episode_id, None)
        return result

    async def _find(self, episode_id: str, call: Callable[[Replica], Awaitable[T]]) -> T:
        """Return what `call` returns on the server of an episode that is not open here."""
        return await self._failover.find(episode_id, call, self._ended.get(episode_id))

    def _remember_ended(self, episode: OpenEpisode) -> None:
        del self._episodes[episode.episode_id]
        self._ended[episode.episode_id] = episode.replica
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)


async def _until_ready(replica: Replica, deadline: float, timeout_s: float) -> None:
    wait_s, longest_wait_s = READY_POLL_S
    while True:
        left_s = max(0.1, deadline - perf_counter())
        try:
            await replica.request_once("GET", "/ready", timeout_s=min(HEALTH_TIMEOUT_S, left_s))
            return
        except SQLEnvError as error:
            if not is_retryable(error):
                raise
            if perf_counter() + wait_s > deadline:
                problem = f"not ready after {timeout_s:g} s: {error}"
                raise ServerUnreachable(problem, url=replica.url) from error
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, longest_wait_s)


async def _gather(calls: Sequence[Awaitable[T]]) -> list[T | SQLEnvError]:
    """Return every call's result or `SQLEnvError`; raise any other exception after all ended."""
    found: list[T | SQLEnvError] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, SQLEnvError):
            raise result
        found.append(result)
    return found


def _text(action: SQLAction | Mapping[str, Any] | str) -> str:
    """Return an action's text. `InvalidRequest` for fields that are no action."""
    if isinstance(action, str):
        return action
    if isinstance(action, Mapping):
        try:
            action = SQLAction.model_validate(action)
        except ValidationError as error:
            raise InvalidRequest(first_problem(error, "the action")) from error
    if not isinstance(action, SQLAction):
        raise TypeError(
            f"an action is a text such as 'DESCRIBE: t', an SQLAction, or a mapping with"
            f" action_type and argument, not a {type(action).__name__}"
        )
    return render_action(action)
