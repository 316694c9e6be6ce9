"""Several servers: which plays what, and where episodes go when servers fail and return."""

import asyncio
import re
import time
from collections import Counter

import httpx
import pytest

from shared.errors import (
    CapacityReached,
    DatabaseLoadError,
    DigestMismatch,
    InternalError,
    NotReady,
    ServerUnreachable,
    UnknownEpisode,
)
from tests.conftest import until
from tests.shared.client.fake_server import (
    HOSTS,
    IDS,
    QUICK,
    STALL_S,
    URLS,
    Routes,
    begin,
    capacity,
    client_of,
    dropped,
    fleet,
    pick_url,
    placed_on,
    playing,
    pooled,
    reply,
    turn,
)

pytestmark = pytest.mark.filterwarnings("error")

MANY = [f"many-{i}" for i in range(4000)]
LATER = [f"later-{i}" for i in range(30)]


# -- which server plays an episode


def test_episodes_spread_evenly_and_a_lost_server_moves_only_its_own():
    counts = Counter(pick_url(URLS, name) for name in MANY)
    assert set(counts) == set(URLS)
    assert max(counts.values()) < 1.15 * min(counts.values())
    for name in MANY[:500]:
        before, after = pick_url(URLS, name), pick_url(URLS[1:], name)
        assert after == before or before == URLS[0]


async def test_each_server_plays_its_own_episodes_in_its_own_batches():
    async with fleet() as (servers, client):
        await turn(client, 0)
        for url, server in zip(URLS, servers, strict=True):
            assert sorted(server.episodes) == sorted(placed_on(url))
            assert server.sent("/step_batch") == [len(placed_on(url))]
        assert (await client.metadata()).digest == "d1"
        servers[2].digest = "d2"
        with pytest.raises(DigestMismatch, match=r"10\.0\.0\.3.*10\.0\.0\.1"):
            await client.metadata()


async def test_calls_that_wait_for_an_unreachable_server_fail_together():
    asked: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ConnectError("refused")

    async with client_of(URLS[:1], httpx.MockTransport(refuse), max_attempts=3) as client:
        for _ in range(2):
            asked.clear()
            errors = await client.reset_many({"episode_id": name} for name in IDS[:8])
            assert {type(error) for error in errors} == {ServerUnreachable}
            assert len(set(map(id, errors))) == 8
            assert asked == ["/metadata"] * 3  # not 3 for each


# -- lost servers


async def test_a_lost_servers_episodes_are_rebuilt_on_the_others_and_no_other_moves():
    async with fleet() as (servers, client):
        await turn(client, 0)
        before = pooled(servers)
        servers[1].down = True
        await turn(client, 1)
        moved = placed_on(URLS[1])
        assert client.stats.rebuilds == client.stats.moves == len(moved) > 10
        assert client.stats.servers_lost == 1
        for number in (0, 2):
            gained = {one for one in moved if pick_url([URLS[0], URLS[2]], one) == URLS[number]}
            assert pooled(servers)[number] == before[number] | gained
        # 3, and a rebuild on each of 2 servers
        assert sum(len(server.sent("/reset_batch")) for server in servers) == 5


async def test_a_server_that_returns_gets_only_new_episodes():
    async with fleet() as (servers, client):
        servers[0].down = True
        await turn(client, 0)
        servers[0].down = False
        servers[0].restart()
        await until(lambda: ("/ready", 1) in servers[0].requests)
        await turn(client, 1)
        assert servers[0].episodes == {}
        rebuilt = client.stats.rebuilds
        await begin(client, LATER)
        assert set(servers[0].episodes) == set(placed_on(URLS[0], LATER)) != set()
        assert client.stats.rebuilds == rebuilt


async def test_one_broken_connection_moves_nothing():
    async with fleet() as (servers, client):
        servers[2].faults.append(dropped())
        await turn(client, 0)
        stats = client.stats
        assert (stats.moves, stats.servers_lost, stats.retries) == (0, 0, 1)


async def test_a_hanging_server_is_left_and_a_slow_one_is_not():
    async with fleet() as (servers, client):
        servers[0].awake.clear()
        servers[1].delay_s = 10 * STALL_S  # but its health is answered
        began = time.monotonic()
        await turn(client, 0)
        assert time.monotonic() - began < QUICK["timeout_s"]
        assert client.stats.servers_lost == 1
        assert client.stats.moves == len(placed_on(URLS[0]))
        assert ("/health", 1) in servers[1].requests
        servers[0].awake.set()


