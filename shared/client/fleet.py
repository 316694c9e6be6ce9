"""The environment servers of a client: where they are, which of them serve, and which of them plays
an episode."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from hashlib import blake2b
from weakref import WeakSet

import httpx

from shared.client.replica import ClientLimits, ClientStats, Replica
from shared.client.resolver import Address, Resolve, addresses_of, is_name
from shared.client.retry import RetryPolicy
from shared.errors import ServerUnreachable, SQLEnvError

log = logging.getLogger(__name__)

# first and longest wait between two looks at whether a lost server is back
RETURN_POLL_S = (0.1, 2.0)
SHORTEST_REFRESH_S = 0.5  # a name server is asked no more often, however many servers are lost


def normalise_urls(urls: str | Sequence[str]) -> list[str]:
    """The distinct URLs without a trailing slash, or `ServerUnreachable` naming one that is no HTTP
    URL."""
    normal: dict[str, None] = {}
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        if (
            parsed.scheme not in ("http", "https")
            or not parsed.host
            or parsed.query
            or parsed.fragment
        ):
            raise ServerUnreachable(f"not a server's URL: {url!r}; write it as http://HOST:PORT")
        normal[str(url).rstrip("/")] = None
    if not normal:
        raise ServerUnreachable("no server's URL was given; write it as http://HOST:PORT")
    return list(normal)


def score(url: str, episode_id: str) -> tuple[bytes, str]:
    """What orders the servers for an episode: the one of the highest score plays it."""
    return blake2b(f"{url}\n{episode_id}".encode(), digest_size=8).digest(), url


def pick_url(urls: Sequence[str], episode_id: str) -> str:
    """The URL that plays the episode, by rendezvous hash: the same in every process, whatever the
    order of `urls`.

    A URL that is added or removed moves only the episodes that it gains or loses.
    """
    return max(urls, key=lambda url: score(url, episode_id))


class Fleet:
    """Replicas by URL. With `resolve`, a URL's host name stands for all its addresses and is asked
    again every `refresh_s` seconds, and where a server is lost.

    A replica that fails is `lost` until its `/ready` answers; while another one serves, nothing new
    goes to it.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        http: httpx.AsyncClient,
        limits: ClientLimits,
        retry: RetryPolicy,
        stats: ClientStats,
        resolve: Resolve | None = None,
        refresh_s: float = 10.0,
    ) -> None:
        self._http, self._limits, self._retry, self._stats = http, limits, retry, stats
        self._resolve, self._refresh_s = resolve, refresh_s
        # URL -> what its name stood for when it was last resolved
        self._names: dict[str, list[Address]] = {}
        self._listed: dict[str, Replica] = {}
        self._made: WeakSet[Replica] = WeakSet()  # those that are no longer listed, too
        # lost ones, each with the task that awaits it
        self._returning: dict[Replica, asyncio.Task[None]] = {}
        self._refresher: asyncio.Task[None] | None = None
        self._opened = asyncio.Lock()
        self._look_again, self._back = asyncio.Event(), asyncio.Event()
        self._closed = False
        for url in normalise_urls(urls):
            if resolve is not None and is_name(url):
                self._names[url] = [Address(url)]
            else:
                self._listed[url] = self._replica(Address(url))
        self._plain = list(self._listed)
        self._list(self._addresses())

    @property
    def replicas(self) -> list[Replica]:
        """All that are known of, lost ones too."""
        return list(self._listed.values())

    async def open(self) -> None:
        """Resolves the names, once."""
        if self._names and self._refresher is None and not self._closed:
            async with self._opened:
                if self._refresher is None and not self._closed:
                    await self._refresh()
                    if self._closed:  # meanwhile
                        return
                    self._refresher = asyncio.create_task(self._refresh_forever())

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._returning.values(), *([self._refresher] if self._refresher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in list(self._made):
            await replica.close()
        self._returning.clear()

    def pick(self, episode_id: str, avoid: Collection[Replica] = ()) -> Replica | None:
        """The serving replica that plays the episode, of those not in `avoid`; None where there is
        none."""
        serving = [one for one in self._listed.values() if one.lost is None and one not in avoid]
        return max(serving, key=lambda one: score(one.url, episode_id), default=None)

    def home(self, episode_id: str) -> Replica:
        """`pick`, or the one that would play it if all were serving."""
        return self.pick(episode_id) or self._listed[pick_url(list(self._listed), episode_id)]

    def ranked(self, episode_id: str) -> list[Replica]:
        """All replicas, the episode's likeliest first."""
        return sorted(
            self._listed.values(),
            key=lambda one: (one.lost is None, score(one.url, episode_id)),
            reverse=True,
        )

    def has_other(self, replica: Replica) -> bool:
        """Whether a replica beside this one serves."""
        return any(one.lost is None and one is not replica for one in self._listed.values())

    @property
    def some_lost(self) -> bool:
        """Whether a replica is lost that may return."""
        return any(one.lost is not None for one in self._listed.values())

    def lose(self, replica: Replica, error: SQLEnvError) -> None:
        """Give `replica` up until it is ready again."""
        if self._closed or replica.lost is not None or (len(self._listed) == 1 and not self._names):
            return  # a single server is simply tried again
        replica.lost = error.message
        self._stats.servers_lost += 1
        log.warning("a server is lost for now, %d others serve: %s", self._serving(), error)
        self._returning[replica] = asyncio.create_task(self._await_return(replica))
        self._look_again.set()

    async def pause(self, wait_s: float) -> None:
        """So many seconds, or until a server has come back or was found."""
        try:
            async with asyncio.timeout(wait_s):
                await self._back.wait()
        except TimeoutError:
            pass

    def _serving(self) -> int:
        return sum(one.lost is None for one in self._listed.values())

    def _replica(self, address: Address) -> Replica:
        replica = Replica(address, self._http, self._limits, self._retry, self._stats, self)
        self._made.add(replica)
        return replica

    def _returned(self) -> None:
        """Wakes those who wait for a server."""
        self._back.set()
        self._back.clear()

    async def _await_return(self, replica: Replica) -> None:
        wait_s, longest_wait_s = RETURN_POLL_S
        try:
            while self._listed.get(replica.url) is replica:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_wait_s)
                try:
                    await replica.call_once(
                        "GET", "/ready", timeout_s=self._limits.stall_s, watched=False
                    )
                except SQLEnvError:
                    continue
                replica.lost = None
                log.warning("the server at %s is back", replica.url)
                self._returned()
                return
        finally:
            self._returning.pop(replica, None)

    # -- names
    # ------------------------------------------------------------------------------------------

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(SHORTEST_REFRESH_S)
            try:
                async with asyncio.timeout(max(0.0, self._refresh_s - SHORTEST_REFRESH_S)):
                    await self._look_again.wait()
            except TimeoutError:
                pass
            self._look_again.clear()
            await self._refresh()

    async def _refresh(self) -> None:
        """Resolves the names; one that can't be resolved stands for what it stood for."""
        assert self._resolve is not None
        for url, known in self._names.items():
            try:
                found = await addresses_of(url, self._resolve)
            except OSError as error:
                log.warning(
                    "can't resolve %s (%s): going on with %s",
                    url,
                    error,
                    ", ".join(map(str, known)),
                )
            else:
                self._names[url] = found or known
        if not self._closed:
            self._list(self._addresses())

    def _addresses(self) -> list[Address]:
        named = [address for addresses in self._names.values() for address in addresses]
        return [*(Address(url) for url in self._plain), *named]

    def _list(self, addresses: Sequence[Address]) -> None:
        """Makes these the replicas. One that is no longer listed finishes the episodes that it
        holds, while it can."""
        before = self._listed
        self._listed = {one.url: before.get(one.url) or self._replica(one) for one in addresses}
        if before and before.keys() != self._listed.keys():
            gone, come = before.keys() - self._listed.keys(), self._listed.keys() - before.keys()
            log.info(
                "servers: %d (gone: %s; come: %s)", len(self._listed), sorted(gone), sorted(come)
            )
            self._returned()
