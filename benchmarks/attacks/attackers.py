"""The attacks: each is a coroutine that abuses a server until it is cancelled.

They use raw sockets, so that they can send what no HTTP library would, and one agent's key. Every
connection that an attack loses is opened again.
"""

import asyncio
import json
import os
import resource
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.conformance import corpus

ENDLESS = (
    "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
)
WIDE = (
    "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) SELECT "
    + ", ".join(f"i + {number}" for number in range(200))
    + " FROM n"
)
EMOJI = "\N{GRINNING FACE}" * 19_000  # 4 bytes each
STAY_S = 0.5  # before a client leaves without its reply
HALF_OPEN = 3_000
PIECE = b"x" * 65_536


@dataclass(frozen=True)
class Target:
    """A server and what an attacker knows of its data."""

    host: str
    port: int
    key: str  # an agent's
    question_id: str  # any question
    table: str  # of its database
    list_question_id: str  # a question whose answer is a list


Attack = Callable[[Target], Awaitable[None]]


@dataclass(frozen=True)
class Connection:
    """One connection to the target."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: str

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, path: str, body: Any) -> None:
        """Send a request without waiting for its reply; `body` is JSON, or bytes of it."""
        content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        await self.send(head.encode() + content)

    async def reply(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return await self.reader.readexactly(size)

    async def call(self, path: str, body: Any) -> Any:
        await self.post(path, body)
        return json.loads(await self.reply())

    async def start(self, target: Target, **fields: Any) -> str:
        fields = {"episode_id": secrets.token_hex(12), "question_id": target.question_id} | fields
        await self.call("/reset", fields)
        return str(fields["episode_id"])


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=2**28)
    try:
        yield Connection(reader, writer, target.key)
    finally:
        writer.close()


async def forever(work: Callable[[], Awaitable[None]], wait_s: float = 0.0) -> None:
    """Repeat work until cancelled, whatever the server does to its connection."""
    while True:
        with suppress(Exception):  # a refusal, a closed connection, a reply cut short
            await work()
        await asyncio.sleep(wait_s)


async def many(work: Callable[[], Awaitable[None]], times: int, wait_s: float) -> None:
    """Repeat work until cancelled, so often at once."""
    await asyncio.gather(*(forever(work, wait_s) for _ in range(times)))


async def hostile_sql(target: Target) -> None:
    """Send every query of the conformance suite's corpus, four at a time."""
    queue = [query.statement(target.table, "rowid", "/tmp/x") for query in corpus.load()]
    connections = 4

    async def play(first: int) -> None:
        async with connect(target) as connection:
            for sql in queue[first::connections]:
                episode = await connection.start(target)
                await connection.call("/step", {"episode_id": episode, "action": f"QUERY: {sql}"})

    await asyncio.gather(*(forever(partial(play, n)) for n in range(connections)))


async def long_actions(target: Target) -> None:
    """Hold 60 episodes that were rebuilt from 99 actions of 76 kB each."""
    actions = [f"QUERY: {number} {EMOJI}" for number in range(99)]
    async with connect(target) as connection:
        for _ in range(60):
            await connection.start(target, step_budget=100, actions=actions)
        await asyncio.Event().wait()


async def repeated_step(target: Target) -> None:
    """Ask for one reply that repeats 30 actions of 76 kB, 100 times in one batch."""
    actions = [f"QUERY: {number} {EMOJI}" for number in range(30)]
    async with connect(target) as connection:
        episode = await connection.start(target, step_budget=100, actions=actions)
        step = {"episode_id": episode, "action": f"DESCRIBE: {target.table}", "step": 30}
        while True:
            await connection.call("/step_batch", {"steps": [step] * 100})


async def leave(target: Target, path: str, body: Any) -> None:
    """Send a request and close the connection before its reply."""
    async with connect(target) as connection:
        await connection.post(path, body)
        await asyncio.sleep(STAY_S)


async def endless_batch(target: Target) -> None:
    """Send 24 endless queries in one batch, and leave, again and again."""

    async def once() -> None:
        async with connect(target) as connection:
            episodes = [await connection.start(target) for _ in range(24)]
        steps = [{"episode_id": episode, "action": ENDLESS} for episode in episodes]
        await leave(target, "/step_batch", {"steps": steps})

    await forever(once)


async def endless_replays(target: Target) -> None:
    """Rebuild 8 episodes of 100 endless queries in one batch, and leave, again and again."""
    replay = {"question_id": target.question_id, "step_budget": 100, "actions": [ENDLESS] * 100}
    await forever(lambda: leave(target, "/reset_batch", {"resets": [replay] * 8}), wait_s=1.0)