async def test_a_hanging_server_is_left_once_another_is_back():
    async with fleet(2, timeout_s=60.0) as (servers, client):
        servers[1].down = True
        await turn(client, 0)
        await asyncio.sleep(3 * STALL_S)  # nothing is under way, so nothing is watched
        servers[0].awake.clear()
        asyncio.get_running_loop().call_later(0.2, setattr, servers[1], "down", False)
        await turn(client, 1)
        assert set(servers[1].episodes) == set(IDS)
        servers[0].awake.set()


async def test_a_single_hanging_server_is_waited_for():
    async with fleet(1) as ((server,), client):
        server.awake.clear()
        asyncio.get_running_loop().call_later(0.3, server.awake.set)
        await turn(client, 0)
        assert client.stats.rebuilds == client.stats.retries == client.stats.servers_lost == 0


async def test_when_all_are_lost_the_first_to_return_continues():
    async with fleet(patience_s=10.0) as (servers, client):
        for server in servers:
            server.down = True
            server.restart()
        waiting = asyncio.ensure_future(turn(client, 0))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        servers[2].down = False
        await waiting
        assert pooled(servers) == [set(), set(), set(IDS)]
        assert servers[2].steps_played == len(IDS)


async def test_servers_that_stay_lost_are_given_up():
    async with fleet(patience_s=0.2) as (servers, client):
        for server in servers:
            server.down = True
        began = time.monotonic()
        errors = await client.step_many((name, "QUERY: 0") for name in IDS)
        assert 0.2 <= time.monotonic() - began < 5.0
        assert {type(error) for error in errors} == {ServerUnreachable}
        for server in servers:
            server.down = False
        await turn(client, 0)  # no episode was lost


async def test_closing_an_episode_of_a_lost_server_does_not_wait():
    async with fleet(patience_s=60.0) as (servers, client):
        servers[0].down = True
        await turn(client, 0, placed_on(URLS[0])[:1])
        for name in IDS:
            await client.close_episode(name)
        assert client.open_episodes == []


async def test_a_moved_episode_is_found_after_its_end():
    name = placed_on(URLS[0])[0]
    async with fleet(ids=[name]) as (servers, client):
        servers[0].down = True
        await turn(client, 0, [name])
        await client.step(name, "ANSWER: 1")
        servers[0].down = False
        await until(lambda: ("/ready", 1) in servers[0].requests)
        # ended, so searched by its id
        assert len((await client.state(name)).action_history) == 2
        with pytest.raises(UnknownEpisode):
            await client.state("never begun")
        await client.close_episode("never begun")


async def test_another_clients_episode_is_found_although_its_first_server_is_down():
    name = placed_on(URLS[0])[0]
    async with fleet(ids=[name]) as (servers, client):
        servers[0].down = True
        await turn(client, 0, [name])
        routes = Routes(dict(zip(HOSTS, servers, strict=True)))
        async with client_of(URLS, routes, stall_s=STALL_S) as other:
            assert len((await other.state(name)).action_history) == 1
            assert other.stats.servers_lost == 1
            for server in servers:
                server.down = True
            with pytest.raises(ServerUnreachable):
                await other.state(name)


async def test_copies_of_moved_episodes_are_closed_once_their_server_returns():
    async with fleet() as (servers, client):
        servers[0].down = True
        await turn(client, 0)
        await client.step_many((name, "ANSWER: 1") for name in IDS[1:])
        await client.close_episode(IDS[0])
        assert sum(map(len, pooled(servers))) > len(IDS) - 1
        servers[0].down = False
        await until(lambda: sum(map(len, pooled(servers))) == len(IDS) - 1)
        assert not servers[0].episodes, "they ended on the others"


# -- servers that refuse


async def test_a_server_that_shuts_down_hands_its_episodes_over():
    async with fleet() as (servers, client):
        servers[1].ready = False
        mine = placed_on(URLS[1])
        servers[1].item_errors = {name: [NotReady("leaving", retry_after_s=5)] for name in mine}
        began = time.monotonic()
        await turn(client, 0)
        assert time.monotonic() - began < 4.0, "there is no wait if another server can play"
        assert client.stats.moves == len(mine)
        await begin(client, LATER)
        assert not set(LATER) & servers[1].episodes.keys()


