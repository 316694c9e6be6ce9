"""A service's name that stands for several servers, and a gateway's single URL; from the name to
the servers' addresses."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from shared.client import SQLEnvClient
from shared.client.resolver import Address, addresses_of, system_addresses
from shared.errors import DigestMismatch, ServerUnreachable, SQLEnvError
from tests.conftest import until
from tests.shared.client.fake_server import (
    HOSTS,
    IDS,
    STALL_S,
    URL,
    URLS,
    FakeGateway,
    FakeServer,
    Routes,
    begin,
    client_of,
    placed_on,
    playing,
    pooled,
    turn,
)

LATER = [f"later-{i}" for i in range(30)]
pytestmark = pytest.mark.filterwarnings("error")


# -- names


class NameServer:
    """Answers with `hosts`; raises if `broken`."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts, self.asked, self.broken = hosts, 0, False

    async def __call__(self, host: str, port: int) -> list[str]:
        assert (host, port) == ("env-server", 8000)
        self.asked += 1
        if self.broken:
            raise OSError("no such name")
        return self.hosts

    async def seen(self) -> None:
        """Wait until it was asked twice more, so the client uses its current answer."""
        before = self.asked
        await until(lambda: self.asked >= before + 2)


@asynccontextmanager
async def service(
    hosts: int, **options: Any
) -> AsyncIterator[tuple[list[FakeServer], NameServer, SQLEnvClient]]:
    servers, names = [FakeServer() for _ in HOSTS], NameServer(list(HOSTS[:hosts]))
    routes = Routes(dict(zip(HOSTS, servers, strict=True)))
    options = {"resolve": names, "refresh_s": 0.5, "stall_s": STALL_S} | options
    async with client_of("http://env-server:8000", routes, **options) as client:
        await begin(client)
        yield servers, names, client


async def test_a_client_that_is_closed_while_it_resolves_leaves_nothing_behind():
    asked, answer, before = asyncio.Event(), asyncio.Event(), asyncio.all_tasks()

    async def slow(host: str, port: int) -> list[str]:
        asked.set()
        await answer.wait()
        return list(HOSTS)

    client = client_of("http://env-server:8000", Routes({}), resolve=slow)
    async with client:
        reset = asyncio.create_task(client.reset(seed=1))
        await asked.wait()
    answer.set()
    with pytest.raises(ServerUnreachable, match="this client was closed"):
        await reset
    assert asyncio.all_tasks() == before


async def test_a_services_name_stands_for_its_replicas():
    async with service(3) as (servers, _, client):
        await turn(client, 0)
        assert pooled(servers) == [set(placed_on(url)) for url in URLS]
        assert {headers["host"] for headers in servers[0].headers} == {"env-server:8000"}


async def test_an_added_replica_gets_its_share_of_new_episodes_only():
    async with service(2) as (servers, names, client):
        names.hosts = list(HOSTS)
        await names.seen()
        await turn(client, 0)
        assert servers[2].episodes == {}
        assert client.stats.rebuilds == 0
        await begin(client, LATER)
        assert set(servers[2].episodes) == set(placed_on(URLS[2], LATER))


async def test_a_removed_replica_keeps_its_episodes_until_it_stops():
    async with service(3) as (servers, names, client):
        names.hosts = list(HOSTS[:2])
        await names.seen()
        await turn(client, 0)  # it still serves
        assert client.stats.rebuilds == 0
        await begin(client, LATER)
        assert set(servers[2].episodes) == set(placed_on(URLS[2]))
        servers[2].down = True
        await turn(client, 1)
        assert client.stats.moves == client.stats.rebuilds == len(placed_on(URLS[2]))
        servers[2].down = False
        await asyncio.sleep(0.2)
        assert ("/ready", 1) not in servers[2].requests, "a removed server is not polled"


async def test_a_replica_that_comes_back_at_another_address_is_found_at_once():
    async with service(1, refresh_s=60.0, patience_s=10.0) as (servers, names, client):
        servers[0].down = True
        names.hosts = [HOSTS[1]]
        await turn(client, 0)
        assert pooled(servers)[1] == set(IDS)


@pytest.mark.parametrize("fault", ["broken", "empty"])
async def test_a_name_server_that_fails_changes_nothing(fault):
    async with service(3) as (servers, names, client):
        names.broken, names.hosts = fault == "broken", []
        await names.seen()
        await turn(client, 0)
        await begin(client, LATER)
        assert set(servers[2].episodes) >= set(placed_on(URLS[2], LATER))
        assert client.stats.rebuilds == 0


