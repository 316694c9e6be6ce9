"""One environment server as the client sees it: typed calls, batches, retries, and a watch over
requests that hang."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from shared import errors
from shared.client.auth import API_KEY_VARIABLE
from shared.client.batching import Batcher, closed_error, own_copy
from shared.client.diagnosis import causes, fault_of, reason_of
from shared.client.limits import ClientLimits
from shared.client.proxies import through_proxy
from shared.client.resolver import Address
from shared.client.retries import Attempts, Peers
from shared.client.shards import SERVER, Shards
from shared.models import ResetResult, ServerMetadata, SQLState, StepResult

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

# Requests without a batch form (close, state) under way; httpx slows down with each further one.
SINGLES_IN_FLIGHT = 4
DETOURS = 16  # servers, by chance some twice, that a reset tries behind a gateway for its digest
CLOSE_ATTEMPTS, CLOSE_TIMEOUT_S = 3, 5.0
MAX_REPLY_BYTES = 256 * 1024**2  # a server sends 16 MiB, unless its settings say otherwise
ATTEMPTS_BEFORE_LOST = 2  # one broken connection does not mean a lost server

# What httpx raises where a connection breaks, and what the layers below it sometimes let through.
_BROKEN = (
    httpx.RequestError,
    httpx.StreamError,
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)


def encode(request: Mapping[str, object]) -> bytes:
    """Return the fields that are not None as JSON; `InvalidRequest` if they can't be written."""
    try:
        return to_json({name: value for name, value in request.items() if value is not None})
    except ValueError as error:
        raise errors.InvalidRequest(f"can't be written as JSON: {error}") from error


def is_loss(error: errors.SQLEnvError) -> bool:
    """Return whether `error` means that the server does not serve, whatever it is asked."""
    from_a_gateway = "code" not in error.details and error.details.get("status") in (502, 503, 504)
    return isinstance(error, errors.ServerUnreachable | errors.NotReady) or from_a_gateway


