"""A small environment server that fails on demand, as an ASGI app; `drive`, which runs a test's
coroutine; and a client of three such servers, and what the tests do with several of them."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

from shared.client import ClientLimits, SQLEnvClient
from shared.client.fleet import score
from shared.errors import (
    ActionParseError,
    Behind,
    CapacityReached,
    Conflict,
    DigestMismatch,
    SQLEnvError,
    UnknownEpisode,
)
from shared.models import DEFAULT_STANDARD, DEFAULT_STEP_BUDGET, StepResult

T = TypeVar("T")
Reply = tuple[int, Any, dict[str, str]]  # status, body and headers
URL = "http://fake"
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
URLS = [f"http://{host}:8000" for host in HOSTS]
IDS = [f"episode-{i}" for i in range(60)]
QUICK: dict[str, Any] = {
    "backoff_s": 0.001,
    "longest_wait_s": 0.01,
    "timeout_s": 5.0,
    "max_attempts": 4,
}
STALL_S = 0.05  # of a client of several servers


def drive(main: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
    """Run `main`; fail if it leaves a task behind."""

    async def watched() -> T:
        result = await asyncio.wait_for(main, timeout_s)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left running: {left}"
        return result

    return asyncio.run(watched())


def reply(
    status: int, body: Any = None, headers: dict[str, str] | None = None
) -> Callable[[], Reply]:
    """A fault: this reply, and the request is not looked at."""
    return lambda: (status, body, headers or {})


def dropped(error: type[Exception] = httpx.ReadError) -> Callable[[], Reply]:
    """A fault: the connection ends before the request is looked at."""

    def fault() -> Reply:
        raise error("connection lost")

    return fault


def capacity(retry_after_s: float = 0.0) -> CapacityReached:
    return CapacityReached("full", retry_after_s=retry_after_s)


def client_of(
    urls: str | list[str], transport: httpx.AsyncBaseTransport | None, **options: Any
) -> SQLEnvClient:
    """Return a client with short waits. `options` are fields of `ClientLimits` and arguments of
    the client."""
    options = QUICK | options
    limits = {name: options.pop(name) for name in ClientLimits.__annotations__ if name in options}
    return SQLEnvClient(urls, ClientLimits(**limits), transport=transport, **options)


class FakeServer:
    """Plays episodes whose observations echo the action; an ANSWER, or the budget's end, ends one.

    `faults` are used up one per request to /step_batch or /reset_batch; `lose_replies` requests are
    played and their replies lost; `item_errors` (episode id -> errors) are used up one per item;
    each reply takes `delay_s`. It refuses connections while it is `down`; while it is not `awake`
    it accepts requests and does nothing. `shards`: the number that it states, as a gateway does.
    """

    def __init__(self, digest: str = "d1") -> None:
        self.digest = digest
        self.episodes: dict[str, dict[str, Any]] = {}
        self.faults: deque[Callable[[], Reply]] = deque()
        self.item_errors: dict[str, list[SQLEnvError]] = {}
        self.lose_replies = 0
        self.delay_s = 0.0
        self.requests: list[tuple[str, int]] = []  # (path, items)
        self.headers: list[dict[str, str]] = []
        self.steps_played = 0  # repeats not counted
        self.in_flight = self.most_in_flight = 0
        self.ready = True
        self.down = False
        self.awake = asyncio.Event()
        self.awake.set()
        self.shards: int | None = None

    def client(self, **options: Any) -> SQLEnvClient:
        return client_of(URL, httpx.ASGITransport(self), **options)

    def restart(self) -> None:
        self.episodes.clear()

    def sent(self, path: str) -> list[int]:
        return [items for requested, items in self.requests if requested == path]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body", False) or message.get("body"):
            body += message["body"]
        if self.down:
            raise httpx.ConnectError("refused")
        await self.awake.wait()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        try:
            status, answer, headers = await self.answer(scope, body)
        finally:
            self.in_flight -= 1
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": content})

    async def answer(self, scope: Any, body: bytes) -> Reply:
        path = scope["path"]
        if not path.endswith("_batch"):
            self.requests.append((path, 1))
            return self.single(scope["method"], path, scope["query_string"].decode())
        items = next(iter(json.loads(body).values()))
        self.requests.append((path, len(items)))
        await asyncio.sleep(self.delay_s)
        if self.faults:
            return self.faults.popleft()()
        play = self.reset if path == "/reset_batch" else self.step
        results = [self.item(play, item) for item in items]
        if self.lose_replies:
            self.lose_replies -= 1
            raise httpx.ReadError("reply lost")
        return 200, {"results": results}, {}

    def item(
        self, play: Callable[[dict[str, Any]], dict[str, Any]], item: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            if errors := self.item_errors.get(item["episode_id"]):
                raise errors.pop(0)
            return play(item)
        except SQLEnvError as error:
            return error.to_wire()

    def single(self, method: str, path: str, query: str) -> Reply:
        if path == "/metadata":
            texts = ("name", "description", "version", "reward_version", "sqlite_version")
            fields = dict.fromkeys((*texts, "data_digest"), "0") | {"digest": self.digest}
            counts = {"questions": {}, "databases": 0, "capacity": 1}
            rules = {"standard": DEFAULT_STANDARD, "step_budget": DEFAULT_STEP_BUDGET}
            shards = {} if self.shards is None else {"X-Affinity-Lanes": str(self.shards)}
            return 200, {**fields, **counts, **rules}, shards
        if path == "/health":
            return 200, {"status": "healthy"}, {}
        if path == "/ready":
            return (200, {"status": "ready"}, {}) if self.ready else (503, None, {})
        closes = path.removeprefix("/episodes/") if method == "DELETE" else ""
        episode_id = closes or query.removeprefix("episode_id=")
        if episode_id not in self.episodes:
            return 404, UnknownEpisode("no such episode").to_wire(), {}
        episode = self.episodes[episode_id]
        if closes:
            if not (query == "moved=1" and self.result(episode, "")["done"]):
                del self.episodes[episode_id]
            return 200, {}, {}
        texts = {"episode_id": episode_id, "question": "?", "db_id": "db", "done": False}
        counts = {"step_count": len(episode["actions"]), "step_budget": episode["budget"]}
        asked = {"question_id": episode["question_id"], "action_history": episode["actions"]}
        return 200, texts | counts | asked, {}

    def reset(self, item: dict[str, Any]) -> dict[str, Any]:
        if item.get("digest", self.digest) != self.digest:
            raise DigestMismatch("another digest")
        episode = {"question_id": item.get("question_id", "picked"), "actions": [], "replies": []}
        episode["budget"] = item.get("step_budget", DEFAULT_STEP_BUDGET)
        self.episodes[item["episode_id"]] = episode
        answer = self.result(episode, "")
        for action in item.get("actions", []):
            answer = self.play(episode, action)
        return answer | {"episode_id": item["episode_id"]}

    def step(self, item: dict[str, Any]) -> dict[str, Any]:
        episode = self.episodes.get(item["episode_id"])
        if episode is None:
            raise UnknownEpisode("no such episode: reset it with its actions")
        answered = len(episode["actions"])
        step = item.get("step", answered)
        if step > answered:
            raise Behind("slept")
        if step < answered:
            if episode["actions"][step] != item["action"]:
                raise Conflict("another action was answered")
            return dict(episode["replies"][step])
        return self.play(episode, item["action"])

    def play(self, episode: dict[str, Any], action: str) -> dict[str, Any]:
        if ":" not in action:
            raise ActionParseError(f"not an action: {action}")
        self.steps_played += 1
        episode["actions"].append(action)
        answer = self.result(episode, f"played {action}")
        episode["replies"].append(answer)
        return answer

    def result(self, episode: dict[str, Any], text: str) -> dict[str, Any]:
        actions = episode["actions"]
        left = episode["budget"] - len(actions)
        done = left == 0 or bool(actions and actions[-1].startswith("ANSWER"))
        reward = -0.02 if actions else None
        sums = ("operational", "progress", "correctness", "potential", "total")
        ledger = {"step": {}, **dict.fromkeys(sums, 0)}
        texts = {"question": "?", "schema_info": "Tables: t", "result": text}
        counts = {"step_count": len(actions), "budget_remaining": left}
        reply = {"reward": reward, "done": done}
        observation = {**texts, **counts, **reply, "action_history": list(actions)}
        info = {"question_id": episode["question_id"], "reward_version": "0", "ledger": ledger}
        return {**reply, "observation": observation, "info": info}


class Routes(httpx.AsyncBaseTransport):
    """Routes by host name to one fake server each; other hosts refuse connections."""

    def __init__(self, servers: dict[str, FakeServer]) -> None:
        self.servers = servers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        server = self.servers.get(request.url.host)
        if server is None:
            raise httpx.ConnectError("no such host")
        return await httpx.ASGITransport(server).handle_async_request(request)


class FakeGateway:
    """Sends each value of X-Affinity to one of the servers that are not `away`, as HAProxy does."""

    def __init__(self, servers: list[FakeServer]) -> None:
        self.servers, self.away = servers, set[int]()
        for server in servers:
            server.shards = 16

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        names = [f"server{n}" for n in range(len(self.servers)) if n not in self.away]
        chosen = headers.get(b"x-server", b"").decode()
        if chosen not in names:
            chosen = max(names, key=lambda name: score(name, str(headers.get(b"x-affinity"))))

        async def named(message: Any) -> None:
            message.get("headers", []).append((b"x-server", chosen.encode()))
            await send(message)

        await self.servers[int(chosen.removeprefix("server"))](scope, receive, named)


@asynccontextmanager
async def playing(*ids: str, **options: Any) -> AsyncIterator[tuple[FakeServer, SQLEnvClient]]:
    """Open a client of a new server and start an episode for each id."""
    server = FakeServer()
    async with server.client(**options) as client:
        await begin(client, ids)
        yield server, client


@asynccontextmanager
async def fleet(
    count: int = 3, ids: Sequence[str] = IDS, **options: Any
) -> AsyncIterator[tuple[list[FakeServer], SQLEnvClient]]:
    """Open a client of servers at `URLS` and start an episode for each id."""
    servers = [FakeServer() for _ in range(count)]
    routes = Routes(dict(zip(HOSTS, servers, strict=False)))
    async with client_of(URLS[:count], routes, **({"stall_s": STALL_S} | options)) as client:
        await begin(client, ids)
        yield servers, client


def pick_url(urls: Sequence[str], episode_id: str) -> str:
    """Return the URL of the server that plays an episode."""
    return max(urls, key=lambda url: score(url, episode_id))


def placed_on(url: str, ids: Sequence[str] = IDS) -> list[str]:
    return [name for name in ids if pick_url(URLS, name) == url]


def pooled(servers: Sequence[FakeServer]) -> list[set[str]]:
    """Return the episodes of each server."""
    return [set(server.episodes) for server in servers]


async def begin(client: SQLEnvClient, ids: Sequence[str] = IDS) -> None:
    for reply in await client.reset_many(
        [{"episode_id": name, "question_id": f"q-{name}"} for name in ids]
    ):
        assert not isinstance(reply, SQLEnvError), reply


async def turn(client: SQLEnvClient, number: int, ids: Sequence[str] = IDS) -> None:
    """Play a step of each; its reply must be the one of a server that never fails."""
    replies = await client.step_many((name, f"QUERY: {number}") for name in ids)
    for name, reply in zip(ids, replies, strict=True):
        assert isinstance(reply, StepResult), reply
        assert reply.observation.action_history == [f"QUERY: {k}" for k in range(number + 1)]
        assert reply.observation.result == f"played QUERY: {number}"
        assert reply.info.question_id == f"q-{name}"


def history(reply: StepResult | SQLEnvError) -> list[str]:
    assert isinstance(reply, StepResult), reply
    return reply.observation.action_history
