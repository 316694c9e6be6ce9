"""Three fake servers and a client of them, and what the tests do with several servers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from shared.client import SQLEnvClient
from shared.client.fleet import score
from shared.errors import SQLEnvError
from shared.models import StepResult
from tests.shared.client import fake_server
from tests.shared.client.fake_server import FakeServer, Routes, client_of

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
URLS = [f"http://{host}:8000" for host in HOSTS]
IDS = [f"episode-{i}" for i in range(60)]
QUICK: dict[str, Any] = fake_server.QUICK | {"stall_s": 0.05}


def fleet(count: int = 3, **options: Any) -> tuple[dict[str, FakeServer], SQLEnvClient]:
    servers = {host: FakeServer() for host in HOSTS[:count]}
    return servers, client_of(URLS[:count], Routes(servers), **(QUICK | options))


def pick_url(urls: Sequence[str], episode_id: str) -> str:
    """Return the URL of the server that plays an episode."""
    return max(urls, key=lambda url: score(url, episode_id))


def placed_on(url: str, urls: list[str] = URLS) -> list[str]:
    return [name for name in IDS if pick_url(urls, name) == url]


def pooled(servers: dict[str, FakeServer]) -> dict[str, set[str]]:
    """Return host -> the episodes in its pool."""
    return {host: set(server.episodes) for host, server in servers.items()}


async def begin(client: SQLEnvClient, ids: list[str] = IDS) -> None:
    for reply in await client.reset_many(
        [{"episode_id": name, "question_id": f"q-{name}"} for name in ids]
    ):
        assert not isinstance(reply, SQLEnvError), reply


async def turn(client: SQLEnvClient, number: int, ids: list[str] = IDS) -> None:
    """Play a step of each; its reply must be the one of a server that never fails."""
    for name, reply in zip(
        ids, await client.step_many((n, f"QUERY: {number}") for n in ids), strict=True
    ):
        assert isinstance(reply, StepResult), reply
        assert reply.observation.action_history == [f"QUERY: {k}" for k in range(number + 1)]
        assert reply.observation.result == f"played QUERY: {number}"
        assert reply.info.question_id == f"q-{name}"


async def until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        await asyncio.sleep(0.005)
