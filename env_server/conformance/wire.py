"""`Wire`: a server as its clients see it. Sends requests as they stand and gives replies as bytes
and as JSON."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import httpx

from shared.errors import ServerUnreachable
from shared.models import ResetResult, ServerMetadata


class Failed(Exception):
    """A check failed; the message says what was expected and what came."""


class Skipped(Exception):
    """A check can't be made on this server; the message says why."""


def expect(condition: object, message: str) -> None:
    """`Failed` unless the condition holds."""
    if not condition:
        raise Failed(message)


def brief(value: Any, most: int = 160) -> str:
    """A value for a message, on one line and cut."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True)
class Reply:
    """`body` is the JSON, or None where it is none."""

    status: int
    content: bytes
    body: Any
    headers: httpx.Headers

    @property
    def error(self) -> dict[str, Any]:
        """The error's fields; `Failed` where the reply is no error in the one shape."""
        fields = self.body.get("error") if isinstance(self.body, dict) else None
        expect(
            isinstance(fields, dict) and set(self.body) == {"error"},
            f"HTTP {self.status} without an error object: {brief(self.content.decode(errors='replace'))}",
        )
        return dict(fields or {})


@dataclass(frozen=True)
class Episode:
    """An episode of ours: its id, the reply to its reset, and what to reset again for the same."""

    episode_id: str
    question_id: str
    step_budget: int
    reset: ResetResult


class Wire:
    """`client` has the server's base URL. Transport errors become `ServerUnreachable`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def send(self, method: str, path: str, **options: Any) -> Reply:
        """A request -> its reply, whatever its status. `options` are httpx's."""
        try:
            reply = await self.client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ServerUnreachable(
                f"{method} {self.client.base_url.join(path)} failed: {type(error).__name__} {error}".strip()
            ) from error
        try:
            body = json.loads(reply.content)
        except ValueError:
            body = None
        return Reply(reply.status_code, reply.content, body, reply.headers)

    async def post(self, path: str, body: Any) -> Reply:
        return await self.send("POST", path, json=body)

    async def step(self, episode: Episode | str, action: Any, step: int | None = None) -> Reply:
        """A step; without `step` as one that is not repeated."""
        body = {
            "episode_id": episode if isinstance(episode, str) else episode.episode_id,
            "action": action,
        }
        return await self.post("/step", body if step is None else body | {"step": step})

    async def steps(self, episode: Episode, actions: list[Any], start: int = 0) -> list[Reply]:
        """Steps in a row, each of which must be answered with 200."""
        return [
            self.ok(await self.step(episode, action, start + i), f"step {start + i}")
            for i, action in enumerate(actions)
        ]

    async def begin(self, step_budget: int | None = None, **fields: Any) -> Episode:
        """A reset under a fresh id of ours; without a question, that of seed 0."""
        if "question_id" not in fields:
            fields.setdefault("seed", 0)
        if step_budget is not None:
            fields["step_budget"] = step_budget
        reply = self.ok(await self.post("/reset", {"episode_id": fresh_id(), **fields}), "a reset")
        result = ResetResult.model_validate(reply.body)
        seen = result.observation
        return Episode(
            result.episode_id,
            result.info.question_id,
            seen.step_count + seen.budget_remaining,
            result,
        )

    async def end(self, *episodes: Episode) -> None:
        """Close episodes, whatever became of them."""
        for episode in episodes:
            await self.send("DELETE", f"/episodes/{episode.episode_id}")

    async def metadata(self) -> ServerMetadata:
        return ServerMetadata.model_validate(
            self.ok(await self.send("GET", "/metadata"), "GET /metadata").body
        )

    @staticmethod
    def ok(reply: Reply, what: str) -> Reply:
        """The reply, which must be 200 and JSON."""
        text = brief(reply.content.decode(errors="replace"))
        expect(
            reply.status == 200 and isinstance(reply.body, dict),
            f"{what} gave HTTP {reply.status}: {text}",
        )
        return reply


def fresh_id() -> str:
    return f"conformance-{uuid.uuid4()}"


def tables_of(schema_info: str) -> list[str]:
    """The tables that the first line of `schema_info` names."""
    first = schema_info.split("\n", 1)[0]
    expect(
        first.startswith("Tables: "),
        f"schema_info must begin with 'Tables: a, b', not {brief(first)!r}",
    )
    return first.removeprefix("Tables: ").split(", ")
