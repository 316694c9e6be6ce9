"""Equal questions, options and actions give equal bytes: in any process, order and load."""

import asyncio
import random

import httpx
import pytest

from env_server.app import create_app
from env_server.conformance.episodes import LOAD, play
from env_server.conformance.wire import Wire
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql import JobKind, SqlJob
from env_server.sql.pool import SqlPool
from env_server.sql.run import SqlRunner
from shared.dataset import load_splits
from shared.server_process import running_server
from tests.test_imports import ROOT

DATA = ROOT / "data"
SEEDS = list(range(10))
Replies = dict[int, list[bytes]]


async def in_order(wire: Wire, seeds: list[int]) -> Replies:
    return {seed: await play(wire, seed) for seed in seeds}


async def at_once_under_load(wire: Wire) -> Replies:
    busy = [await wire.start(seed=1) for _ in range(2)]
    load = [asyncio.create_task(wire.step(episode, LOAD)) for episode in busy]
    played = await asyncio.gather(*(play(wire, seed) for seed in SEEDS))
    await asyncio.gather(*load)
    return dict(enumerate(played))


async def in_process() -> Replies:
    app = create_app(Settings(data_dir=DATA, sql_workers=1))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        return await in_order(Wire(http), SEEDS)


async def over_http(url: str, way: str) -> Replies:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        if way == "at once under load":
            return await at_once_under_load(Wire(http))
        shuffled = random.Random(5).sample(SEEDS, len(SEEDS))
        return await in_order(Wire(http), SEEDS if way == "in order" else shuffled)


def test_every_process_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asyncio.run(in_process())
    replies = b"".join(reply for episode in expected.values() for reply in episode)
    for text in (b'"sql_budget"', b'"sql_denied"', b"there are more", b'"outcome":"wrong"'):
        assert text in replies, "the script covers errors and budgets"
    ways = ("in order", "shuffled", "at once under load")
    for way, hash_seed, workers in zip(ways, ("0", "1", "4242"), "123", strict=True):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        with running_server(DATA, "--workers", workers) as server:
            found = asyncio.run(over_http(server.url, way))
        for seed in SEEDS:
            for step, pair in enumerate(zip(found[seed], expected[seed], strict=True)):
                assert pair[0] == pair[1], f"{way}, seed {seed}, reply {step}"


def test_the_shipped_golds_give_the_same_rows_in_two_processes() -> None:
    """In this process, and in a worker with another hash seed."""
    bank = QuestionBank.load(DATA)
    questions = [question for split in load_splits(DATA).values() for question in split][::7]
    jobs = [
        SqlJob(JobKind.GOLD, bank.database(question.database_name), question.gold_sql)
        for question in questions
    ]

    async def pooled() -> list[object]:
        async with SqlPool(1) as pool:
            return list(await asyncio.gather(*map(pool.run, jobs)))

    with SqlRunner() as runner:
        assert asyncio.run(pooled()) == [runner.run(job) for job in jobs]
