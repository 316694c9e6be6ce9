"""The environment servers of a client: where they are, which of them serve, and which of them plays
an episode."""

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from time import monotonic, perf_counter
from typing import Any
from weakref import WeakSet

import httpx

from shared.client.limits import ClientLimits, ClientStats
from shared.client.replica import Replica, is_loss
from shared.client.resolver import Address, Resolve, addresses_of, is_name
from shared.errors import ServerUnreachable, SQLEnvError, WrongAddress, is_retryable

log = logging.getLogger(__name__)

RETURN_POLL_S = 0.5  # between two looks at a lost server
SHORTEST_REFRESH_S = 0.5  # between two questions to a name server, however many servers are lost
READY_TIMEOUT_S, READY_POLL_S = 5.0, 0.2  # of one /ready, and between two of them
REPORT_AFTER_S = 9.0  # of a wait
QUIET_S = 30.0  # between two lines of the log about the same server and kind of error


def normalise_urls(urls: str | Sequence[str]) -> list[str]:
    """Return the distinct URLs without trailing slash; `WrongAddress` names an invalid one."""
    normal: dict[str, None] = {}
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        valid = parsed.scheme in ("http", "https") and parsed.host
        if not valid or parsed.query or parsed.fragment:
            raise WrongAddress(f"not a server's URL: {url!r}; write it as http://HOST:PORT")
        normal[str(url).rstrip("/")] = None
    if not normal:
        raise WrongAddress("no server's URL was given; write it as http://HOST:PORT")
    return list(normal)


def score(url: str, episode_id: str) -> tuple[bytes, str]:
    """Return a URL's rendezvous hash for an episode: the highest of all URLs plays it."""
    return blake2b(f"{url}\n{episode_id}".encode(), digest_size=8).digest(), url


