"""Several servers: who plays what, and what happens to episodes when servers fail, return, come and go."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from shared.client import SQLEnvClient
from shared.errors import CapacityReached, DigestMismatch, NotReady, ServerUnreachable, SQLEnvError, UnknownEpisode
from shared.fleet import pick_url
from shared.models import StepResult
from tests.shared.fake_server import FakeServer, Routes, capacity, drive

pytestmark = pytest.mark.filterwarnings("error")

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
URLS = [f"http://{host}:8000" for host in HOSTS]
IDS = [f"episode-{i}" for i in range(60)]
QUICK: dict[str, Any] = {
    "backoff_s": 0.001,
    "longest_wait_s": 0.01,
    "timeout_s": 5.0,
    "stall_s": 0.05,
    "max_attempts": 4,
}


def fleet(count: int = 3, **options: Any) -> tuple[dict[str, FakeServer], SQLEnvClient]:
    servers = {host: FakeServer() for host in HOSTS[:count]}
    return servers, SQLEnvClient(URLS[:count], transport=Routes(servers), **(QUICK | options))


def placed_on(url: str, urls: list[str] = URLS) -> list[str]:
    return [name for name in IDS if pick_url(urls, name) == url]


def held(servers: dict[str, FakeServer]) -> dict[str, set[str]]:
    """Host -> the episodes that it holds."""
    return {host: set(server.episodes) for host, server in servers.items()}


async def begin(client: SQLEnvClient, ids: list[str] = IDS) -> None:
    for reply in await client.reset_many([{"episode_id": name, "question_id": f"q-{name}"} for name in ids]):
        assert not isinstance(reply, SQLEnvError), reply


async def turn(client: SQLEnvClient, number: int, ids: list[str] = IDS) -> None:
    """A step of each, which must be answered as on one server that never fails."""
    for name, reply in zip(ids, await client.step_many((n, f"QUERY: {number}") for n in ids), strict=True):
        assert isinstance(reply, StepResult), reply
        assert reply.observation.action_history == [f"QUERY: {k}" for k in range(number + 1)]
        assert reply.observation.result == f"played QUERY: {number}"
        assert reply.info.question_id == f"q-{name}"


async def until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.005)


# -- losing servers ------------------------------------------------------------------------------------------------


def test_a_lost_servers_episodes_are_rebuilt_on_the_others_and_no_other_moves() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            await turn(client, 0)
            before = held(servers)
            servers[HOSTS[1]].down = True
            await turn(client, 1)
            moved = placed_on(URLS[1])
            assert client.stats.rebuilds == client.stats.moves == len(moved) > 10
            assert client.stats.servers_lost == 1
            for host, url in ((HOSTS[0], URLS[0]), (HOSTS[2], URLS[2])):
                gained = {name for name in moved if pick_url([URLS[0], URLS[2]], name) == url}
                assert held(servers)[host] == before[host] | gained
            assert sum(len(server.sent("/reset_batch")) for server in servers.values()) == 5  # 3, and one for each heir

    drive(main())


def test_a_server_that_returns_gets_new_episodes_and_keeps_off_those_that_moved() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            servers[HOSTS[0]].down = True
            await turn(client, 0)
            servers[HOSTS[0]].down = False
            servers[HOSTS[0]].restart()
            await until(lambda: ("/ready", 1) in servers[HOSTS[0]].requests)
            await turn(client, 1)
            assert servers[HOSTS[0]].episodes == {}
            rebuilt = client.stats.rebuilds
            later = [f"later-{i}" for i in range(30)]
            await begin(client, later)
            assert (
                set(servers[HOSTS[0]].episodes) == {name for name in later if pick_url(URLS, name) == URLS[0]} != set()
            )
            assert client.stats.rebuilds == rebuilt

    drive(main())


def test_one_broken_connection_moves_nothing() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)

            def broken() -> Any:
                raise httpx.ReadError("reset by peer")

            servers[HOSTS[2]].faults.append(broken)
            await turn(client, 0)
            assert (client.stats.moves, client.stats.servers_lost, client.stats.retries) == (0, 0, 1)

    drive(main())


def test_a_server_that_hangs_is_left_and_one_that_is_slow_is_not() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            servers[HOSTS[0]].awake.clear()
            servers[HOSTS[1]].delay_s = 0.5  # ten times stall_s, but its health is answered
            began = time.monotonic()
            await turn(client, 0)
            assert time.monotonic() - began < QUICK["timeout_s"]
            assert client.stats.servers_lost == 1
            assert client.stats.moves == len(placed_on(URLS[0]))
            assert ("/health", 1) in servers[HOSTS[1]].requests
            servers[HOSTS[0]].awake.set()

    drive(main())


def test_a_single_server_that_hangs_is_waited_for() -> None:
    async def main() -> None:
        servers, client = fleet(1)
        async with client:
            await begin(client, IDS[:5])
            servers[HOSTS[0]].awake.clear()
            asyncio.get_running_loop().call_later(0.3, servers[HOSTS[0]].awake.set)
            await turn(client, 0, IDS[:5])
            assert client.stats.rebuilds == client.stats.retries == client.stats.servers_lost == 0

    drive(main())


def test_when_all_are_lost_the_first_to_return_plays_on() -> None:
    async def main() -> None:
        servers, client = fleet(patience_s=10.0)
        async with client:
            await begin(client)
            for server in servers.values():
                server.down = True
                server.restart()
            waiting = asyncio.ensure_future(turn(client, 0))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            servers[HOSTS[2]].down = False
            await waiting
            assert held(servers) == {HOSTS[0]: set(), HOSTS[1]: set(), HOSTS[2]: set(IDS)}
            assert servers[HOSTS[2]].charged == len(IDS)

    drive(main())


def test_servers_that_stay_away_are_given_up_with_the_error_of_one() -> None:
    async def main() -> None:
        servers, client = fleet(patience_s=0.2)
        async with client:
            await begin(client)
            for server in servers.values():
                server.down = True
            began = time.monotonic()
            errors = await client.step_many((name, "QUERY: 0") for name in IDS)
            assert 0.2 <= time.monotonic() - began < 5.0
            assert {type(error) for error in errors} == {ServerUnreachable}
            for server in servers.values():
                server.down = False
            await turn(client, 0)  # nothing was lost by it

    drive(main())


def test_a_server_that_shuts_down_hands_its_episodes_over() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            leaving = servers[HOSTS[1]]
            leaving.ready = False
            mine = placed_on(URLS[1])
            leaving.item_errors = {name: [NotReady("shutting down", retry_after_s=5)] for name in mine}
            began = time.monotonic()
            await turn(client, 0)
            assert time.monotonic() - began < 4.0, "nobody waits where another server can play"
            assert client.stats.moves == len(mine)
            await begin(client, ["after-1", "after-2", "after-3", "after-4", "after-5", "after-6"])
            assert not {name for name in leaving.episodes if name.startswith("after")}

    drive(main())


def test_a_full_server_leaves_an_episode_to_another_and_the_last_error_says_full() -> None:
    async def main() -> None:
        servers, client = fleet(max_attempts=5)
        async with client:
            name = placed_on(URLS[0])[0]
            servers[HOSTS[0]].item_errors[name] = [capacity(30.0)]
            await begin(client, [name])
            assert sum(name in server.episodes for server in servers.values()) == 1
            other = placed_on(URLS[0])[1]
            for server in servers.values():
                server.item_errors[other] = [capacity() for _ in range(50)]
            with pytest.raises(CapacityReached):
                await client.reset(episode_id=other)

    drive(main())


def test_servers_of_other_data_are_passed_over_and_refused_where_no_other_is_left() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            servers[HOSTS[0]].digest = "other"
            servers[HOSTS[1]].down = True
            await turn(client, 0)  # those of the second go to the third, whatever the hash says
            assert held(servers)[HOSTS[2]] == {*placed_on(URLS[1]), *placed_on(URLS[2])}
            servers[HOSTS[2]].down = True
            with pytest.raises(DigestMismatch):
                await client.step(placed_on(URLS[1])[0], "QUERY: 1")

    drive(main())


def test_a_client_of_one_digest_begins_nothing_elsewhere() -> None:
    async def main() -> None:
        servers, client = fleet(2, digest="d1")
        async with client:
            servers[HOSTS[0]].digest = "other"
            await begin(client)
            assert held(servers) == {HOSTS[0]: set(), HOSTS[1]: set(IDS)}
            servers[HOSTS[1]].digest = "other"
            with pytest.raises(DigestMismatch):
                await client.reset()

    drive(main())


def test_what_was_played_elsewhere_is_found() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            name = placed_on(URLS[0])[0]
            await begin(client, [name])
            servers[HOSTS[0]].down = True
            await turn(client, 0, [name])
            assert (await client.state(name)).action_history == ["QUERY: 0"]
            await client.step(name, "ANSWER: 1")
            servers[HOSTS[0]].down = False
            await until(lambda: ("/ready", 1) in servers[HOSTS[0]].requests)
            assert len((await client.state(name)).action_history) == 2  # ended, so asked for by its id alone
            with pytest.raises(UnknownEpisode):
                await client.state("never begun")
            await client.close_episode("never begun")

    drive(main())


def test_closing_an_episode_of_a_lost_server_waits_for_nobody() -> None:
    async def main() -> None:
        servers, client = fleet(patience_s=60.0)
        async with client:
            await begin(client)
            servers[HOSTS[0]].down = True
            await turn(client, 0, placed_on(URLS[0])[:1])
            for name in IDS:
                await client.close_episode(name)
            assert client.open_episodes == []
            servers[HOSTS[1]].down = True
            await begin(client, ["x"])

    drive(main())


# -- names ---------------------------------------------------------------------------------------------------------


class NameServer:
    """Answers with `hosts`, or not at all."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts, self.asked, self.broken = hosts, 0, False

    async def __call__(self, host: str, port: int) -> list[str]:
        assert (host, port) == ("env-server", 8000)
        self.asked += 1
        if self.broken:
            raise OSError("no such name")
        return self.hosts

    async def seen(self) -> None:
        """Until it was asked twice more: what it said before is in force."""
        before = self.asked
        await until(lambda: self.asked >= before + 2)


