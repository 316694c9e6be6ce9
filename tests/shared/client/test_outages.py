"""One outage, one line: what a client logs while servers are away."""

import asyncio
from typing import Any

import pytest

from tests.shared.client.fake_server import FakeServer, capacity, drive

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("shards", [None, 8])
def test_one_line_when_a_server_is_lost_and_one_when_it_is_back(
    shards: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = FakeServer()
        server.shards = shards
        async with server.client(max_attempts=1_000) as client:
            names = [f"e{number}" for number in range(48)]
            await client.reset_many({"episode_id": name} for name in names)
            server.down = True
            steps = asyncio.create_task(client.step_many((name, "QUERY: 1") for name in names))
            await asyncio.sleep(0.3)
            server.down = False
            assert {reply.observation.step_count for reply in await steps} == {1}
            assert client.stats.retries > 8

    drive(main())
    lost, back = caplog.messages
    assert "an environment server is lost, calls wait for it: can't reach" in lost
    assert "is back after 0." in back
    assert back.endswith("; 48 calls waited")


def test_a_full_server_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = FakeServer()
        names = [f"e{number}" for number in range(48)]
        errors: dict[str, Any] = {name: [capacity() for _ in range(5)] for name in names}
        server.item_errors = errors
        async with server.client(max_attempts=50) as client:
            await client.reset_many({"episode_id": name} for name in names)

    drive(main())
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("calls are repeated until they succeed: ")
