"""Equal questions, options and actions give equal bytes: in any process, order and load."""

import asyncio
import random
from pathlib import Path

import apsw
import httpx
import pytest
from pydantic_core import to_json

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.render import render_rows
from env_server.sql import JobKind, SqlJob
from env_server.sql.run import SqlRunner
from shared.dataset import load_splits
from shared.server_process import running_server
from tests.test_imports import ROOT

EPISODES = 10
BUDGET = 15
LOAD = "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def script(number: int, tables: list[str]) -> list[str]:
    """Return an episode's actions: every kind, errors, a spent budget, and random ones."""
    chance = random.Random(number)
    table, other = chance.choice(tables), chance.choice(tables)
    queries = [
        f'SELECT * FROM "{table}"',
        f'SELECT * FROM "{table}" ORDER BY 2 DESC, 1',
        f'SELECT DISTINCT a.* FROM "{table}" a JOIN "{other}" b ON a.rowid <= b.rowid',
        f'SELECT count(*), min(1.0 / rowid), avg(rowid), group_concat(rowid) FROM "{table}" GROUP '
        f"BY rowid % 7",
        f'SELECT a.rowid, b.rowid FROM "{table}" a, "{other}" b WHERE a.rowid % 3 = b.rowid % 5',
        f'SELECT * FROM "{table}" UNION SELECT * FROM "{table}"',
        f'SELECT a.rowid, b.rowid FROM "{table}" a, "{table}" b, "{table}" c',
        "SELECT datetime('now'), random()",
        "SELECT * FROM no_such_table",
    ]
    actions = [
        f"DESCRIBE: {table}",
        f"SAMPLE: {other}",
        *(f"QUERY: {query}" for query in queries),
        "DESCRIBE: nothing",
    ]
    chance.shuffle(actions)
    return [*actions, LOAD] if number == 0 else [*actions, actions[0], "ANSWER: 1, 2, 3"]


async def play(http: httpx.AsyncClient, number: int) -> list[bytes]:
    """Return every reply's bytes. The id is the episode's number, the same on every server."""
    body = {"episode_id": f"episode-{number}", "seed": number, "step_budget": BUDGET}
    reset = await http.post("/reset", json=body)
    tables = reset.json()["observation"]["schema_info"].removeprefix("Tables: ").split(", ")
    replies = [reset.content]
    for step, action in enumerate(script(number, tables)):
        reply = await http.post(
            "/step", json={"episode_id": f"episode-{number}", "action": action, "step": step}
        )
        assert reply.status_code == 200, reply.text
        replies.append(reply.content)
    await http.delete(f"/episodes/episode-{number}")
    return replies


async def in_order(url: str, numbers: list[int]) -> dict[int, list[bytes]]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        return {number: await play(http, number) for number in numbers}


async def at_once_under_load(url: str) -> dict[int, list[bytes]]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        for name in ("load-1", "load-2"):
            await http.post("/reset", json={"episode_id": name, "seed": 1})
        load = [
            asyncio.create_task(http.post("/step", json={"episode_id": name, "action": LOAD}))
            for name in ("load-1", "load-2")
        ]
        played = await asyncio.gather(*(play(http, number) for number in range(EPISODES)))
        await asyncio.gather(*load)
        return dict(enumerate(played))


def in_process(data: Path) -> dict[int, list[bytes]]:
    """Return the same without a server, from `SQLEnvironment`."""
    bank = QuestionBank.load(data)
    found: dict[int, list[bytes]] = {}
    with SqlRunner(bank.limits) as runner:
        for number in range(EPISODES):
            env = SQLEnvironment(bank, runner)
            reset = env.reset(episode_id=f"episode-{number}", seed=number, step_budget=BUDGET)
            tables = reset.observation.schema_info.removeprefix("Tables: ").split(", ")
            found[number] = [
                to_json(reset),
                *(to_json(env.step(action)) for action in script(number, tables)),
            ]
    return found


def test_every_process_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = ROOT / "data"
    numbers = list(range(EPISODES))
    expected = in_process(data_dir)
    shuffled = random.Random(5).sample(numbers, len(numbers))
    found = {}
    for hash_seed, workers in (("0", 1), ("1", 2), ("4242", 3)):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        with running_server(data_dir, "--workers", str(workers)) as server:
            if hash_seed == "0":
                found["in order"] = asyncio.run(in_order(server.url, numbers))
            elif hash_seed == "1":
                found["shuffled"] = asyncio.run(in_order(server.url, shuffled))
            else:
                found["at once under load"] = asyncio.run(at_once_under_load(server.url))
    for how, episodes in found.items():
        for number in numbers:
            for step, (reply, wanted) in enumerate(
                zip(episodes[number], expected[number], strict=True)
            ):
                assert reply == wanted, f"{how}, episode {number}, reply {step}"


def test_the_script_covers_errors_and_budgets() -> None:
    replies = [reply for episode in in_process(ROOT / "data").values() for reply in episode]
    for text in (b'"error_code":"sql_budget"', b'"error_code":"sql_denied"',
                 b'"error_code":"no_such_table"',
                 b"there are more", b"primary key", b'"outcome":"wrong"'):  # fmt: skip
        assert any(text in reply for reply in replies), text


# -- order and duplicates

ORDERS = [
    "SELECT city FROM customers",
    "SELECT city FROM customers ORDER BY city",
    "SELECT city FROM customers ORDER BY city DESC, name",
    "SELECT name FROM customers ORDER BY name COLLATE NOCASE",
    "SELECT DISTINCT city FROM customers",
    "SELECT c.name FROM customers c, orders o",
    "SELECT name FROM customers UNION ALL SELECT name FROM customers ORDER BY 1 DESC LIMIT 7 "
    "OFFSET 2",
    "SELECT title, price FROM products ORDER BY price % 7",
    "SELECT (SELECT name FROM customers ORDER BY city LIMIT 1), product_id FROM orders",
    "SELECT product_id, count(*) FROM orders GROUP BY product_id ORDER BY 2",
    "VALUES (3), (1), (3), (NULL), (2), (1)",
]


@pytest.mark.parametrize("sql", ORDERS)
def test_rows_are_shown_in_sqlites_order(tiny_data: Path, sql: str) -> None:
    path = tiny_data / "databases" / "shop" / "shop.sqlite"
    rows = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY).execute(sql).fetchall()
    with SqlRunner() as runner:
        result = runner.run(SqlJob(JobKind.QUERY, str(path), sql))
        gold = runner.run(SqlJob(JobKind.GOLD, str(path), sql))
    assert result.rows == rows[:20]
    assert gold.rows == rows
    shown = render_rows(result, 20).split("\n")[1:]
    assert shown[: len(result.rows)] == [
        " | ".join("NULL" if cell is None else str(cell) for cell in row) for row in result.rows
    ]


def test_the_shipped_golds_give_the_same_rows_in_two_processes(
    request: pytest.FixtureRequest,
) -> None:
    """In this process, and in a worker with another hash seed."""
    from env_server.sql.pool import SqlPool

    data = request.config.rootpath / "data"
    bank = QuestionBank.load(data)
    questions = [question for split in load_splits(data).values() for question in split][::7]
    jobs = [
        SqlJob(JobKind.GOLD, bank.database(question.database_name), question.gold_sql)
        for question in questions
    ]

    async def pooled() -> list[object]:
        async with SqlPool(1) as pool:
            return list(await asyncio.gather(*map(pool.run, jobs)))

    with SqlRunner() as runner:
        assert asyncio.run(pooled()) == [runner.run(job) for job in jobs]