def service(hosts: int, **options: Any) -> tuple[dict[str, FakeServer], NameServer, SQLEnvClient]:
    servers, names = {host: FakeServer() for host in HOSTS}, NameServer(list(HOSTS[:hosts]))
    options = {"resolve": names, "refresh_s": 0.5} | QUICK | options
    return servers, names, SQLEnvClient("http://env-server:8000", transport=Routes(servers), **options)


def test_a_services_name_stands_for_its_replicas() -> None:
    async def main() -> None:
        servers, _, client = service(3)
        async with client:
            await begin(client)
            await turn(client, 0)
            assert client.urls == URLS
            assert held(servers) == {host: set(placed_on(url)) for host, url in zip(HOSTS, URLS, strict=True)}
            assert {headers["host"] for headers in servers[HOSTS[0]].headers} == {"env-server:8000"}

    drive(main())


def test_a_replica_that_is_added_gets_its_share_of_new_episodes_and_moves_none() -> None:
    async def main() -> None:
        servers, names, client = service(2)
        async with client:
            await begin(client)
            names.hosts = list(HOSTS)
            await names.seen()
            await turn(client, 0)
            assert servers[HOSTS[2]].episodes == {}
            assert client.stats.rebuilds == 0
            await begin(client, [f"later-{i}" for i in range(30)])
            assert {f"later-{i}" for i in range(30) if pick_url(URLS, f"later-{i}") == URLS[2]} == set(
                servers[HOSTS[2]].episodes
            )

    drive(main())