async def test_a_name_that_cannot_be_resolved_is_used_as_it_is():
    async def broken(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    server = FakeServer()
    routes = Routes({"env-server": server})
    async with client_of("http://env-server:8000", routes, resolve=broken) as client:
        await begin(client)
        assert set(server.episodes) == set(IDS)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost:1", "https://service"]
)
async def test_what_is_not_a_services_name_is_not_resolved(url):
    async def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("nobody asks")

    async with client_of(url, Routes({}), resolve=resolve, max_attempts=1) as client:
        with pytest.raises(SQLEnvError):
            await client.metadata()


# -- a gateway


async def test_a_gateways_shards_share_batches_and_keep_episodes_together():
    async with playing() as (server, client):
        server.shards = 4
        await begin(client)
        for number in range(3):
            await turn(client, number)
        await client.state(IDS[0])
        await client.close_episode(IDS[0])
        assert len(server.sent("/reset_batch")) == 4
        assert len(server.sent("/step_batch")) == 12
        paths = [path for path, _ in server.requests]
        shards = [headers.get("x-affinity") for headers in server.headers]
        pairs = zip(shards, paths, strict=True)
        assert len({shard for shard, path in pairs if path.endswith("_batch")}) == 4
        shard = shards[paths.index("/state")]
        assert shard == shards[paths.index(f"/episodes/{IDS[0]}")] is not None


async def test_behind_a_gateway_another_client_finds_an_episode():
    gateway = FakeGateway([FakeServer() for _ in range(3)])
    transport = httpx.ASGITransport(gateway)
    async with client_of(URL, transport) as client, client_of(URL, transport) as other:
        await begin(client)
        assert [(await other.state(name)).episode_id for name in IDS] == IDS


async def test_copies_of_episodes_that_a_gateway_moved_are_closed():
    gateway = FakeGateway([FakeServer() for _ in range(3)])
    async with client_of(URL, httpx.ASGITransport(gateway)) as client:
        await begin(client)
        await turn(client, 0)
        for number, away in enumerate([{0}, {1}, set[int]()], 1):
            gateway.away = away
            await turn(client, number)
        assert sum(map(len, pooled(gateway.servers))) > len(IDS), "copies"
        await client.step_many((name, "ANSWER: 1") for name in IDS)
        await until(lambda: sum(map(len, pooled(gateway.servers))) == len(IDS))
        await client.step(IDS[0], "ANSWER: 1", step=4)  # where it ended it is kept
        assert client.stats.rebuilds > 0


@pytest.mark.parametrize("pinned", [True, False])
async def test_behind_a_gateway_a_shard_goes_where_its_digest_is(pinned):
    gateway = FakeGateway([FakeServer() for _ in range(3)])
    digest = "d1" if pinned else None
    async with client_of(URL, httpx.ASGITransport(gateway), digest=digest) as client:
        await begin(client)
        for number in range(2):
            gateway.servers[number].digest = "d2"
            gateway.servers[number].restart()
            await turn(client, number)
        assert pooled(gateway.servers) == [set(), set(), set(IDS)]
        await begin(client, LATER)
        gateway.servers[2].digest = "d2"
        gateway.servers[2].restart()
        with pytest.raises(DigestMismatch):
            await client.step(IDS[0], "QUERY: 2")
        if not pinned:
            await begin(client, ["under the other rules"])


@pytest.mark.parametrize(("stated", "least", "most"), [(None, 1, 1), (0, 1, 1), (1000, 40, 64)])
async def test_the_number_of_shards_is_limited(stated, least, most):
    async with playing() as (server, client):
        server.shards = stated
        await begin(client)
        assert least <= len(server.sent("/reset_batch")) <= most


def answer(*addresses: str) -> Any:
    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    return getaddrinfo


@pytest.mark.parametrize(
    ("answered", "taken"),
    [
        (["10.0.0.3", "10.0.0.2", "10.0.0.3"], ["10.0.0.2", "10.0.0.3"]),
        # each replica has both
        (["fd00::2", "10.0.0.2", "fd00::3", "10.0.0.3"], ["10.0.0.2", "10.0.0.3"]),
        (["fd00::3", "fd00::2"], ["fd00::2", "fd00::3"]),
        ([], []),
    ],
)
def test_each_replica_counts_once(answered, taken):
    async def main() -> list[str]:
        asyncio.get_running_loop().getaddrinfo = answer(*answered)  # type: ignore[method-assign]
        return await system_addresses("env-server", 8000)

    assert asyncio.run(main()) == taken


def test_a_replicas_url_is_its_services_with_the_address():
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("env-server", 80)
        return ["10.0.0.2", "fd00::2"]

    first, second = asyncio.run(addresses_of("http://env-server/sql/", resolve))
    assert first == Address("http://10.0.0.2:80/sql", "env-server")
    assert second == Address("http://[fd00::2]:80/sql", "env-server")
    assert str(first) == "http://10.0.0.2:80/sql (of env-server)"
