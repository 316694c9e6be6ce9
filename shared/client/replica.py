"""One environment server as the client sees it: requests with retries, batches of steps and resets,
signs of life."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import quote

import anyio
import httpx
from pydantic_core import from_json

from shared.client.batching import Batcher, closed_error
from shared.client.resolver import Address
from shared.client.retry import RetryPolicy, parse_retry_after, with_retries
from shared.errors import (
    BodyTooLarge,
    InternalError,
    InvalidRequest,
    NotReady,
    ServerUnreachable,
    SQLEnvError,
    from_wire,
)

# a live host accepts within milliseconds; a dead one should not use up the whole timeout
CONNECT_TIMEOUT_S = 5.0
# requests that have no batch form (close, state); httpx slows down with each further one
SINGLES_IN_FLIGHT = 4
# a gateway hashes the first, and says with the second how many
AFFINITY, LANES = "X-Affinity", "X-Affinity-Lanes"
MAX_LANES = 64
CLOSE_ATTEMPTS, CLOSE_TIMEOUT_S = 3, 5.0
ATTEMPTS_BEFORE_LOST = 2  # one broken connection is no lost server

# What httpx raises where a connection breaks, and what now and then comes through from below it.
_BROKEN = (
    httpx.RequestError,
    httpx.StreamError,
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
# made once: half of dumps' cost
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass
class ClientStats:
    """What a client has done so far. Rates and shares are the reader's to compute."""

    requests: int = 0  # HTTP requests sent, retries included
    batches: int = 0  # of them, /step_batch and /reset_batch
    steps: int = 0  # steps answered
    retries: int = 0  # requests sent again, and batch items sent again
    rebuilds: int = 0  # episodes rebuilt by replay
    moves: int = 0  # of them, those that went to another server
    servers_lost: int = 0  # times that a server was given up for a while
    # wall seconds in which at least one call waited for a server (concurrent waits count once)
    wait_s: float = 0.0


@dataclass(frozen=True)
class ClientLimits:
    """How a client shares out its requests."""

    timeout_s: float = 60.0  # for one request, from connecting to the last byte
    # a server that has had a request for so long is asked whether it lives, and has as long again
    stall_s: float = 3.0
    max_batch: int = 256  # items
    max_batch_bytes: int = 512 * 1024
    batches_in_flight: int = 2  # of each kind, per replica; where a gateway has lanes, one a lane

    def __post_init__(self) -> None:
        if not min(self.timeout_s, self.stall_s) > 0:
            raise ValueError(
                f"timeout_s is {self.timeout_s} and stall_s {self.stall_s}; they must be over 0"
            )
        if min(self.max_batch, self.batches_in_flight) < 1:
            raise ValueError("max_batch and batches_in_flight must be at least 1")


class Peers(Protocol):
    """What a replica asks of the fleet that it is part of."""

    def lose(self, replica: "Replica", error: SQLEnvError) -> None:
        """`replica` does not serve, as `error` says."""

    def has_other(self, replica: "Replica") -> bool:
        """Whether another one serves."""

    async def pause(self, wait_s: float) -> None:
        """So long, or until a server has come back."""


def encode(body: Mapping[str, Any]) -> bytes:
    """`body` as JSON, or `InvalidRequest` saying what in it is none (a lone surrogate too, which no
    server reads)."""
    try:
        return _JSON.encode(body).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"can't be written as JSON: {error}") from error


def is_loss(error: SQLEnvError) -> bool:
    """Whether `error` says that the server does not serve at all, rather than what is wrong with
    one request."""
    from_a_gateway = "code" not in error.details and error.details.get("status") in (502, 503, 504)
    return isinstance(error, ServerUnreachable | NotReady) or from_a_gateway


def lane_of(episode_id: str, lanes: int) -> int:
    """The lane of an episode: the same in every process."""
    return (
        int.from_bytes(blake2b(episode_id.encode(), digest_size=4).digest()) % lanes
        if lanes > 1
        else 0
    )


class _Lane:
    """The episodes that a gateway keeps together: they share batches, and a value for it to hash."""

    def __init__(self, replica: "Replica", number: int, limits: ClientLimits) -> None:
        # hashed here: similar values lie close together in some gateways' hashes
        self.headers = {AFFINITY: blake2b(f"lane {number}".encode(), digest_size=8).hexdigest()}
        self.steps = self._batcher(replica, "/step_batch", "steps", limits)
        self.resets = self._batcher(replica, "/reset_batch", "resets", limits)

    def _batcher(self, replica: "Replica", path: str, key: str, limits: ClientLimits) -> Batcher:
        return Batcher(
            partial(replica.send_batch, path, key, self.headers),
            max_items=limits.max_batch,
            max_bytes=limits.max_batch_bytes,
            max_in_flight=limits.batches_in_flight,
        )