async def test_a_full_server_is_left_and_a_round_over_full_servers_is_one_attempt():
    async with fleet(max_attempts=2, ids=()) as (servers, client):
        servers[0].item_errors[placed_on(URLS[0])[0]] = [capacity(30.0)]
        await begin(client)
        for server in servers:
            server.item_errors["e"] = [capacity()]
        await client.reset(episode_id="e")  # after one wait
        assert client.stats.retries == 1
        for server in servers:
            server.item_errors["f"] = [capacity()] * 5
        with pytest.raises(CapacityReached) as caught:
            await client.reset(episode_id="f")
        assert caught.value.details["attempts"] == 2
        assert [len(server.item_errors["f"]) for server in servers] == [3, 3, 3]


async def test_an_episode_moves_from_a_server_that_fails_on_it_alone():
    async with fleet(patience_s=60.0) as (servers, client):
        first, second = placed_on(URLS[0])[:2]
        servers[0].item_errors = {
            first: [InternalError("a bug")] * 50,
            second: [DatabaseLoadError("the disk is gone")] * 50,
        }
        for number in range(3):
            await turn(client, number)
        stats = client.stats
        assert (stats.moves, stats.rebuilds, stats.servers_lost) == (2, 2, 0)


async def test_all_episodes_move_from_a_server_that_fails_on_every_request():
    async with fleet(patience_s=60.0) as (servers, client):
        fault = reply(500, InternalError("a bug").to_wire())
        servers[2].faults.append(fault)
        await turn(client, 0)
        assert client.stats.moves == 0, "one failure moves nothing"
        servers[2].faults.extend([fault] * 1000)
        await turn(client, 1)
        assert client.stats.moves == len(placed_on(URLS[2]))
        assert client.stats.servers_lost == 0, "its /ready answers, so new episodes still go to it"


@pytest.mark.parametrize("error", [InternalError, DatabaseLoadError])
async def test_what_fails_on_every_server_is_raised(error):
    async with fleet() as (servers, client):
        for server in servers:
            server.item_errors[IDS[0]] = [error("everywhere") for _ in range(50)]
        with pytest.raises(error):
            await client.step(IDS[0], "QUERY: 0")
        for server in servers:
            server.item_errors.clear()
        await turn(client, 0)


async def test_servers_of_other_data_are_skipped_or_refused():
    async with fleet() as (servers, client):
        servers[0].digest = "other"
        servers[1].down = True
        await turn(client, 0)  # those of the second go to the third
        assert pooled(servers)[2] == {*placed_on(URLS[1]), *placed_on(URLS[2])}
        servers[2].down = True
        with pytest.raises(DigestMismatch):
            await client.step(placed_on(URLS[1])[0], "QUERY: 1")


async def test_a_lost_server_is_awaited_though_one_of_other_data_serves():
    async with fleet(2, patience_s=10.0) as (servers, client):
        servers[0].digest = "other"
        servers[0].restart()
        servers[1].down = True
        waiting = asyncio.ensure_future(turn(client, 0))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        servers[1].down = False
        await waiting
        assert set(servers[1].episodes) == set(IDS)


async def test_a_client_with_a_digest_starts_nothing_elsewhere():
    async with fleet(2, digest="d1", ids=()) as (servers, client):
        servers[0].digest = "other"
        servers[1].item_errors = {name: [capacity(), capacity()] for name in IDS}  # it is awaited
        await begin(client)
        assert pooled(servers) == [set(), set(IDS)]
        servers[1].digest = "other"
        with pytest.raises(DigestMismatch):
            await client.reset()


# -- one outage, one line


@pytest.mark.parametrize("shards", [None, 8])
async def test_one_line_when_a_server_is_lost_and_one_when_it_is_back(shards, caplog):
    async with playing(max_attempts=1_000) as (server, client):
        server.shards = shards
        await begin(client)
        server.down = True
        steps = asyncio.create_task(turn(client, 0))
        await asyncio.sleep(0.3)
        server.down = False
        await steps
        assert client.stats.retries > 8
    lost, back = caplog.messages
    assert "an environment server is lost, calls wait for it: can't reach" in lost
    assert re.search(r"is back after \d+\.\d s; 60 calls waited$", back)


async def test_a_full_server_is_one_line(caplog):
    async with playing(max_attempts=50) as (server, client):
        server.item_errors = {name: [capacity() for _ in range(5)] for name in IDS}
        await begin(client)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("calls are repeated until they succeed: ")