def test_a_replica_that_is_removed_finishes_what_it_can_and_the_rest_moves() -> None:
    async def main() -> None:
        servers, names, client = service(3)
        async with client:
            await begin(client)
            names.hosts = list(HOSTS[:2])
            await names.seen()
            await turn(client, 0)  # it still serves
            assert client.stats.rebuilds == 0
            await begin(client, [f"later-{i}" for i in range(30)])
            assert set(servers[HOSTS[2]].episodes) == set(placed_on(URLS[2]))
            servers[HOSTS[2]].down = True
            await turn(client, 1)
            assert client.stats.moves == client.stats.rebuilds == len(placed_on(URLS[2]))
            servers[HOSTS[2]].down = False
            await asyncio.sleep(0.2)
            assert ("/ready", 1) not in servers[HOSTS[2]].requests, "it is gone: nobody asks for it"

    drive(main())


def test_a_replica_that_comes_back_at_another_address_is_found_at_once() -> None:
    async def main() -> None:
        servers, names, client = service(1, refresh_s=60.0, patience_s=10.0)
        async with client:
            await begin(client)
            servers[HOSTS[0]].down = True
            names.hosts = [HOSTS[1]]
            await turn(client, 0)
            assert held(servers)[HOSTS[1]] == set(IDS)
            assert client.urls == [URLS[1]]

    drive(main())


