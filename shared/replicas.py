"""The environment servers as the client sees them: one `Replica` a URL, and which of them plays an episode."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import httpx
from pydantic_core import from_json

from shared.batching import Batcher, closed_error
from shared.errors import BodyTooLarge, InvalidRequest, ServerUnreachable, SQLEnvError, from_wire
from shared.retry import RetryPolicy, parse_retry_after, with_retries

CONNECT_TIMEOUT_S = 5.0  # a live host accepts within milliseconds; a dead one should not use up the whole timeout
SINGLES_IN_FLIGHT = 4  # requests that have no batch form (close, state); httpx slows down with each further one

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))  # made once: half of dumps' cost


@dataclass
class ClientStats:
    """What a client has done so far. Rates and shares are the reader's to compute."""

    requests: int = 0  # HTTP requests sent, retries included
    batches: int = 0  # of them, /step_batch and /reset_batch
    steps: int = 0  # steps answered
    retries: int = 0  # requests sent again, and batch items sent again
    rebuilds: int = 0  # episodes rebuilt by replay
    wait_s: float = 0.0  # wall seconds in which at least one call waited for a server (concurrent waits count once)


@dataclass(frozen=True)
class ClientLimits:
    """How a client shares out its requests."""

    timeout_s: float = 60.0  # for one request, from connecting to the last byte
    max_batch: int = 256  # items
    max_batch_bytes: int = 512 * 1024
    batches_in_flight: int = 2  # of each kind, per replica

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s is {self.timeout_s}; it must be over 0")
        if min(self.max_batch, self.batches_in_flight) < 1:
            raise ValueError("max_batch and batches_in_flight must be at least 1")


def normalise_urls(urls: str | Sequence[str]) -> list[str]:
    """The distinct URLs without a trailing slash, or `ServerUnreachable` naming one that is no HTTP URL."""
    normal: dict[str, None] = {}
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
            raise ServerUnreachable(f"not a server's URL: {url!r}; write it as http://HOST:PORT")
        normal[str(url).rstrip("/")] = None
    if not normal:
        raise ServerUnreachable("no server's URL was given; write it as http://HOST:PORT")
    return list(normal)


def pick_url(urls: Sequence[str], episode_id: str) -> str:
    """The URL that plays the episode, by rendezvous hash: the same in every process, whatever the order of `urls`.

    A URL that is added or removed moves only the episodes that it gains or loses.
    """
    return max(urls, key=lambda url: (blake2b(f"{url}\n{episode_id}".encode(), digest_size=8).digest(), url))


def encode(body: Mapping[str, Any]) -> bytes:
    """`body` as JSON, or `InvalidRequest` saying what in it is none (a lone surrogate too, which no server reads)."""
    try:
        return _JSON.encode(body).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"can't be written as JSON: {error}") from error


