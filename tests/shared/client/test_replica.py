"""Which server plays an episode."""

import asyncio
import subprocess
import sys
from collections import Counter

import httpx
import pytest

from shared.client import SQLEnvClient
from shared.client.fleet import normalise_urls
from shared.errors import DigestMismatch, ServerUnreachable, SQLEnvError
from tests.shared.client.fake_server import FakeServer, Routes, client_of, drive
from tests.shared.client.fleet_driver import pick_url

pytestmark = pytest.mark.filterwarnings("error")

URLS = [f"http://replica-{i}:8000" for i in range(4)]
IDS = [f"episode-{i}" for i in range(4000)]


def test_episodes_spread_evenly() -> None:
    counts = Counter(pick_url(URLS, name) for name in IDS)
    assert set(counts) == set(URLS)
    assert max(counts.values()) < 1.15 * min(counts.values())


def test_the_order_of_the_urls_and_the_process_do_not_matter() -> None:
    picks = [pick_url(URLS, name) for name in IDS[:20]]
    assert picks == [pick_url(URLS[::-1], name) for name in IDS[:20]]
    code = (
        "from tests.shared.client.fleet_driver import pick_url;"
        f"print([pick_url({URLS!r}, n) for n in {IDS[:20]!r}])"
    )
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": "."}
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert other.stdout.strip() == repr(picks)


def test_a_lost_server_moves_only_its_own_episodes() -> None:
    for name in IDS[:500]:
        before, after = pick_url(URLS, name), pick_url(URLS[1:], name)
        assert after == before or before == URLS[0]


def test_urls_lose_trailing_slashes_and_duplicates() -> None:
    assert normalise_urls(["http://a/", "http://a", "http://b/path/"]) == [
        "http://a",
        "http://b/path",
    ]
    assert normalise_urls("https://a:1/") == ["https://a:1"]


def test_calls_that_wait_for_an_unreachable_server_fail_together() -> None:
    asked: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ConnectError("refused")

    async def main() -> None:
        async with client_of(URLS[:1], httpx.MockTransport(refuse), max_attempts=3) as client:
            for _ in range(2):
                asked.clear()
                resets = [client.reset(episode_id=name) for name in IDS[:8]]
                errors = await asyncio.gather(*resets, return_exceptions=True)
                assert {type(error) for error in errors} == {ServerUnreachable}
                assert len(set(map(id, errors))) == 8
                assert asked == ["/metadata"] * 3  # not 3 for each

    drive(main())


def test_each_server_plays_its_own_episodes_in_its_own_batches() -> None:
    async def main() -> None:
        servers = {f"replica-{i}": FakeServer() for i in range(4)}
        async with SQLEnvClient(URLS, transport=Routes(servers)) as client:
            await client.reset_many([{"episode_id": name} for name in IDS[:100]])
            await client.step_many((name, "QUERY: 0") for name in IDS[:100])
            for i, server in enumerate(servers.values()):
                mine = [name for name in IDS[:100] if pick_url(URLS, name) == URLS[i]]
                assert sorted(server.episodes) == sorted(mine)
                assert server.sent("/step_batch") == [len(mine)]
            assert await client.health() == dict.fromkeys(URLS, "healthy")
            assert (await client.metadata()).digest == "d1"
            servers["replica-2"].digest = "d2"
            with pytest.raises(DigestMismatch, match=r"replica-2.*replica-0"):
                await client.metadata()

    drive(main())


def test_a_server_that_is_down_fails_only_its_own_episodes() -> None:
    async def main() -> None:
        servers = {f"replica-{i}": FakeServer() for i in range(4)}
        async with client_of(URLS, Routes(servers), max_attempts=1) as client:
            await client.reset_many([{"episode_id": name} for name in IDS[:40]])

            def refuse() -> tuple[int, None, dict[str, str]]:
                raise httpx.ConnectError("refused")

            servers["replica-1"].faults.append(refuse)
            replies = await client.step_many((name, "QUERY: 0") for name in IDS[:40])
            failed = {
                name
                for name, reply in zip(IDS[:40], replies, strict=True)
                if isinstance(reply, SQLEnvError)
            }
            assert failed == {name for name in IDS[:40] if pick_url(URLS, name) == URLS[1]}

    drive(main())
