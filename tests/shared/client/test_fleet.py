"""Several servers: which plays what, and where episodes go when servers fail and return."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from shared.errors import (
    CapacityReached,
    DatabaseLoadError,
    DigestMismatch,
    InternalError,
    NotReady,
    ServerUnreachable,
    SQLEnvError,
    UnknownEpisode,
)
from tests.shared.client.fake_server import capacity, drive, reply
from tests.shared.client.fleet_driver import (
    HOSTS,
    IDS,
    QUICK,
    URLS,
    begin,
    fleet,
    pick_url,
    placed_on,
    pooled,
    turn,
    until,
)

pytestmark = pytest.mark.filterwarnings("error")


def test_a_lost_servers_episodes_are_rebuilt_on_the_others_and_no_other_moves() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            await turn(client, 0)
            before = pooled(servers)
            servers[HOSTS[1]].down = True
            await turn(client, 1)
            moved = placed_on(URLS[1])
            assert client.stats.rebuilds == client.stats.moves == len(moved) > 10
            assert client.stats.servers_lost == 1
            for host, url in ((HOSTS[0], URLS[0]), (HOSTS[2], URLS[2])):
                gained = {name for name in moved if pick_url([URLS[0], URLS[2]], name) == url}
                assert pooled(servers)[host] == before[host] | gained
            # 3, and a rebuild on each of 2 servers
            assert sum(len(server.sent("/reset_batch")) for server in servers.values()) == 5

    drive(main())


def test_a_server_that_returns_gets_only_new_episodes() -> None:
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
                set(servers[HOSTS[0]].episodes)
                == {name for name in later if pick_url(URLS, name) == URLS[0]}
                != set()
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
            assert (client.stats.moves, client.stats.servers_lost, client.stats.retries) == (
                0,
                0,
                1,
            )

    drive(main())


def test_a_hanging_server_is_left_and_a_slow_one_is_not() -> None:
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


def test_a_hanging_server_is_left_once_another_is_back() -> None:
    async def main() -> None:
        servers, client = fleet(2, timeout_s=60.0)
        async with client:
            await begin(client)
            servers[HOSTS[1]].down = True
            await turn(client, 0)
            await asyncio.sleep(3 * QUICK["stall_s"])  # nothing is under way, so nothing is watched
            servers[HOSTS[0]].awake.clear()
            asyncio.get_running_loop().call_later(0.2, setattr, servers[HOSTS[1]], "down", False)
            await turn(client, 1)
            assert set(servers[HOSTS[1]].episodes) == set(IDS)
            servers[HOSTS[0]].awake.set()

    drive(main())


def test_a_single_hanging_server_is_waited_for() -> None:
    async def main() -> None:
        servers, client = fleet(1)
        async with client:
            await begin(client, IDS[:5])
            servers[HOSTS[0]].awake.clear()
            asyncio.get_running_loop().call_later(0.3, servers[HOSTS[0]].awake.set)
            await turn(client, 0, IDS[:5])
            assert client.stats.rebuilds == client.stats.retries == client.stats.servers_lost == 0

    drive(main())


def test_when_all_are_lost_the_first_to_return_continues() -> None:
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
            assert pooled(servers) == {HOSTS[0]: set(), HOSTS[1]: set(), HOSTS[2]: set(IDS)}
            assert servers[HOSTS[2]].steps_played == len(IDS)

    drive(main())


def test_servers_that_stay_lost_are_given_up() -> None:
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
            await turn(client, 0)  # no episode was lost

    drive(main())


def test_a_server_that_shuts_down_hands_its_episodes_over() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            leaving = servers[HOSTS[1]]
            leaving.ready = False
            mine = placed_on(URLS[1])
            leaving.item_errors = {
                name: [NotReady("shutting down", retry_after_s=5)] for name in mine
            }
            began = time.monotonic()
            await turn(client, 0)
            assert time.monotonic() - began < 4.0, "there is no wait if another server can play"
            assert client.stats.moves == len(mine)
            await begin(client, ["after-1", "after-2", "after-3", "after-4", "after-5", "after-6"])
            assert not {name for name in leaving.episodes if name.startswith("after")}

    drive(main())


def test_an_episode_moves_from_a_full_server_and_fails_if_all_are_full() -> None:
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


def test_a_round_over_full_servers_is_one_attempt() -> None:
    async def main() -> None:
        servers, client = fleet(max_attempts=2)
        async with client:
            for server in servers.values():
                server.item_errors["e"] = [capacity()]
            await client.reset(episode_id="e")  # after one wait
            assert client.stats.retries == 1
            for server in servers.values():
                server.item_errors["f"] = [capacity()] * 5
            with pytest.raises(CapacityReached) as caught:
                await client.reset(episode_id="f")
            assert caught.value.details["attempts"] == 2
            assert [len(server.item_errors["f"]) for server in servers.values()] == [3, 3, 3]

    drive(main())


def test_an_episode_moves_from_a_server_that_fails_on_it_alone() -> None:
    async def main() -> None:
        servers, client = fleet(patience_s=60.0)
        async with client:
            await begin(client)
            broken = placed_on(URLS[0])[:2]
            servers[HOSTS[0]].item_errors = {
                broken[0]: [InternalError("a bug")] * 50,
                broken[1]: [DatabaseLoadError("the disk is gone")] * 50,
            }
            for number in range(3):
                await turn(client, number)
            assert (client.stats.moves, client.stats.rebuilds, client.stats.servers_lost) == (
                2,
                2,
                0,
            )

    drive(main())


def test_all_episodes_move_from_a_server_that_fails_on_every_request() -> None:
    async def main() -> None:
        servers, client = fleet(patience_s=60.0)
        async with client:
            await begin(client)
            servers[HOSTS[2]].faults.append(reply(500, InternalError("a bug").to_wire()))
            await turn(client, 0)
            assert client.stats.moves == 0, "one failure moves nothing"
            servers[HOSTS[2]].faults.extend([reply(500, InternalError("a bug").to_wire())] * 1000)
            await turn(client, 1)
            assert client.stats.moves == len(placed_on(URLS[2]))
            assert client.stats.servers_lost == 0, (
                "its /ready answers, so new episodes still go to it"
            )

    drive(main())


@pytest.mark.parametrize("error", [InternalError, DatabaseLoadError])
def test_what_fails_on_every_server_is_raised(error: type[SQLEnvError]) -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            for server in servers.values():
                server.item_errors[IDS[0]] = [error("everywhere") for _ in range(50)]
            with pytest.raises(error):
                await client.step(IDS[0], "QUERY: 0")
            for server in servers.values():
                server.item_errors.clear()
            await turn(client, 0)

    drive(main())


def test_servers_of_other_data_are_skipped_or_refused() -> None:
    async def main() -> None:
        servers, client = fleet()
        async with client:
            await begin(client)
            servers[HOSTS[0]].digest = "other"
            servers[HOSTS[1]].down = True
            await turn(client, 0)  # those of the second go to the third
            assert pooled(servers)[HOSTS[2]] == {*placed_on(URLS[1]), *placed_on(URLS[2])}
            servers[HOSTS[2]].down = True
            with pytest.raises(DigestMismatch):
                await client.step(placed_on(URLS[1])[0], "QUERY: 1")

    drive(main())


def test_a_lost_server_is_awaited_though_one_of_other_data_serves() -> None:
    async def main() -> None:
        servers, client = fleet(2, patience_s=10.0)
        async with client:
            await begin(client)
            servers[HOSTS[0]].digest = "other"
            servers[HOSTS[0]].restart()
            servers[HOSTS[1]].down = True
            waiting = asyncio.ensure_future(turn(client, 0))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            servers[HOSTS[1]].down = False
            await waiting
            assert set(servers[HOSTS[1]].episodes) == set(IDS)

    drive(main())


def test_a_client_with_a_digest_starts_nothing_elsewhere() -> None:
    async def main() -> None:
        servers, client = fleet(2, digest="d1")
        async with client:
            servers[HOSTS[0]].digest = "other"
            await begin(client)
            assert pooled(servers) == {HOSTS[0]: set(), HOSTS[1]: set(IDS)}
            servers[HOSTS[1]].digest = "other"
            with pytest.raises(DigestMismatch):
                await client.reset()

    drive(main())


def test_a_full_server_is_awaited_though_one_of_other_data_serves() -> None:
    async def main() -> None:
        servers, client = fleet(2, digest="d1")
        async with client:
            servers[HOSTS[0]].digest = "other"
            servers[HOSTS[1]].item_errors = {name: [capacity(), capacity()] for name in IDS}
            await begin(client)
            assert set(servers[HOSTS[1]].episodes) == set(IDS)

    drive(main())


def test_a_moved_episode_is_found_after_its_end() -> None:
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
            # ended, so searched by its id
            assert len((await client.state(name)).action_history) == 2
            with pytest.raises(UnknownEpisode):
                await client.state("never begun")
            await client.close_episode("never begun")

    drive(main())


def test_closing_an_episode_of_a_lost_server_does_not_wait() -> None:
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
