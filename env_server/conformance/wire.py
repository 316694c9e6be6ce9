"""`Wire`: a server from its clients' side. Sends requests as they are, returns bytes and JSON."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import httpx

from shared.errors import ServerUnreachable
from shared.models import ResetResult, ServerMetadata


class Failed(Exception):
    """A check failed; the message reports what was expected and what came."""


class Skipped(Exception):
    """A check can't run on this server; the message gives the reason."""


def expect(condition: object, message: str) -> None:
    """Raise `Failed` unless the condition holds."""
    if not condition:
        raise Failed(message)


def brief(value: Any, max_chars: int = 160) -> str:
    """Return a value for a message, on one line and cut."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


@dataclass(frozen=True)
class Reply:
    """`body` is the JSON, or None if the content is not JSON."""

    status: int
    content: bytes
    body: Any
    headers: httpx.Headers

    @property
    def text(self) -> str:
        """The content, for a message."""
        return brief(self.content.decode(errors="replace"))

    @property
    def seen(self) -> Any:
        """The observation of a reply to a reset or a step."""
        return self.body["observation"]

    @property
    def error(self) -> dict[str, Any]:
        """The error's fields. Raises `Failed` if the reply is not an error in the one shape."""
        fields = self.body.get("error") if isinstance(self.body, dict) else None
        shaped = isinstance(fields, dict) and set(self.body) == {"error"}
        expect(shaped, f"HTTP {self.status} without an error object: {self.text}")
        return dict(fields or {})


@dataclass(frozen=True)
class WireEpisode:
    """An episode of this suite: its id, the reply to its reset, and what resets the same again."""

    episode_id: str
    question_id: str
    step_budget: int
    reset: ResetResult

    @property
    def tables(self) -> list[str]:
        """The tables that the reset listed."""
        return self.reset.observation.tables

    @property
    def options(self) -> dict[str, Any]:
        """The fields of a reset that asks for the same episode under another id."""
        return {"question_id": self.question_id, "step_budget": self.step_budget}


class Wire:
    """`client` has the server's base URL. Transport errors become `ServerUnreachable`.

    `second` is the same server with another key, an agent's, or None.
    """

    def __init__(self, client: httpx.AsyncClient, second: httpx.AsyncClient | None = None) -> None:
        self.client = client
        self.second = None if second is None else Wire(second)
        self._started: list[WireEpisode] = []

    async def send(self, method: str, path: str, **options: Any) -> Reply:
        """Send a request and return its reply, whatever its status. `options` are httpx's."""
        try:
            reply = await self.client.request(method, path, **options)
        except httpx.HTTPError as error:
            url, reason = self.client.base_url.join(path), f"{type(error).__name__} {error}"
            raise ServerUnreachable(f"{method} {url} failed: {reason}".strip()) from error
        try:
            body = json.loads(reply.content)
        except ValueError:
            body = None
        return Reply(reply.status_code, reply.content, body, reply.headers)

    async def post(self, path: str, body: Any) -> Reply:
        return await self.send("POST", path, json=body)

    async def step(self, episode: WireEpisode | str, action: Any, step: int | None = None) -> Reply:
        """Take a step; `step` None leaves that field out."""
        episode_id = episode if isinstance(episode, str) else episode.episode_id
        body = {"episode_id": episode_id, "action": action}
        return await self.post("/step", body if step is None else body | {"step": step})

    async def steps(self, episode: WireEpisode, actions: list[Any]) -> list[Reply]:
        """Take steps in a row, each of which must be answered with 200."""
        return [
            self.ok(await self.step(episode, action, number), f"step {number}")
            for number, action in enumerate(actions)
        ]

    async def start(self, step_budget: int | None = None, **fields: Any) -> WireEpisode:
        """Reset under a fresh id; without a question, that of seed 0."""
        if "question_id" not in fields:
            fields.setdefault("seed", 0)
        if step_budget is not None:
            fields["step_budget"] = step_budget
        reply = self.ok(await self.post("/reset", {"episode_id": fresh_id(), **fields}), "a reset")
        result = ResetResult.model_validate(reply.body)
        budget = result.observation.step_count + result.observation.budget_remaining
        episode = WireEpisode(result.episode_id, result.info.question_id, budget, result)
        self._started.append(episode)
        return episode

    async def state(self, episode: WireEpisode) -> Reply:
        query = {"episode_id": episode.episode_id}
        return self.ok(await self.send("GET", "/state", params=query), "GET /state")

    async def end(self, episode: WireEpisode) -> None:
        """Close an episode, whatever became of it."""
        await self.send("DELETE", f"/episodes/{episode.episode_id}")

    async def end_all(self) -> None:
        """Close the episodes that `start` returned."""
        while self._started:
            await self.end(self._started.pop())
        if self.second is not None:
            await self.second.end_all()

    async def metadata(self) -> ServerMetadata:
        reply = self.ok(await self.send("GET", "/metadata"), "GET /metadata")
        return ServerMetadata.model_validate(reply.body)

    @staticmethod
    def ok(reply: Reply, request: str) -> Reply:
        """Return the reply, which must be 200 and JSON."""
        ok = reply.status == 200 and isinstance(reply.body, dict)
        expect(ok, f"{request} gave HTTP {reply.status}: {reply.text}")
        return reply


def fresh_id() -> str:
    return f"conformance-{uuid.uuid4()}"
