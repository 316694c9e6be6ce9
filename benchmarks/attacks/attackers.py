"""The attacks: each is a coroutine that abuses a server until it is cancelled.

They use raw sockets, so that they can send what no HTTP library would, and one agent's key. Every
connection that an attack loses is opened again.
"""

import asyncio
import json
import os
import resource
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.conformance import corpus

ENDLESS = (
    "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
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


class Connection:
    """One connection to the target."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str
    ) -> None:
        self.reader, self.writer, self.key = reader, writer, key

    async def send(self, data: bytes) -> None:
        """Send bytes as fast as the server takes them."""
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
        """Read one reply to its end and return its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return await self.reader.readexactly(size)

    async def call(self, path: str, body: Any) -> Any:
        """Send a request and return its reply's JSON."""
        await self.post(path, body)
        return json.loads(await self.reply())

    async def start(self, target: Target, **fields: Any) -> str:
        """Start an episode and return its id."""
        fields = {"episode_id": secrets.token_hex(12), "question_id": target.question_id} | fields
        await self.call("/reset", fields)
        return str(fields["episode_id"])


async def connect(target: Target) -> Connection:
    """Open a connection."""
    opened = await asyncio.open_connection(target.host, target.port, limit=2**28)
    return Connection(*opened, target.key)


async def forever(work: Callable[[], Awaitable[None]], wait_s: float = 0.0) -> None:
    """Repeat work until cancelled, whatever the server does to its connection."""
    while True:
        with suppress(Exception):  # a refusal, a closed connection, a reply cut short
            await work()
        await asyncio.sleep(wait_s)


async def hostile_sql(target: Target) -> None:
    """Send every query of the conformance suite's corpus, four at a time."""
    queue = [query.statement(target.table, "rowid", "/tmp/x") for query in corpus.load()]
    connections = 4

    async def play(first: int) -> None:
        connection = await connect(target)
        for sql in queue[first::connections]:
            episode = await connection.start(target)
            await connection.call("/step", {"episode_id": episode, "action": f"QUERY: {sql}"})
        connection.writer.close()

    await asyncio.gather(*(forever(partial(play, n)) for n in range(connections)))


async def long_actions(target: Target) -> None:
    """Hold 60 episodes that were rebuilt from 99 actions of 76 kB each."""
    actions = [f"QUERY: {number} {EMOJI}" for number in range(99)]
    connection = await connect(target)
    for _ in range(60):
        await connection.start(target, step_budget=100, actions=actions)
    await asyncio.Event().wait()


async def repeated_step(target: Target) -> None:
    """Ask for one reply that repeats 30 actions of 76 kB, 100 times in one batch."""
    connection = await connect(target)
    actions = [f"QUERY: {number} {EMOJI}" for number in range(30)]
    episode = await connection.start(target, step_budget=100, actions=actions)
    step = {"episode_id": episode, "action": f"DESCRIBE: {target.table}", "step": 30}
    while True:
        await connection.call("/step_batch", {"steps": [step] * 100})


async def leave(target: Target, path: str, body: Any) -> None:
    """Send a request and close the connection before its reply."""
    connection = await connect(target)
    await connection.post(path, body)
    await asyncio.sleep(STAY_S)
    connection.writer.close()


async def endless_batch(target: Target) -> None:
    """Send 24 endless queries in one batch, and leave, again and again."""

    async def once() -> None:
        connection = await connect(target)
        episodes = [await connection.start(target) for _ in range(24)]
        steps = [{"episode_id": episode, "action": ENDLESS} for episode in episodes]
        connection.writer.close()
        await leave(target, "/step_batch", {"steps": steps})

    await forever(once)


async def endless_replays(target: Target) -> None:
    """Rebuild 8 episodes of 100 endless queries in one batch, and leave, again and again."""
    replay = {"question_id": target.question_id, "step_budget": 100, "actions": [ENDLESS] * 100}
    await forever(lambda: leave(target, "/reset_batch", {"resets": [replay] * 8}), wait_s=1.0)


async def endless_connections(target: Target) -> None:
    """Keep one endless query running on each of 24 connections."""
    await query_forever(target, ENDLESS)


async def query_forever(target: Target, action: str) -> None:
    """Play one action again and again, on each of 24 connections."""

    async def play() -> None:
        connection = await connect(target)
        episode = await connection.start(target)
        while True:
            reply = await connection.call("/step", {"episode_id": episode, "action": action})
            if "error" in reply or reply["done"]:
                episode = await connection.start(target)

    await asyncio.gather(*(forever(play, wait_s=0.1) for _ in range(24)))


def streaming(start: bytes, piece: bytes) -> Attack:
    """Return an attack that sends `start`, then `piece` up to 132 MB, again and again."""

    async def once(target: Target) -> None:
        connection = await connect(target)
        try:
            await connection.send(start)
            for _ in range(132_000_000 // len(piece)):
                await connection.send(piece)
                if connection.reader.at_eof():
                    return
        finally:
            connection.writer.close()

    return lambda target: forever(partial(once, target), wait_s=0.1)


async def half_open(target: Target) -> None:
    """Hold 3,000 connections that never complete a request's head."""

    async def hold() -> None:
        connection = await connect(target)
        await connection.send(b"POST /step HTTP/1.1\r\nHost: a\r\n")
        await connection.reader.read()  # until the server closes it
        connection.writer.close()

    await asyncio.gather(*(forever(hold, wait_s=0.5) for _ in range(HALF_OPEN)))


async def unknown_keys(target: Target) -> None:
    """Send bodies of 7 MB of keys that no request has."""
    body = json.dumps({f"k{number:06}": 0 for number in range(520_000)}).encode()

    async def once() -> None:
        connection = await connect(target)
        try:
            await connection.post("/step", body)
            await connection.reply()
        finally:
            connection.writer.close()

    await forever(once)


async def long_answers(target: Target) -> None:
    """Answer a list question with 10,000 lines, 60 episodes per batch."""
    lines = "\n".join("0" for _ in range(9_900))

    async def once() -> None:
        connection = await connect(target)
        while True:
            fields = {"question_id": target.list_question_id}
            episodes = [await connection.start(target, **fields) for _ in range(60)]
            steps = [
                {"episode_id": episode, "action": f"ANSWER: {number}\n{lines}"}
                for number, episode in enumerate(episodes)
            ]
            await connection.call("/step_batch", {"steps": steps})

    await forever(once)


def posting(path: str, make_body: Callable[[Target, int], bytes], *sizes: int) -> Attack:
    """Return an attack that posts bodies of these sizes, again and again, on 48 connections."""

    async def attack(target: Target) -> None:
        bodies = [make_body(target, size) for size in sizes]

        async def once() -> None:
            for body in bodies:
                connection = await connect(target)
                try:
                    for _ in range(20):
                        await connection.post(path, body)
                        await connection.reply()
                finally:
                    connection.writer.close()

        await asyncio.gather(*(forever(once, wait_s=0.1) for _ in range(48)))

    return attack


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


async def wide_results(target: Target) -> None:
    """Keep a query of 1,000 rows and 200 columns running on each of 24 connections."""
    cells = ", ".join(f"i + {number}" for number in range(200))
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000)"
    await query_forever(target, f"QUERY: {rows} SELECT {cells} FROM n")


async def keyless_connections(target: Target) -> None:
    """Hold 2,500 connections that ask for /health, without a key, and stay open."""

    async def hold() -> None:
        connection = await connect(target)
        while not connection.reader.at_eof():
            await connection.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            await connection.reply()
            await asyncio.sleep(10.0)
        connection.writer.close()

    await asyncio.gather(*(forever(hold, wait_s=0.5) for _ in range(2_500)))


ATTACKS: dict[str, Attack] = {
    "hostile SQL": hostile_sql,
    "long actions": long_actions,
    "repeated step": repeated_step,
    "endless batch, client leaves": endless_batch,
    "endless replays, client leaves": endless_replays,
    "endless queries, 24 connections": endless_connections,
    "one endless header": streaming(b"GET /health HTTP/1.1\r\nx: ", PIECE),
    "endless small headers": streaming(
        b"GET /health HTTP/1.1\r\n", b"".join(b"x-%d: y\r\n" % n for n in range(5_000))
    ),
    "chunk extensions": streaming(
        b"POST /step HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=", PIECE
    ),
    "half-sent heads": half_open,
    "unknown keys": unknown_keys,
    "long answers": long_answers,
    "many replays, 48 connections": posting("/reset_batch", many_replays, 100, 7),
    "large MCP bodies, 48 connections": posting("/mcp", large_rpc, 270_000, 43_000),
    "wide results, 24 connections": wide_results,
    "connections without a key": keyless_connections,
}


def run(name: str, target: Target) -> None:
    """Attack until the process is killed, with a lower priority than server and honest clients."""
    os.nice(10)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(forever(partial(ATTACKS[name], target), wait_s=0.5))
