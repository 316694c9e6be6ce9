"""`Wire`: a server from its clients' side. Sends requests as they are; a `Reply` judges itself."""

import uuid
from collections.abc import Sequence
from typing import Any

import httpx
from pydantic import BaseModel

from shared.dataset import Question
from shared.errors import SQLEnvError
from shared.models import ResetResult


class Failed(Exception):
    """A check failed; the message reports what was expected and what came."""


class Skipped(Exception):
    """A check can't run on this server; the message gives the reason."""


def expect(condition: object, message: str) -> None:
    """Raise `Failed` unless the condition holds."""
    if not condition:
        raise Failed(message)


def equal(found: object, expected: object, what: str) -> None:
    """Raise `Failed` unless the two are equal."""
    expect(found == expected, f"{what} must be {brief(repr(expected))}, not {brief(repr(found))}")


def brief(value: object, max_chars: int = 160) -> str:
    """Return a value for a message, on one line and cut."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


class Reply:
    """A reply of any status. `body` is its JSON, if it is. Methods raise `Failed`."""

    def __init__(self, response: httpx.Response) -> None:
        self.status, self.content = response.status_code, response.content
        self.headers, self.text = response.headers, brief(response.text)
        try:
            self.body: Any = response.json()
        except ValueError:
            self.body = None

    @property
    def seen(self) -> Any:
        """The observation of a reply to a reset or a step."""
        return self.body["observation"]

    def ok(self, request: str) -> "Reply":
        """Return this reply, which must be 200 and a JSON object."""
        ok = self.status == 200 and isinstance(self.body, dict)
        expect(ok, f"{request} gave HTTP {self.status}: {self.text}")
        return self

    def error(self, request: str) -> dict[str, Any]:
        """Return the fields of this reply, which must be an error in the one shape."""
        fields = self.body.get("error") if isinstance(self.body, dict) else None
        shaped = isinstance(fields, dict) and set(self.body) == {"error"}
        shaped &= self.headers.get("content-type", "").startswith("application/json")
        found: dict[str, Any] = dict(fields) if shaped and fields else {}
        kinds = [type(found.get(name)) for name in ("code", "message", "retryable")]
        needed = "must be JSON with one error of code, message and retryable"
        expect(
            kinds == [str, str, bool], f"{request}: HTTP {self.status} {needed}, not {self.text}"
        )
        short = found["code"] and 0 < len(found["message"]) < 2_000
        expect(short, f"{request}: an error must not be empty, nor repeat what was sent")
        return found

    def refused(self, expected: type[SQLEnvError], request: str) -> str:
        """Return the message of this reply, which must be an error of this status and code."""
        wanted = f"{request} must be {expected.status} {expected.code}"
        expect(self.status == expected.status, f"{wanted}, not {self.status} {self.text}")
        error = self.error(request)
        expect(error["code"] == expected.code, f"{wanted}, not {error['code']}")
        return str(error["message"])

    def shaped(self, model: type[BaseModel]) -> Any:
        """Return this reply as `model`; at any depth it must have exactly its fields."""
        result = model.model_validate(self.body)
        same = result.model_dump(mode="json") == self.body
        expect(same, f"a reply has other fields or types than a {model.__name__}: {self.text}")
        return result


class Wire:
    """The server at the base URL of `client`; `second` is a client with an agent's key."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        second: httpx.AsyncClient | None = None,
        questions: Sequence[Question] = (),
    ) -> None:
        self.client = client
        self._second = None if second is None else Wire(second)
        self._questions = questions
        self._started: list[str] = []  # episodes

    @property
    def second(self) -> "Wire":
        """The same server with the other key."""
        if self._second is None:
            raise Skipped("needs --second-api-key")
        return self._second

    @property
    def questions(self) -> Sequence[Question]:
        if not self._questions:
            raise Skipped("needs --data")
        return self._questions

    async def send(self, method: str, path: str, **options: Any) -> Reply:
        """Send a request and return its reply, whatever its status. `options` are httpx's."""
        return Reply(await self.client.request(method, path, **options))

    async def get(self, path: str) -> Reply:
        """Return the reply to a GET, which must be 200 and a JSON object."""
        return (await self.send("GET", path)).ok(f"GET {path}")

    async def post(self, path: str, body: Any) -> Reply:
        return await self.send("POST", path, json=body)

    async def step(self, episode: ResetResult | str, action: Any, step: int = 0) -> Reply:
        """Take an episode's step, counted from 0."""
        name = episode if isinstance(episode, str) else episode.episode_id
        return await self.post("/step", {"episode_id": name, "action": action, "step": step})

    async def steps(self, episode: ResetResult, actions: Sequence[Any]) -> list[Reply]:
        """Take steps in a row, each of which must be answered with 200."""
        numbered = enumerate(actions)
        return [(await self.step(episode, one, n)).ok(f"step {n}") for n, one in numbered]

    async def start(self, **fields: Any) -> ResetResult:
        """Reset under a fresh id; without a question, that of seed 0."""
        chosen = {} if "question_id" in fields else {"seed": 0}
        reply = await self.post("/reset", {"episode_id": fresh_id(), **chosen, **fields})
        result = ResetResult.model_validate(reply.ok("a reset").body)
        self._started.append(result.episode_id)
        return result

    async def end(self, episode_id: str) -> Reply:
        """Close an episode, whatever became of it."""
        return await self.send("DELETE", f"/episodes/{episode_id}")

    async def end_all(self) -> None:
        """Close the episodes that `start` returned."""
        while self._started:
            await self.end(self._started.pop())
        if self._second is not None:
            await self._second.end_all()


def fresh_id() -> str:
    return f"conformance-{uuid.uuid4()}"


def options_of(episode: ResetResult) -> dict[str, Any]:
    """Return the fields of a reset that asks for the same episode under another id."""
    budget = episode.observation.budget_remaining
    return {"question_id": episode.info.question_id, "step_budget": budget}