class Fleet:
    """The replicas of a client, by URL. One that fails is out of use until its /ready answers.

    With `resolve`, a URL's host name stands for all its addresses. It is resolved again every
    `refresh_s` seconds, and when a server is lost.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        http: httpx.AsyncClient,
        limits: ClientLimits,
        stats: ClientStats,
        resolve: Resolve | None,
    ) -> None:
        self._http, self.limits, self.stats, self._resolve = http, limits, stats, resolve
        self._logged: dict[tuple[str, str], float] = {}  # URL, kind of error -> time of its line
        # URL -> what it stands for, which changes if its host is a name
        self._addresses = {url: [Address(url)] for url in normalise_urls(urls)}
        self._named = [] if resolve is None else [url for url in self._addresses if is_name(url)]
        self._listed: dict[str, Replica] = {}
        self._all: WeakSet[Replica] = WeakSet()  # those that are no longer listed, too
        self._tasks: set[asyncio.Task[None]] = set()  # which resolve names and await lost replicas
        self._resolved, self._open_lock = False, asyncio.Lock()
        self._look_again, self._returned = asyncio.Event(), asyncio.Event()
        self._closed = False
        self._list_replicas()

    @property
    def replicas(self) -> list[Replica]:
        """All known replicas, lost ones too."""
        return list(self._listed.values())

    async def open(self) -> list[Replica]:
        """Resolve the names, at the first call; return all replicas."""
        if self._named and not self._resolved:
            async with self._open_lock:
                if not self._resolved:
                    await self._refresh()
                    self._resolved = True
                    self._start(self._refresh_forever())
        return self.replicas

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for replica in list(self._all):
            await replica.close()

    def ranked(self, episode_id: str) -> list[Replica]:
        """Return all replicas: serving ones before lost ones, and each by `score`."""
        return sorted(
            self._listed.values(),
            key=lambda one: (one.lost is None, score(one.url, episode_id)),
            reverse=True,
        )

    def others(self, replica: Replica) -> int:
        """Return how many other replicas serve."""
        return sum(one.lost is None and one is not replica for one in self._listed.values())

    def lose(self, replica: Replica, error: SQLEnvError) -> None:
        """Take `replica` out of use until it is ready again."""
        if self._closed or replica.lost is not None:
            return
        if replica.silent_since is None and self._may_log(replica.url, "lost"):
            replica.silent_since = monotonic()
            others = self.others(replica)
            remedy = f"others that serve: {others}" if others else "calls wait for it"
            log.warning("an environment server is lost, %s: %s", remedy, error)
        if len(self._listed) == 1 and not self._named:  # a single server is simply tried again
            return
        replica.lost = error.message
        self.stats.servers_lost += 1
        self._start(self._await_return(replica))
        self._look_again.set()

    def answered(self, replica: Replica) -> None:
        """Note that `replica` answered a request after an outage that was logged."""
        if replica.silent_since is not None:
            outage_s, waited = monotonic() - replica.silent_since, self.stats.calls_waiting
            replica.silent_since = None
            message = "the environment server at %s is back after %.1f s; %d calls waited"
            log.warning(message, replica.url, outage_s, waited)

    def report(self, error: SQLEnvError) -> None:
        """Note that a call is repeated because of `error`; a lost server has its own line."""
        if not is_loss(error) and self._may_log(str(error.details.get("url", "")), error.code):
            log.warning("calls are repeated until they succeed: %s", error)

    def close_copies(self, episode_id: str, places: Iterable[tuple[Replica, str]]) -> None:
        """Close what an ended episode left where it was played before, once that serves."""
        for replica, server in places:
            replica.copies.append((episode_id, server))
            self._start(replica.close_copies())

    async def pause(self, wait_s: float) -> None:
        """Wait for `wait_s` seconds, or until a server has returned or was added."""
        await _wait(self._returned, wait_s)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._closed:
            task.cancel()

    def _may_log(self, url: str, kind: str) -> bool:
        """Return whether to log a line: calls that fail alike are not logged one by one."""
        now = monotonic()
        if now - self._logged.get((url, kind), -QUIET_S) < QUIET_S:
            return False
        self._logged[url, kind] = now
        return True

    def _notify_returned(self) -> None:
        self._returned.set()
        self._returned.clear()

    async def _await_return(self, replica: Replica) -> None:
        while replica.lost is not None and self._listed.get(replica.url) is replica:
            await asyncio.sleep(RETURN_POLL_S)
            with suppress(SQLEnvError):
                limit_s = self.limits.stall_s
                await replica.request_once("GET", "/ready", timeout_s=limit_s, watched=False)
                replica.lost = None
                self._notify_returned()
                await replica.close_copies()

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(SHORTEST_REFRESH_S)
            await _wait(self._look_again, self.limits.refresh_s - SHORTEST_REFRESH_S)
            self._look_again.clear()
            await self._refresh()

    async def _refresh(self) -> None:
        """Resolve the names. One that can't be resolved keeps its last addresses."""
        assert self._resolve is not None
        for url in self._named:
            known = self._addresses[url]
            try:
                self._addresses[url] = await addresses_of(url, self._resolve) or known
            except OSError as error:
                addresses = ", ".join(map(str, known))
                log.warning("can't resolve %s (%s): still using %s", url, error, addresses)
        if not self._closed:
            self._list_replicas()

    def _list_replicas(self) -> None:
        """List a replica per address. One that is no longer listed finishes its episodes while it
        serves."""
        before, self._listed = self._listed, {}
        for address in chain.from_iterable(self._addresses.values()):
            replica = before.get(address.url)
            if replica is None:
                replica = Replica(address, self._http, self)
                self._all.add(replica)
            self._listed[address.url] = replica
        if before and before.keys() != self._listed.keys():
            log.info("the environment servers are now %s", ", ".join(self._listed))
            self._notify_returned()


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), limit_s)


async def until_ready(replica: Replica, deadline: float, timeout_s: float) -> None:
    """Return when a server is ready; `ServerUnreachable` if it is not at `deadline`, `timeout_s`
    after the begin of the wait, in seconds of `perf_counter`."""
    report_at = deadline - timeout_s + REPORT_AFTER_S
    while True:
        left_s = max(0.1, deadline - perf_counter())
        try:
            await replica.request_once("GET", "/ready", timeout_s=min(READY_TIMEOUT_S, left_s))
            return
        except SQLEnvError as error:
            if not is_retryable(error):
                raise
            if perf_counter() + READY_POLL_S > deadline:
                problem = f"not ready after {timeout_s:.3g} s: {error}"
                details = error.details | {"url": replica.url}
                raise ServerUnreachable(problem, **details) from error
            if perf_counter() > report_at:
                report_at = math.inf
                log.warning("waiting up to %.3g s: %s", timeout_s, error)
        await asyncio.sleep(READY_POLL_S)