async def query_forever(action: str, target: Target) -> None:
    """Play one action again and again, on each of 24 connections."""

    async def play() -> None:
        async with connect(target) as connection:
            episode = await connection.start(target)
            while True:
                reply = await connection.call("/step", {"episode_id": episode, "action": action})
                if "error" in reply or reply["done"]:
                    episode = await connection.start(target)

    await many(play, 24, wait_s=0.1)


def streaming(start: bytes, piece: bytes) -> Attack:
    """Return an attack that sends `start`, then `piece` up to 132 MB, again and again."""

    async def once(target: Target) -> None:
        async with connect(target) as connection:
            await connection.send(start)
            for _ in range(132_000_000 // len(piece)):
                await connection.send(piece)
                if connection.reader.at_eof():
                    return

    return lambda target: forever(partial(once, target), wait_s=0.1)


async def half_open(target: Target) -> None:
    """Hold 3,000 connections that never complete a request's head."""

    async def hold() -> None:
        async with connect(target) as connection:
            await connection.send(b"POST /step HTTP/1.1\r\nHost: a\r\n")
            await connection.reader.read()  # until the server closes it

    await many(hold, HALF_OPEN, wait_s=0.5)


async def long_answers(target: Target) -> None:
    """Answer a list question with 10,000 lines, 60 episodes per batch."""
    lines = "\n".join("0" for _ in range(9_900))

    fields = {"question_id": target.list_question_id}

    async def once() -> None:
        async with connect(target) as connection:
            while True:
                episodes = [await connection.start(target, **fields) for _ in range(60)]
                steps = [
                    {"episode_id": episode, "action": f"ANSWER: {number}\n{lines}"}
                    for number, episode in enumerate(episodes)
                ]
                await connection.call("/step_batch", {"steps": steps})

    await forever(once)


def posting(
    path: str, make_body: Callable[[Target, int], bytes], *sizes: int, connections: int = 48
) -> Attack:
    """Return an attack that posts bodies of these sizes, again and again."""

    async def attack(target: Target) -> None:
        bodies = [make_body(target, size) for size in sizes]

        async def once() -> None:
            for body in bodies:
                async with connect(target) as connection:
                    for _ in range(20):
                        await connection.post(path, body)
                        await connection.reply()

        await many(once, connections, wait_s=0.1)

    return attack


def unknown_keys(_: Target, keys: int) -> bytes:
    """Return a body of so many keys that no request has."""
    return json.dumps({f"k{number:06}": 0 for number in range(keys)}).encode()


def many_replays(target: Target, actions: int) -> bytes:
    """Return a batch of 512 resets, each with so many actions."""
    replayed = [f"SAMPLE: {target.table}"] * actions
    reset = {"question_id": target.question_id, "step_budget": 100, "actions": replayed}
    return json.dumps({"resets": [reset] * 512}).encode()


def large_rpc(_: Target, arrays: int) -> bytes:
    """Return a JSON-RPC message of so many empty arrays, 3 bytes each."""
    call = {"name": "start_episode", "arguments": {"question_id": [[]] * arrays}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return json.dumps(message, separators=(",", ":")).encode()


async def keyless_connections(target: Target) -> None:
    """Hold 2,500 connections that ask for /health, without a key, and stay open."""

    async def hold() -> None:
        async with connect(target) as connection:
            while not connection.reader.at_eof():
                await connection.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
                await connection.reply()
                await asyncio.sleep(10.0)

    await many(hold, 2_500, wait_s=0.5)


ATTACKS: dict[str, Attack] = {
    "hostile SQL": hostile_sql,
    "long actions": long_actions,
    "repeated step": repeated_step,
    "endless batch, client leaves": endless_batch,
    "endless replays, client leaves": endless_replays,
    "endless queries, 24 connections": partial(query_forever, ENDLESS),
    "one endless header": streaming(b"GET /health HTTP/1.1\r\nx: ", PIECE),
    "endless small headers": streaming(
        b"GET /health HTTP/1.1\r\n", b"".join(b"x-%d: y\r\n" % n for n in range(5_000))
    ),
    "chunk extensions": streaming(
        b"POST /step HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=", PIECE
    ),
    "half-sent heads": half_open,
    "unknown keys": posting("/step", unknown_keys, 520_000, connections=1),
    "long answers": long_answers,
    "many replays, 48 connections": posting("/reset_batch", many_replays, 100, 7),
    "large MCP bodies, 48 connections": posting("/mcp", large_rpc, 270_000, 43_000),
    "wide results, 24 connections": partial(query_forever, WIDE),
    "connections without a key": keyless_connections,
}


def run(name: str, target: Target) -> None:
    """Attack until the process is killed, with a lower priority than server and honest clients."""
    os.nice(10)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(forever(partial(ATTACKS[name], target), wait_s=0.5))
