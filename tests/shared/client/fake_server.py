"""A small environment server that fails on demand, as an ASGI app; and `drive`, which runs a test's
coroutine."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import httpx

from shared.client import ClientLimits, SQLEnvClient
from shared.errors import (
    ActionParseError,
    Behind,
    CapacityReached,
    Conflict,
    DigestMismatch,
    SQLEnvError,
    UnknownEpisode,
)
from shared.models import DEFAULT_STANDARD, DEFAULT_STEP_BUDGET

T = TypeVar("T")
URL = "http://fake"
QUICK: dict[str, Any] = {
    "backoff_s": 0.001,
    "longest_wait_s": 0.01,
    "timeout_s": 5.0,
    "max_attempts": 4,
}


def drive(main: Coroutine[Any, Any, T], timeout_s: float = 20.0) -> T:
    """Run `main`; fail if it leaves a task behind."""

    async def watched() -> T:
        result = await asyncio.wait_for(main, timeout_s)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left running: {left}"
        return result

    return asyncio.run(watched())


def reply(
    status: int, body: Any = None, headers: dict[str, str] | None = None
) -> Callable[[], tuple[int, Any, Any]]:
    """A fault: this reply, and the request is not looked at."""
    return lambda: (status, body, headers or {})


def dropped(error: type[Exception] = httpx.ReadError) -> Callable[[], tuple[int, Any, Any]]:
    """A fault: the connection ends before the request is looked at."""

    def fault() -> tuple[int, Any, Any]:
        raise error("connection lost")

    return fault


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
        self.faults: deque[Callable[[], tuple[int, Any, Any]]] = deque()
        self.item_errors: dict[str, list[SQLEnvError]] = {}
        self.lose_replies = 0
        self.delay_s = 0.0
        self.max_items = 10_000
        self.requests: list[tuple[str, int]] = []  # (path, items)
        self.headers: list[dict[str, str]] = []
        self.steps_played = 0  # repeats not counted
        self.in_flight = 0
        self.most_in_flight = 0
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
        """Return the number of items of each request to `path`."""
        return [items for requested, items in self.requests if requested == path]

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
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

    async def answer(self, scope: Any, body: bytes) -> tuple[int, Any, dict[str, str]]:
        path = scope["path"]
        if not path.endswith("_batch"):
            self.requests.append((path, 1))
            return self.single(scope["method"], path, scope["query_string"].decode())
        items = next(iter(json.loads(body).values()))
        self.requests.append((path, len(items)))
        await asyncio.sleep(self.delay_s)
        if self.faults:
            return self.faults.popleft()()
        if len(items) > self.max_items:
            return (
                413,
                {"error": {"code": "body_too_large", "message": "too large", "retryable": False}},
                {},
            )
        results = [
            self.item(self.reset if path == "/reset_batch" else self.step, item) for item in items
        ]
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

    def single(self, method: str, path: str, query: str) -> tuple[int, Any, dict[str, str]]:
        if path == "/metadata":
            names = {
                "name": "fake",
                "description": "",
                "version": "0",
                "reward_version": "0",
                "sqlite_version": "0",
                "standard": DEFAULT_STANDARD,
            }
            counts = {
                "questions": {},
                "databases": 0,
                "step_budget": DEFAULT_STEP_BUDGET,
                "capacity": 1,
            }
            shards = {} if self.shards is None else {"X-Affinity-Lanes": str(self.shards)}
            return 200, names | counts | {"digest": self.digest, "data_digest": ""}, shards
        if path == "/health":
            return 200, {"status": "healthy"}, {}
        if path == "/ready":
            return (200, {"status": "ready"}, {}) if self.ready else (503, None, {})
        episode_id = (
            query.removeprefix("episode_id=")
            if path == "/state"
            else path.removeprefix("/episodes/")
        )
        if episode_id not in self.episodes:
            return 404, UnknownEpisode("no such episode").to_wire(), {}
        if method == "DELETE":
            del self.episodes[episode_id]
            return 200, {}, {}
        episode = self.episodes[episode_id]
        return 200, self.state(episode_id, episode), {}

    def state(self, episode_id: str, episode: dict[str, Any]) -> dict[str, Any]:
        return {
            "episode_id": episode_id,
            "question_id": episode["question_id"],
            "question": "?",
            "db_id": "db",
            "step_count": len(episode["actions"]),
            "step_budget": episode["budget"],
            "action_history": episode["actions"],
            "done": False,
        }

    def reset(self, item: dict[str, Any]) -> dict[str, Any]:
        if item.get("digest", self.digest) != self.digest:
            raise DigestMismatch("another digest")
        episode = {
            "question_id": item.get("question_id", "picked"),
            "budget": item.get("step_budget", DEFAULT_STEP_BUDGET),
        }
        episode |= {"actions": [], "replies": []}
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
        ledger = {
            "step": {},
            "operational": 0,
            "progress": 0,
            "correctness": 0,
            "potential": 0,
            "total": 0,
        }
        observation = {
            "question": "?",
            "schema_info": "Tables: t",
            "result": text,
            "step_count": len(actions),
            "budget_remaining": left,
            "action_history": list(actions),
            "done": done,
            "reward": reward,
        }
        info = {"question_id": episode["question_id"], "reward_version": "0", "ledger": ledger}
        return {"observation": observation, "reward": reward, "done": done, "info": info}


class Routes(httpx.AsyncBaseTransport):
    """Routes by host name to one fake server each; other hosts refuse connections."""

    def __init__(self, servers: dict[str, FakeServer]) -> None:
        self.servers = servers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        server = self.servers.get(request.url.host)
        if server is None:
            raise httpx.ConnectError("no such host")
        return await httpx.ASGITransport(server).handle_async_request(request)


def capacity(retry_after_s: float = 0.0) -> CapacityReached:
    return CapacityReached("full", retry_after_s=retry_after_s)