class Replica:
    """One environment server: calls that retry, and batches of steps and resets."""

    def __init__(
        self, url: str, http: httpx.AsyncClient, limits: ClientLimits, retry: RetryPolicy, stats: ClientStats
    ) -> None:
        self.url = url
        self._http = http
        self._limits = limits
        self._retry = retry
        self._stats = stats
        self._steps = self._batcher("/step_batch", "steps")
        self._resets = self._batcher("/reset_batch", "resets")
        self._singles = asyncio.Semaphore(SINGLES_IN_FLIGHT)
        self._digest: str | None = None
        self._digest_lock = asyncio.Lock()
        self._closed = False

    async def step(self, item: bytes) -> Any:
        """The reply to a StepRequest, sent in a batch."""
        return await self._in_batch(self._steps, item)

    async def reset(self, item: bytes) -> Any:
        """The reply to a ResetRequest, sent in a batch."""
        return await self._in_batch(self._resets, item)

    async def close_episode(self, episode_id: str) -> None:
        async with self._singles:
            await self.call("DELETE", f"/episodes/{quote(episode_id, safe='')}")

    async def state(self, episode_id: str) -> Any:
        async with self._singles:
            return await self.call("GET", "/state", params={"episode_id": episode_id})

    async def verdicts(self, episode_id: str) -> Any:
        async with self._singles:
            return await self.call("GET", f"/operator/verdicts/{quote(episode_id, safe='')}")

    async def digest(self) -> str:
        """The digest of this server's data and rules, asked at first contact and after a lost connection."""
        if self._digest is None:
            async with self._digest_lock:
                if self._digest is None:
                    metadata = await self.call("GET", "/metadata")
                    self._digest = str(metadata.get("digest", "")) if isinstance(metadata, dict) else ""
        return self._digest

    def forget_digest(self) -> None:
        self._digest = None

    async def call(self, method: str, path: str, **request: Any) -> Any:
        """The JSON reply to one request, with retries; an error reply or none is raised as a `SQLEnvError`."""
        return await with_retries(lambda: self.call_once(method, path, **request), self._retry, self._count_retry)

    async def call_once(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float = math.inf,
    ) -> Any:
        """`call` without retries. The one place where HTTP's failures become errors of our tree."""
        if self._closed:
            raise closed_error()
        self._stats.requests += 1
        timeout_s = min(timeout_s, self._limits.timeout_s)
        headers = None if content is None else {"Content-Type": "application/json"}
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._http.request(
                    method, self.url + path, content=content, params=params, headers=headers
                )
        except TimeoutError as error:
            raise self._unreachable(f"no reply within {timeout_s:.3g} s") from error
        except httpx.RequestError as error:
            raise self._unreachable(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
        try:
            body = from_json(response.content) if response.content else None
        except ValueError:
            body = None
        if response.is_success and (body is not None or response.status_code == 204):
            return body
        raise self._error_of(response, body)

    async def close(self) -> None:
        self._closed = True
        await self._steps.close()
        await self._resets.close()

    def _batcher(self, path: str, key: str) -> Batcher:
        limits = self._limits
        return Batcher(
            partial(self._send_batch, path, key),
            max_items=limits.max_batch,
            max_bytes=limits.max_batch_bytes,
            max_in_flight=limits.batches_in_flight,
        )

    async def _in_batch(self, batcher: Batcher, item: bytes) -> Any:
        async def once() -> Any:
            reply = await batcher.submit(item)
            if isinstance(reply, dict) and "error" in reply:
                raise from_wire(reply, source=self.url)
            return reply

        return await with_retries(once, self._retry, self._count_retry)

    async def _send_batch(self, path: str, key: str, items: Sequence[bytes]) -> list[Any]:
        """One reply or `{"error": ...}` an item. A batch that is too large for the server goes in halves."""
        self._stats.batches += 1
        try:
            body = await self.call("POST", path, content=b'{"%b":[%b]}' % (key.encode(), b",".join(items)))
        except BodyTooLarge as error:
            if len(items) == 1:
                return [error.to_wire()]
            middle = len(items) // 2
            first = await self._send_batch(path, key, items[:middle])
            return first + await self._send_batch(path, key, items[middle:])
        results = body.get("results") if isinstance(body, dict) else None
        if not isinstance(results, list) or len(results) != len(items):
            raise SQLEnvError(f"{self.url}{path} did not answer each of {len(items)} items; is its version ours?")
        return results

    def _count_retry(self) -> None:
        self._stats.retries += 1

    def _unreachable(self, why: str) -> ServerUnreachable:
        self._digest = None  # what answers here next may be another server
        remedy = "start it with 'python -m env_server', or give its right URL"
        return ServerUnreachable(f"can't reach the environment server at {self.url} ({why}); {remedy}", url=self.url)

    def _error_of(self, response: httpx.Response, body: Any) -> SQLEnvError:
        error = from_wire(body, response.status_code, self.url)
        error.details.setdefault("url", self.url)
        retry_after_s = parse_retry_after(response.headers.get("Retry-After"))
        if retry_after_s is not None:
            error.details.setdefault("retry_after_s", retry_after_s)
        return error
