"""The environment servers of a client: where they are, which of them serve, and which of them plays
an episode."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from hashlib import blake2b
from time import monotonic
from weakref import WeakSet

import httpx

from shared.client.limits import ClientLimits, ClientStats
from shared.client.replica import Replica, is_loss
from shared.client.resolver import Address, Resolve, addresses_of, is_name
from shared.errors import ServerUnreachable, SQLEnvError

log = logging.getLogger(__name__)

RETURN_POLL_S = (0.1, 2.0)  # first and longest wait between two looks at a lost server
SHORTEST_REFRESH_S = 0.5  # between two questions to a name server, however many servers are lost
QUIET_S = 30.0  # between two lines of the log about the same server and kind of error


def normalise_urls(urls: str | Sequence[str]) -> list[str]:
    """Return the distinct URLs without trailing slash; `ServerUnreachable` names an invalid one."""
    normal: dict[str, None] = {}
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        valid = parsed.scheme in ("http", "https") and parsed.host
        if not valid or parsed.query or parsed.fragment:
            raise ServerUnreachable(f"not a server's URL: {url!r}; write it as http://HOST:PORT")
        normal[str(url).rstrip("/")] = None
    if not normal:
        raise ServerUnreachable("no server's URL was given; write it as http://HOST:PORT")
    return list(normal)


def score(url: str, episode_id: str) -> tuple[bytes, str]:
    """Return a URL's rendezvous hash for an episode: the highest of all URLs plays it.

    It is the same in every process. A URL that is added or removed moves only the episodes that it
    gains or loses.
    """
    return blake2b(f"{url}\n{episode_id}".encode(), digest_size=8).digest(), url


class Fleet:
    """The replicas of a client, by URL.

    With `resolve`, a URL's host name stands for all its addresses. It is resolved again every
    `refresh_s` seconds, and when a server is lost. A replica that fails is out of use until its
    /ready answers.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        http: httpx.AsyncClient,
        limits: ClientLimits,
        stats: ClientStats,
        resolve: Resolve | None = None,
    ) -> None:
        self._http, self._limits, self._stats, self._resolve = http, limits, stats, resolve
        self._outages: dict[str, float] = {}  # URL -> when an outage began that was logged
        self._logged: dict[tuple[str, str], float] = {}  # URL, kind of error -> time of its line
        self._names: dict[str, list[Address]] = {}  # URL -> what its name stood for last
        self._listed: dict[str, Replica] = {}
        self._all: WeakSet[Replica] = WeakSet()  # those that are no longer listed, too
        self._returning: dict[Replica, asyncio.Task[None]] = {}  # lost -> the task that awaits it
        self._refresher: asyncio.Task[None] | None = None
        self._open_lock = asyncio.Lock()
        self._look_again, self._returned = asyncio.Event(), asyncio.Event()
        self._closed = False
        urls = normalise_urls(urls)
        if resolve is not None:
            self._names = {url: [Address(url)] for url in urls if is_name(url)}
        self._plain = [url for url in urls if url not in self._names]
        self._list_replicas()

    @property
    def replicas(self) -> list[Replica]:
        """All known replicas, lost ones too."""
        return list(self._listed.values())

    async def open(self) -> list[Replica]:
        """Resolve the names, at the first call; return all replicas."""
        if self._names and self._refresher is None and not self._closed:
            async with self._open_lock:
                if self._refresher is None:
                    await self._refresh()
                    if not self._closed:
                        self._refresher = asyncio.create_task(self._refresh_forever())
        return self.replicas

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._returning.values(), *([self._refresher] if self._refresher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in list(self._all):
            await replica.close()
        self._returning.clear()

    def pick(self, episode_id: str, avoid: Collection[Replica] = ()) -> Replica | None:
        """Return the serving replica outside `avoid` that plays an episode; None without any."""
        serving = (one for one in self._serving() if one not in avoid)
        return max(serving, key=lambda one: score(one.url, episode_id), default=None)

    def ranked(self, episode_id: str) -> list[Replica]:
        """Return all replicas: serving ones before lost ones, and each by `score`."""
        return sorted(
            self._listed.values(),
            key=lambda one: (one.lost is None, score(one.url, episode_id)),
            reverse=True,
        )

    def has_other(self, replica: Replica) -> bool:
        """Return whether another replica than this one serves."""
        return any(one is not replica for one in self._serving())

    @property
    def some_lost(self) -> bool:
        """Whether a replica is lost that may return."""
        return len(self._serving()) < len(self._listed)

    def lose(self, replica: Replica, error: SQLEnvError) -> None:
        """Take `replica` out of use until it is ready again."""
        if self._closed or replica.lost is not None:
            return
        replica.silent = True
        others = len([one for one in self._serving() if one is not replica])
        if self._may_log(replica.url, "lost"):
            self._outages[replica.url] = monotonic()
            remedy = f"{others} others serve" if others else "calls wait for it"
            log.warning("an environment server is lost, %s: %s", remedy, error)
        if len(self._listed) == 1 and not self._names:  # a single server is simply tried again
            return
        replica.lost = error.message
        self._stats.servers_lost += 1
        self._returning[replica] = asyncio.create_task(self._await_return(replica))
        self._look_again.set()

    def answered(self, replica: Replica) -> None:
        """Note that `replica` answered a request."""
        if replica.lost is None:
            replica.silent = False
            if (since := self._outages.pop(replica.url, None)) is not None:
                outage_s, waited = monotonic() - since, self._stats.calls_waiting
                message = "the environment server at %s is back after %.1f s; %d calls waited"
                log.warning(message, replica.url, outage_s, waited)

    def report(self, error: SQLEnvError) -> None:
        """Note that a call is repeated because of `error`; a lost server has its own line."""
        if not is_loss(error) and self._may_log(str(error.details.get("url", "")), error.code):
            log.warning("calls are repeated until they succeed: %s", error)

    async def pause(self, wait_s: float) -> None:
        """Wait for `wait_s` seconds, or until a server has returned or was added."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._returned.wait()

    def _serving(self) -> list[Replica]:
        return [one for one in self._listed.values() if one.lost is None]

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
        wait_s, longest_wait_s = RETURN_POLL_S
        try:
            while self._listed.get(replica.url) is replica:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_wait_s)
                with suppress(SQLEnvError):
                    limit_s = self._limits.stall_s
                    await replica.request_once("GET", "/ready", timeout_s=limit_s, watched=False)
                    replica.lost = None
                    self.answered(replica)
                    self._notify_returned()
                    return
        finally:
            self._returning.pop(replica, None)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(SHORTEST_REFRESH_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._limits.refresh_s - SHORTEST_REFRESH_S)):
                    await self._look_again.wait()
            self._look_again.clear()
            await self._refresh()

    async def _refresh(self) -> None:
        """Resolve the names. One that can't be resolved keeps its last addresses."""
        assert self._resolve is not None
        for url, known in self._names.items():
            try:
                self._names[url] = await addresses_of(url, self._resolve) or known
            except OSError as error:
                addresses = ", ".join(map(str, known))
                log.warning("can't resolve %s (%s): still using %s", url, error, addresses)
        if not self._closed:
            self._list_replicas()

    def _list_replicas(self) -> None:
        """List a replica per address. One that is no longer listed finishes its episodes while it
        serves."""
        addresses = [Address(url) for url in self._plain]
        addresses += [address for named in self._names.values() for address in named]
        before, self._listed = self._listed, {}
        for address in addresses:
            replica = before.get(address.url)
            if replica is None:
                replica = Replica(address, self._http, self._limits, self._stats, self)
                self._all.add(replica)
            self._listed[address.url] = replica
        if before and before.keys() != self._listed.keys():
            removed = sorted(before.keys() - self._listed.keys())
            added = sorted(self._listed.keys() - before.keys())
            log.info("servers: %d (removed: %s; added: %s)", len(self._listed), removed, added)
            self._notify_returned()