class Replica:
    """One environment server, or a gateway to several. `lost` is why it is out of use, or None."""

    def __init__(self, address: Address, http: httpx.AsyncClient, peers: Peers) -> None:
        self.url = address.url
        self.lost: str | None = None
        self.silent_since: float | None = None  # when an outage began that was logged
        self._reached = False  # it answered once
        self._name = str(address)
        self._host = {} if address.host is None else {"Host": address.host}
        self._http, self._peers = http, peers
        self._limits, self._stats = peers.limits, peers.stats
        self._batchers: dict[tuple[str, int], Batcher] = {}  # by kind of item and shard
        self._shards = Shards()
        self.copies: list[tuple[str, str]] = []  # to close here: episode, and server of a gateway
        self._singles = asyncio.Semaphore(SINGLES_IN_FLIGHT)
        self.known_digest: str | None = None
        self._digest_error: errors.SQLEnvError | None = None  # of the last attempt that failed
        self._digest_lock = asyncio.Lock()
        self._closed = False

    @property
    def is_gateway(self) -> bool:
        return self._shards.count > 1

    def place(self, episode_id: str) -> tuple["Replica", str]:
        """Return this replica and, if it is a gateway, its name for the server of an episode."""
        return self, self._shards.server_of(episode_id)

    async def step(self, episode_id: str, item: bytes) -> StepResult:
        """Send an encoded `StepRequest` in a batch."""
        return self._parse(StepResult, await self._batch("steps", episode_id, item))

    async def reset(self, episode_id: str, item: bytes) -> ResetResult:
        """Send an encoded `ResetRequest` in a batch. Behind a gateway, the whole shard tries other
        servers if its own has another digest."""
        shard, detours, left = self._shards.of(episode_id), self._shards.detours, DETOURS
        while True:
            detour, left = detours[shard], left - 1
            try:
                return self._parse(ResetResult, await self._batch("resets", episode_id, item))
            except errors.DigestMismatch:
                if not self.is_gateway:
                    raise
                if detours[shard] == detour:  # nor has another episode of the shard turned it
                    detours[shard] += 1
                if not left:
                    raise

    async def state(self, episode_id: str) -> SQLState:
        path = f"/state?episode_id={quote(episode_id, safe='')}"
        async with self._singles:
            reply = await self.request("GET", path, headers=self._route(episode_id))
        return self._parse(SQLState, reply)

    async def metadata(self) -> ServerMetadata:
        return self._parse(ServerMetadata, await self.request("GET", "/metadata"))

    async def close_episode(self, episode_id: str) -> None:
        """End an episode, with few attempts: one that is not closed ends with its lease."""
        await self._delete(episode_id, self._route(episode_id))

    async def close_copies(self) -> None:
        """Remove the unfinished `copies` of episodes that have ended on other servers."""
        while self.copies and self.lost is None:
            episode_id, server = self.copies.pop()
            try:
                await self._delete(episode_id, {SERVER: server}, "?moved=1")
            except errors.SQLEnvError:
                if self.lost is not None:  # else there is no copy
                    self.copies.append((episode_id, server))

    async def _delete(self, episode_id: str, headers: Mapping[str, str], query: str = "") -> None:
        few = min(CLOSE_ATTEMPTS, self._limits.max_attempts)
        limits = replace(self._limits, max_attempts=few, patience_s=0.0)
        path = f"/episodes/{quote(episode_id, safe='')}{query}"
        async with self._singles:
            await self.request("DELETE", path, limits, headers=headers, timeout_s=CLOSE_TIMEOUT_S)

    async def digest(self) -> str:
        """Return the digest of this server's data and rules, fetched at first contact and after a
        lost connection. Calls that wait for one that fails fail with it."""
        failed = self._digest_error
        async with self._digest_lock:
            if self.known_digest is None:
                if self._digest_error is not None and self._digest_error is not failed:
                    raise own_copy(self._digest_error)
                try:
                    digest = (await self.metadata()).digest
                except errors.SQLEnvError as error:
                    self._digest_error = error
                    raise
                self._shards.recount()
                self.known_digest = digest
            return self.known_digest

    async def request(
        self, method: str, path: str, limits: ClientLimits | None = None, **options: Any
    ) -> object:
        """Return the JSON reply to one request, retried as the limits allow, but not while another
        replica serves and this one does not."""
        attempts = Attempts(self._peers, limits)
        while True:
            try:
                if self.lost is not None and self._peers.others(self):
                    raise errors.ServerUnreachable(self.lost, url=self.url)
                return await self.request_once(method, path, **options)
            except errors.SQLEnvError as error:
                if self._gives_way(attempts.count, error):
                    raise
                await attempts.wait(error)

    async def _replied(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        """Return a reply and its body, of which at most `MAX_REPLY_BYTES` are read."""
        async with self._http.stream(method, url, content=content, headers=headers) as response:
            reply = bytearray()
            async for piece in response.aiter_bytes():
                reply += piece
                if len(reply) > MAX_REPLY_BYTES:
                    problem = f"{self._name} replied with over {MAX_REPLY_BYTES:,} bytes"
                    raise errors.WrongAddress(
                        f"{problem}: is it an environment server?", url=self.url
                    )
            return response, bytes(reply)

    async def request_once(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = math.inf,
        watched: bool = True,
    ) -> object:
        """Send one request, once. Every failure of HTTP becomes a `SQLEnvError` here. A `watched`
        request is ended if the server hangs and another one serves."""
        if self._closed:
            raise closed_error()
        self._stats.requests += 1
        began = perf_counter()
        kind = {} if content is None else {"Content-Type": "application/json"}
        headers = {**self._host, **kind, **(headers or {})}
        scope = asyncio.timeout(min(timeout_s, self._limits.timeout_s))
        try:
            async with scope, self._watching(scope) if watched else nullcontext():
                url = self.url + path
                response, reply = await self._replied(method, url, content, headers)
        except TimeoutError as error:
            raise self._unreachable(f"no reply within {perf_counter() - began:.3g} s") from error
        except _BROKEN as error:
            if not self._reached and (fault := await fault_of(self.url, error)):
                message = f"no environment server answers at {self._name}: {fault}"
                raise errors.WrongAddress(message, url=self.url) from error
            unreachable = self._unreachable(reason_of(error))
            if not self._reached:
                # nothing listens at the address, or a firewall says so
                refused = any(isinstance(one, ConnectionRefusedError) for one in causes(error))
                unreachable.details |= {"first": True, "refused": refused}
            raise unreachable from error
        if response.has_redirect_location:
            message = f"{self._name} redirects to {response.headers['Location']}: write that URL"
            raise errors.WrongAddress(message, url=self.url)
        try:
            body = from_json(reply) if reply else None
        except ValueError:
            body = None
        if response.is_success and (body is not None or response.status_code == 204):
            self._reached = True
            self._shards.note(headers, response.headers)
            if self.silent_since is not None:
                self._peers.answered(self)
            return body
        failure = errors.from_wire(body, response.status_code, self.url)
        failure.details.setdefault("url", self.url)
        if isinstance(failure, errors.Unauthorized):
            remedy = f"set {API_KEY_VARIABLE}, or pass api_key=, with a key of that server"
            problem = f"{self.url}{failure.message.partition('; send')[0]}; {remedy}"
            failure = errors.Unauthorized(problem, **failure.details)
        with suppress(ValueError):  # without a number of seconds
            retry_after_s = float(response.headers.get("Retry-After", ""))
            failure.details.setdefault("retry_after_s", retry_after_s)
        raise failure

    async def close(self) -> None:
        self._closed = True
        for batcher in list(self._batchers.values()):
            await batcher.close()

    def _route(self, episode_id: str) -> dict[str, str]:
        return self._shards.route(self._shards.of(episode_id))

    def _batch(self, key: str, episode_id: str, item: bytes) -> asyncio.Future[object]:
        """Return the future of an item's reply: of one of the "steps" or "resets"."""
        shard, limits = self._shards.of(episode_id), self._limits
        batcher = self._batchers.get((key, shard))
        if batcher is None:
            batcher = self._batchers[key, shard] = Batcher(
                partial(self._send_batch, key, shard),
                max_items=limits.max_batch,
                max_bytes=limits.max_batch_bytes,
                max_in_flight=1 if self.is_gateway else limits.batches_in_flight,
            )
        return batcher.submit(item)

    async def _send_batch(self, key: str, shard: int, items: Sequence[bytes]) -> list[object]:
        """Return a reply or `{"error": ...}` per item; halve a batch that the server finds too
        large."""
        self._stats.batches += 1
        content = b'{"%b":[%b]}' % (key.encode(), b",".join(items))
        path = f"/{key.removesuffix('s')}_batch"
        try:
            headers = self._shards.route(shard)
            body = await self.request("POST", path, content=content, headers=headers)
        except errors.BodyTooLarge as error:
            if len(items) == 1:
                return [error.to_wire()]
            middle = len(items) // 2
            first = await self._send_batch(key, shard, items[:middle])
            return first + await self._send_batch(key, shard, items[middle:])
        results = body.get("results") if isinstance(body, dict) else None
        if not isinstance(results, list) or len(results) != len(items):
            raise errors.SQLEnvError(
                f"{self.url}{path} did not answer each of {len(items)} items;"
                " client/server version mismatch?"
            )
        return results

    def _parse(self, model: type[M], reply: object) -> M:
        """Return a reply as `model`, or raise the error that it holds."""
        if isinstance(reply, dict) and "error" in reply:
            raise errors.from_wire(reply, source=self.url)
        try:
            return model.model_validate(reply)
        except ValidationError as error:
            problem = f"not a {model.__name__}: {errors.first_problem(error, 'the reply')}"
            remedy = "another program, or client/server version mismatch?"
            raise errors.SQLEnvError(f"{self.url} answered {problem}; {remedy}") from error

    def _gives_way(self, attempt: int, error: errors.SQLEnvError) -> bool:
        """Return whether another replica should take over after attempt number `attempt` failed."""
        others_serve = self._peers.others(self) > 0
        if self._closed:
            return False
        if isinstance(error, errors.InternalError):  # the server answers, so it is not lost
            return attempt >= ATTEMPTS_BEFORE_LOST and others_serve
        if isinstance(error, errors.WrongAddress) and not others_serve:  # nothing is waited for
            return False
        broke_once = errors.is_retryable(error) and attempt < ATTEMPTS_BEFORE_LOST
        broke_once &= isinstance(error, errors.ServerUnreachable)
        if not is_loss(error) or (self.lost is None and broke_once):
            return False
        self._peers.lose(self, error)
        return others_serve

    @asynccontextmanager
    async def _watching(self, request: asyncio.Timeout) -> AsyncIterator[None]:
        """Watch a request that takes longer than `stall_s`. No task outlives the block."""
        watch: list[asyncio.Task[None]] = []

        def begin() -> None:
            watch.append(asyncio.create_task(self._end_hanging(request)))

        timer = asyncio.get_running_loop().call_later(self._limits.stall_s, begin)
        try:
            yield
        finally:
            timer.cancel()
            for task in watch:
                task.cancel()
                await asyncio.wait(watch)

    async def _end_hanging(self, request: asyncio.Timeout) -> None:
        """End a request while the server does not answer `/health` either.

        A long query is not taken for a hang, as the server answers /health meanwhile. If no other
        server could take over, nothing is ended: a stopped server may continue and answer.
        """
        stall_s = self._limits.stall_s
        while not request.expired():
            if self._peers.others(self) and not (self.lost is None and await self._is_alive()):
                error = self._unreachable(f"no answer from /health within {stall_s:g} s")
                self._peers.lose(self, error)
                if not request.expired():
                    request.reschedule(0.0)
                return
            await asyncio.sleep(stall_s)

    async def _is_alive(self) -> bool:
        try:
            limit_s = self._limits.stall_s
            await self.request_once("GET", "/health", timeout_s=limit_s, watched=False)
        except errors.SQLEnvError as error:
            return not isinstance(error, errors.ServerUnreachable)  # any reply will do
        return True

    def _unreachable(self, why: str) -> errors.ServerUnreachable:
        self.known_digest = None  # another server may answer here next
        proxy = "" if self._host else through_proxy(self.url)  # a resolved name has none
        return errors.ServerUnreachable(
            f"can't reach the environment server at {self._name}{proxy} ({why}); start it with"
            " 'python -m env_server', or correct the URL",
            url=self.url,
        )
