"""The asynchronous client of the environment servers: its public calls. `shared.client` has what
users import."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import httpx

from shared.actions import SQLAction, render_action
from shared.client.auth import bearer
from shared.client.failover import Carrier, OpenEpisode, parse
from shared.client.fleet import Fleet
from shared.client.replica import CONNECT_TIMEOUT_S, ClientLimits, ClientStats, Replica, encode
from shared.client.resolver import Resolve, system_addresses
from shared.client.retry import RetryPolicy
from shared.errors import (
    DigestMismatch,
    ServerUnreachable,
    SQLEnvError,
    UnknownEpisode,
    is_retryable,
)
from shared.models import (
    AnswerForm,
    EpisodeVerdicts,
    ResetResult,
    ServerMetadata,
    SQLState,
    StepResult,
)

T = TypeVar("T")

# episodes of which it is known where they ended; any other is asked for by its id
ENDED_KEPT = 10_000
# short, so that no request meets a connection that the other side is about to close
KEEPALIVE_S = 4.0
HEALTH_TIMEOUT_S = 5.0
READY_POLL_S = (0.1, 2.0)  # first and longest wait between two looks at a server that is not ready


class AsyncClient:
    """Episodes on one or several environment servers.

    `urls`: one server or several; an episode's id decides which plays it. A host name that resolves
    to several addresses (a scaled Compose service, a headless Kubernetes one) stands for a server
    at each: `resolve` asks, again every `refresh_s` seconds. `transport` replaces the network
    (tests, an app in this process).

    A request may take `timeout_s` and is tried `max_attempts` times, each time on all servers that
    could serve it, and until `patience_s` seconds have passed, with waits that begin near
    `backoff_s` seconds and double up to `longest_wait_s`. A server that hangs is left for another
    after about twice `stall_s`. Up to `max_batch` steps or resets travel in one request, and
    `batches_in_flight` such requests of each kind per server. With `digest`, servers whose data or
    rules differ from it start no episode. `api_key`, or else the environment's SQLENV_API_KEY, is
    shown to every server. Use the client inside `async with`, in one event loop.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = 60.0,
        stall_s: float = 3.0,
        max_attempts: int = 8,
        backoff_s: float = 0.25,
        longest_wait_s: float = 10.0,
        patience_s: float = 0.0,
        max_batch: int = 256,
        batches_in_flight: int = 2,
        digest: str | None = None,
        resolve: Resolve | None = system_addresses,
        refresh_s: float = 10.0,
        api_key: str | None = None,
    ) -> None:
        limits = ClientLimits(timeout_s, stall_s, max_batch, batches_in_flight=batches_in_flight)
        retry = RetryPolicy(max_attempts, backoff_s, longest_wait_s, patience_s)
        if transport is not None and resolve is system_addresses:
            resolve = None  # names mean what the transport makes of them
        self.stats = ClientStats()
        self._http = httpx.AsyncClient(
            transport=transport,
            headers=bearer(api_key),
            # the rest: one deadline a request
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S
            ),
            # A gateway's cookie would tie every episode to one server.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        self._fleet = Fleet(urls, self._http, limits, retry, self.stats, resolve, refresh_s)
        self._carrier = Carrier(self._fleet, retry, self.stats)
        self._digest = digest
        self._episodes: dict[str, OpenEpisode] = {}
        self._ended: OrderedDict[str, Replica] = OrderedDict()
        # episodes begun elsewhere
        self._strangers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0  # calls under way
        self._waiting_since = 0.0

    @property
    def urls(self) -> list[str]:
        """Where the servers are, as far as is known."""
        return [replica.url for replica in self._fleet.replicas]

    @property
    def open_episodes(self) -> list[str]:
        """Ids of the episodes that this client began and that neither ended nor were closed."""
        return list(self._episodes)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends what is under way and the connections. Open episodes stay on their servers until
        their leases end."""
        await self._fleet.close()
        self._episodes.clear()
        self._ended.clear()
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
        episode_id: str | None = None,
        actions: Sequence[SQLAction | str] | None = None,
        digest: str | None = None,
    ) -> ResetResult:
        """Begins an episode, under an id made here unless one is given. See
        `shared.models.ResetRequest`.

        With `actions`, the episode starts with them played, and the reply is the last one's. With
        `digest`, a server whose data or rules differ refuses (`DigestMismatch`).
        """
        episode_id = episode_id or str(uuid4())
        played = [_text(action) for action in actions or ()]
        return await self._timed(
            self._reset(
                episode_id,
                question_id=question_id,
                split=split,
                difficulty=difficulty
                if difficulty is None or isinstance(difficulty, str)
                else list(difficulty),
                db_id=db_id,
                seed=seed,
                step_budget=step_budget,
                answer_form=answer_form,
                actions=played or None,
                digest=digest or self._digest,
            )
        )

    async def step(
        self, episode_id: str, action: SQLAction | str, step: int | None = None
    ) -> StepResult:
        """Plays one action and returns what came of it.

        `step` is how many steps the caller has seen answered; the client fills it in, and asks the
        server for it where it did not begin the episode. Repeating an answered step returns its
        stored reply. An episode of its own that is lost with its server is rebuilt first, elsewhere
        if need be. A call that was cancelled may or may not have been played: repeat it with the
        same action, or reset.
        """
        return await self._timed(self._step(episode_id, _text(action), step))

    async def reset_many(
        self, requests: Iterable[Mapping[str, Any]]
    ) -> list[ResetResult | SQLEnvError]:
        """`reset(**request)` for each, at once: results in order, an error in the place of its
        item."""
        return await _gather([self.reset(**request) for request in requests])

    async def step_many(
        self, steps: Iterable[tuple[str, SQLAction | str]]
    ) -> list[StepResult | SQLEnvError]:
        """`step(episode_id, action)` for each, at once: results in order, an error in the place of
        its item."""
        return await _gather([self.step(episode_id, action) for episode_id, action in steps])

    async def close_episode(self, episode_id: str) -> None:
        """Ends an episode and frees its place. One that its server does not hold, or has taken with
        it, is closed already; one that can't be reached ends with its lease, so that is tried
        briefly (`ServerUnreachable`)."""
        episode = self._episodes.pop(episode_id, None)
        with suppress(UnknownEpisode):
            if episode is None:
                await self._timed(
                    self._find(episode_id, lambda server: server.close_episode(episode_id))
                )
            elif episode.replica.lost is None:
                await self._timed(episode.replica.close_episode(episode_id))

    async def state(self, episode_id: str) -> SQLState:
        """Where an episode stands, as its server says; one of this client's that is lost there is
        rebuilt first."""
        return await self._timed(self._state(episode_id))

    async def verdicts(self, episode_id: str) -> EpisodeVerdicts:
        """An ended episode's answer by every standard. For people and reports, never for the agent."""
        found = await self._timed(
            self._find(episode_id, lambda server: server.verdicts(episode_id))
        )
        return parse(EpisodeVerdicts, found)

    async def metadata(self) -> ServerMetadata:
        """What the servers are; `DigestMismatch` naming two that differ in data or rules."""
        await self._fleet.open()
        replicas = self._fleet.replicas
        bodies = await self._timed(_all([replica.call("GET", "/metadata") for replica in replicas]))
        found = [parse(ServerMetadata, body) for body in bodies]
        for replica, metadata in zip(replicas, found, strict=True):
            if metadata.digest != found[0].digest:
                raise DigestMismatch(
                    f"{replica.url} and {replicas[0].url} serve different data or rules (digests"
                    f" {metadata.digest[:12]} and {found[0].digest[:12]}); start both with the same data and version"
                )
        return found[0]

    async def health(self) -> dict[str, str]:
        """URL -> the status that each server states; asked once, without retries."""
        await self._fleet.open()
        replicas = self._fleet.replicas
        bodies = await _all(
            [
                replica.call_once("GET", "/health", timeout_s=HEALTH_TIMEOUT_S)
                for replica in replicas
            ]
        )
        return {
            replica.url: str(body.get("status", "")) if isinstance(body, dict) else ""
            for replica, body in zip(replicas, bodies, strict=True)
        }

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Returns when every server is ready to play; `ServerUnreachable` naming the first that is
        not in time."""
        await self._fleet.open()
        await self._timed(
            _all([_until_ready(replica, timeout_s) for replica in self._fleet.replicas])
        )

    async def _reset(
        self, episode_id: str, *, step_budget: int | None, answer_form: str | None, **options: Any
    ) -> ResetResult:
        request = {
            "episode_id": episode_id,
            "step_budget": step_budget,
            "answer_form": answer_form,
            **options,
        }
        item = encode({name: value for name, value in request.items() if value is not None})

        async def play(server: Replica) -> tuple[Replica, str, ResetResult]:
            digest = await server.digest()
            return server, digest, parse(ResetResult, await server.reset(episode_id, item))

        server, digest, result = await self._carrier.begin(episode_id, play)
        if result.done:
            self._episodes.pop(episode_id, None)
        else:
            # Its canonical texts, which a rebuild is compared with.
            actions = list(result.observation.action_history)
            self._episodes[episode_id] = OpenEpisode(
                episode_id,
                server,
                digest,
                result.info.question_id,
                step_budget,
                answer_form,
                actions,
                result,
            )
        return result

    async def _step(self, episode_id: str, action: str, step: int | None) -> StepResult:
        episode = self._episodes.get(episode_id)
        if episode is None:
            async with self._strangers.setdefault(episode_id, asyncio.Lock()):
                # a step without its number would be charged again where its reply is lost
                if step is None:
                    step = (await self._state(episode_id)).step_count
                item = encode({"episode_id": episode_id, "action": action, "step": step})
                reply = await self._find(episode_id, lambda server: server.step(episode_id, item))
            result = parse(StepResult, reply)
        else:
            async with episode.order:
                played = len(episode.actions)
                number = played if step is None else step
                item = encode({"episode_id": episode_id, "action": action, "step": number})
                reply = await self._carrier.go_on(
                    episode, lambda server: server.step(episode_id, item)
                )
                result = parse(StepResult, reply)
                if number == played:
                    episode.actions.append(action)
                    episode.latest = result
                if result.done and self._episodes.get(episode_id) is episode:
                    del self._episodes[episode_id]
                    self._ended[episode_id] = episode.replica
                    if len(self._ended) > ENDED_KEPT:
                        self._ended.popitem(last=False)
        self.stats.steps += 1
        return result

    async def _state(self, episode_id: str) -> SQLState:
        episode = self._episodes.get(episode_id)
        if episode is None:
            return parse(
                SQLState, await self._find(episode_id, lambda server: server.state(episode_id))
            )
        async with episode.order:
            return parse(
                SQLState,
                await self._carrier.go_on(episode, lambda server: server.state(episode_id)),
            )

    async def _find(self, episode_id: str, call: Callable[[Replica], Awaitable[T]]) -> T:
        """`call` for an episode that is not open here."""
        return await self._carrier.find(episode_id, call, self._ended.get(episode_id))

    async def _timed(self, call: Awaitable[T]) -> T:
        """`call`, with its time in `stats.wait_s`; calls that wait at once are counted once."""
        if self._waiting == 0:
            self._waiting_since = perf_counter()
        self._waiting += 1
        try:
            return await call
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.stats.wait_s += perf_counter() - self._waiting_since


async def _until_ready(replica: Replica, timeout_s: float) -> None:
    deadline = perf_counter() + timeout_s
    wait_s, longest_wait_s = READY_POLL_S
    while True:
        try:
            await replica.call_once(
                "GET",
                "/ready",
                timeout_s=min(HEALTH_TIMEOUT_S, max(0.1, deadline - perf_counter())),
            )
            return
        except SQLEnvError as error:
            if not is_retryable(error):
                raise
            if perf_counter() + wait_s > deadline:
                raise ServerUnreachable(
                    f"not ready after {timeout_s:g} s: {error}", url=replica.url
                ) from error
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, longest_wait_s)


async def _all(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Every call's result; the first failure ends the others before it is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gather(calls: Sequence[Awaitable[T]]) -> list[T | SQLEnvError]:
    """Every call's result or `SQLEnvError`; any other exception is raised, after all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T | SQLEnvError] = []
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, SQLEnvError):
            raise result
        found.append(result)
    return found


def _text(action: SQLAction | str) -> str:
    return action if isinstance(action, str) else render_action(action)