class Replica:
    """One environment server, or a gateway to several. `lost` says why it is given up for the
    moment."""

    def __init__(
        self,
        address: Address,
        http: httpx.AsyncClient,
        limits: ClientLimits,
        retry: RetryPolicy,
        stats: ClientStats,
        peers: Peers,
    ) -> None:
        self.url = address.url
        self.lost: str | None = None
        self._name = str(address)
        self._host = {} if address.host is None else {"Host": address.host}
        self._http = http
        self._limits = limits
        self._retry = retry
        self._stats = stats
        self._peers = peers
        self._lanes = [_Lane(self, 0, limits)]
        self._lane_count = 1
        self._lanes_stated: str | None = None
        self._singles = asyncio.Semaphore(SINGLES_IN_FLIGHT)
        self._digest: str | None = None
        self._digest_lock = asyncio.Lock()
        self._under_way: dict[asyncio.Timeout, float] = {}  # requests, with the time of their start
        self._watchdog: asyncio.Task[None] | None = None
        self._closed = False

    async def step(self, episode_id: str, item: bytes) -> Any:
        """The reply to a StepRequest, sent in a batch."""
        return self._item(await self._lane(episode_id).steps.submit(item))

    async def reset(self, episode_id: str, item: bytes) -> Any:
        """The reply to a ResetRequest, sent in a batch."""
        return self._item(await self._lane(episode_id).resets.submit(item))

    async def close_episode(self, episode_id: str) -> None:
        """Tried briefly: an episode that nobody closes ends with its lease."""
        path, headers = f"/episodes/{quote(episode_id, safe='')}", self._lane(episode_id).headers
        brief = replace(
            self._retry, max_attempts=min(CLOSE_ATTEMPTS, self._retry.max_attempts), patience_s=0.0
        )
        async with self._singles:
            await with_retries(
                lambda: self.call_once("DELETE", path, headers=headers, timeout_s=CLOSE_TIMEOUT_S),
                brief,
                self._count_retry,
            )

    async def state(self, episode_id: str) -> Any:
        return await self._single(episode_id, "GET", "/state", params={"episode_id": episode_id})

    async def verdicts(self, episode_id: str) -> Any:
        return await self._single(
            episode_id, "GET", f"/operator/verdicts/{quote(episode_id, safe='')}"
        )

    async def digest(self) -> str:
        """The digest of this server's data and rules, asked at first contact and after a lost
        connection.

        A gateway's answer says into how many lanes episodes are dealt.
        """
        if self._digest is None:
            async with self._digest_lock:
                if self._digest is None:
                    metadata = await self.call("GET", "/metadata")
                    self._digest = (
                        str(metadata.get("digest", "")) if isinstance(metadata, dict) else ""
                    )
                    self._deal(self._lanes_stated)
        return self._digest

    def forget_digest(self) -> None:
        self._digest = None

    async def call(self, method: str, path: str, **request: Any) -> Any:
        """The JSON reply to one request, with retries; an error reply or none is raised as a
        `SQLEnvError`.

        Where this server is lost and another one serves, the error is raised without further
        attempts.
        """

        async def attempt() -> Any:
            if self.lost is not None and self._peers.has_other(self):
                raise ServerUnreachable(self.lost, url=self.url)
            return await self.call_once(method, path, **request)

        return await with_retries(
            attempt,
            self._retry,
            self._count_retry,
            gives_way=self._gives_way,
            pause=self._peers.pause,
        )

    async def call_once(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = math.inf,
        watched: bool = True,
    ) -> Any:
        """`call` without retries. The one place where HTTP's failures become errors of our tree.

        `watched`: ended early where the server hangs and another one serves.
        """
        if self._closed:
            raise closed_error()
        self._stats.requests += 1
        began = perf_counter()
        kind = {} if content is None else {"Content-Type": "application/json"}
        scope = asyncio.timeout(min(timeout_s, self._limits.timeout_s))
        try:
            async with scope:
                if watched:
                    self._under_way[scope] = began
                    self._watch()
                response = await self._http.request(
                    method,
                    self.url + path,
                    content=content,
                    params=params,
                    headers={**self._host, **kind, **(headers or {})},
                )
        except TimeoutError as error:
            raise self._unreachable(f"no reply within {perf_counter() - began:.3g} s") from error
        except _BROKEN as error:
            raise self._unreachable(
                f"{type(error).__name__}: {error}".removesuffix(": ")
            ) from error
        finally:
            self._under_way.pop(scope, None)
        try:
            body = from_json(response.content) if response.content else None
        except ValueError:
            body = None
        if response.is_success and (body is not None or response.status_code == 204):
            self._lanes_stated = response.headers.get(LANES)
            return body
        raise self._error_of(response, body)

    async def send_batch(
        self, path: str, key: str, headers: Mapping[str, str], items: Sequence[bytes]
    ) -> list[Any]:
        """One reply or `{"error": ...}` an item. A batch that is too large for the server goes in
        halves."""
        self._stats.batches += 1
        content = b'{"%b":[%b]}' % (key.encode(), b",".join(items))
        try:
            body = await self.call("POST", path, content=content, headers=headers)
        except BodyTooLarge as error:
            if len(items) == 1:
                return [error.to_wire()]
            middle = len(items) // 2
            first = await self.send_batch(path, key, headers, items[:middle])
            return first + await self.send_batch(path, key, headers, items[middle:])
        results = body.get("results") if isinstance(body, dict) else None
        if not isinstance(results, list) or len(results) != len(items):
            raise SQLEnvError(
                f"{self.url}{path} did not answer each of {len(items)} items; is its version ours?"
            )
        return results

    async def close(self) -> None:
        self._closed = True
        for lane in self._lanes:
            await lane.steps.close()
            await lane.resets.close()
        if self._watchdog is not None:
            self._watchdog.cancel()
            await asyncio.gather(self._watchdog, return_exceptions=True)

    def _lane(self, episode_id: str) -> _Lane:
        return self._lanes[lane_of(episode_id, self._lane_count)]

    def _deal(self, stated: str | None) -> None:
        lanes = min(int(stated), MAX_LANES) if stated is not None and stated.isdecimal() else 1
        self._lane_count = max(1, lanes)
        each = self._limits if lanes < 2 else replace(self._limits, batches_in_flight=1)
        self._lanes += [
            _Lane(self, number, each) for number in range(len(self._lanes), self._lane_count)
        ]

    def _item(self, reply: Any) -> Any:
        if isinstance(reply, dict) and "error" in reply:
            raise from_wire(reply, source=self.url)
        return reply

    async def _single(self, episode_id: str, method: str, path: str, **request: Any) -> Any:
        async with self._singles:
            return await self.call(method, path, headers=self._lane(episode_id).headers, **request)

    def _count_retry(self) -> None:
        self._stats.retries += 1

    def _gives_way(self, attempt: int, error: SQLEnvError) -> bool:
        """Whether another server should serve what failed here. A connection may break once without
        that."""
        if self._closed:
            return False
        # it serves, and has failed on this: the fleet need not shun it
        if isinstance(error, InternalError):
            return attempt >= ATTEMPTS_BEFORE_LOST and self._peers.has_other(self)
        if not is_loss(error):
            return False
        if (
            self.lost is None
            and isinstance(error, ServerUnreachable)
            and attempt < ATTEMPTS_BEFORE_LOST
        ):
            return False
        self._peers.lose(self, error)
        return self._peers.has_other(self)

    def _watch(self) -> None:
        if self._watchdog is None or self._watchdog.done():
            self._watchdog = asyncio.get_running_loop().create_task(self._end_hanging())

    async def _end_hanging(self) -> None:
        """While requests are under way: ends them all once the oldest is old and the server doesn't
        say that it lives.

        A long query is no reason: the server's health is answered beside it. Where no other server
        could take over, nothing is ended, as a sleeping server may wake and answer.
        """
        while self._under_way:
            wait_s = min(self._under_way.values()) + self._limits.stall_s - perf_counter()
            if wait_s <= 0:
                if self._peers.has_other(self) and not await self._lives():
                    self._peers.lose(
                        self,
                        self._unreachable(f"no sign of life within {self._limits.stall_s:g} s"),
                    )
                    for scope in self._under_way:
                        if not scope.expired():
                            scope.reschedule(0.0)
                wait_s = self._limits.stall_s
            await asyncio.sleep(wait_s)

    async def _lives(self) -> bool:
        for _ in range(ATTEMPTS_BEFORE_LOST):
            try:
                await self.call_once(
                    "GET", "/health", timeout_s=self._limits.stall_s, watched=False
                )
            except ServerUnreachable:
                continue
            except SQLEnvError:
                pass  # any reply is a sign of life
            return True
        return False

    def _unreachable(self, why: str) -> ServerUnreachable:
        self._digest = None  # what answers here next may be another server
        remedy = "start it with 'python -m env_server', or give its right URL"
        return ServerUnreachable(
            f"can't reach the environment server at {self._name} ({why}); {remedy}", url=self.url
        )

    def _error_of(self, response: httpx.Response, body: Any) -> SQLEnvError:
        error = from_wire(body, response.status_code, self.url)
        error.details.setdefault("url", self.url)
        retry_after_s = parse_retry_after(response.headers.get("Retry-After"))
        if retry_after_s is not None:
            error.details.setdefault("retry_after_s", retry_after_s)
        return error