@pytest.mark.parametrize("fault", ["broken", "empty"])
def test_a_name_server_that_fails_changes_nothing(fault: str) -> None:
    async def main() -> None:
        _, names, client = service(3)
        async with client:
            await begin(client)
            names.broken, names.hosts = fault == "broken", []
            await names.seen()
            await turn(client, 0)
            assert client.urls == URLS
            assert client.stats.rebuilds == 0

    drive(main())


def test_a_name_that_no_name_server_knows_is_tried_as_it_is() -> None:
    async def main() -> None:
        servers, names, client = service(0)
        servers["env-server"] = FakeServer()
        names.broken = True
        async with client:
            await begin(client)
            assert set(servers["env-server"].episodes) == set(IDS)

    drive(main())


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost:1", "https://service"])
def test_what_is_no_services_name_is_left_alone(url: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("nobody asks")

    async def main() -> None:
        async with SQLEnvClient(url, resolve=resolve, transport=Routes({}), **QUICK | {"max_attempts": 1}) as client:
            with pytest.raises(SQLEnvError):
                await client.health()
            assert client.urls == [url]

    drive(main())


# -- a gateway -----------------------------------------------------------------------------------------------------


def test_a_gateways_lanes_share_batches_and_keep_their_episodes_together() -> None:
    async def main() -> None:
        server = FakeServer()
        server.lanes = 4
        async with server.client() as client:
            await begin(client)
            for number in range(3):
                await turn(client, number)
            await client.state(IDS[0])
            await client.close_episode(IDS[0])
            paths = [path for path, _ in server.requests]
            assert len(server.sent("/reset_batch")) == 4
            assert len(server.sent("/step_batch")) == 12
            lanes = [headers.get("x-affinity") for headers in server.headers]
            assert len({lane for lane, path in zip(lanes, paths, strict=True) if path.endswith("_batch")}) == 4
            assert lanes[paths.index("/state")] == lanes[paths.index(f"/episodes/{IDS[0]}")] is not None

    drive(main())


@pytest.mark.parametrize(("stated", "requests"), [(None, 1), (0, 1), (1, 1), (1000, 40)])
def test_how_many_lanes_a_gateway_may_have(stated: int | None, requests: int) -> None:
    async def main() -> None:
        server = FakeServer()
        server.lanes = stated
        async with server.client() as client:
            await begin(client)
            sent = len(server.sent("/reset_batch"))
            assert sent == 1 if requests == 1 else requests <= sent <= 64

    drive(main())
