"""The client of the environment servers: plays any number of episodes at once.

    async with SQLEnvClient("http://127.0.0.1:8000") as client:
        first = await client.reset(question_id="q1")
        reply = await client.step(first.episode_id, "DESCRIBE: singer")

    with SQLEnvClient(["http://a:8000", "http://b:8000"]).sync() as client:    # the same methods, without await
        first = client.reset(split="train", seed=7)

    with in_process(app).sync() as client:                                     # no server: the app runs in this process
        ...

Steps (and resets) that are started together go to their server in one request, so start many at once: with
`asyncio.gather`, or `step_many`. Every failure is a `shared.errors.SQLEnvError`; a lost connection, a busy server and a
server that has lost the episode are mended here, and what reaches the caller is past mending.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

import httpx
from pydantic import BaseModel, ValidationError

from shared.actions import SQLAction, render_action
from shared.errors import Behind, DigestMismatch, ServerUnreachable, SQLEnvError, UnknownEpisode, is_retryable
from shared.in_process import ASGIApp, InProcessTransport
from shared.keys import bearer
from shared.models import AnswerForm, EpisodeVerdicts, ResetResult, ServerMetadata, SQLState, StepResult
from shared.replicas import CONNECT_TIMEOUT_S, ClientLimits, ClientStats, Replica, encode, normalise_urls, pick_url
from shared.retry import RetryPolicy

if TYPE_CHECKING:
    from shared.sync import SyncSQLEnvClient

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

KEEPALIVE_S = 4.0  # below uvicorn's 5 s, so that no request meets a connection that the server is about to close
HEALTH_TIMEOUT_S = 5.0
READY_POLL_S = (0.1, 2.0)  # first and longest wait between two looks at a server that is not ready


@dataclass(slots=True)
class _Episode:
    """What rebuilds an open episode: its question, its options and its actions."""

    replica: Replica
    digest: str
    question_id: str
    step_budget: int | None
    answer_form: str | None
    actions: list[str]
    order: asyncio.Lock = field(default_factory=asyncio.Lock)  # one step at a time


class SQLEnvClient:
    """Episodes on one or several environment servers.

    `urls`: one server or several; an episode's id decides which plays it. `transport` replaces the network (tests, an
    app in this process). A request may take `timeout_s` and is tried `max_attempts` times, with waits that begin near
    `backoff_s` seconds and double up to `longest_wait_s`. Up to `max_batch` steps or resets travel in one request, and
    `batches_in_flight` such requests of each kind per server. `api_key`, or else the environment's SQLENV_API_KEY, is
    shown to every server. Use it inside `async with`, in one event loop.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = 60.0,
        max_attempts: int = 8,
        backoff_s: float = 0.25,
        longest_wait_s: float = 10.0,
        max_batch: int = 256,
        batches_in_flight: int = 2,
        api_key: str | None = None,
    ) -> None:
        limits = ClientLimits(timeout_s=timeout_s, max_batch=max_batch, batches_in_flight=batches_in_flight)
        retry = RetryPolicy(max_attempts, backoff_s, longest_wait_s)
        self.stats = ClientStats()
        self._http = httpx.AsyncClient(
            transport=transport,
            headers=bearer(api_key),
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, timeout_s)),  # the rest: one deadline a request
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S),
            # A gateway's cookie would tie every episode to one server.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        self._replicas = {url: Replica(url, self._http, limits, retry, self.stats) for url in normalise_urls(urls)}
        self._episodes: dict[str, _Episode] = {}
        self._waiting = 0  # calls under way
        self._waiting_since = 0.0

    @property
    def urls(self) -> list[str]:
        return list(self._replicas)

    @property
    def open_episodes(self) -> list[str]:
        """Ids of the episodes that this client began and that neither ended nor were closed."""
        return list(self._episodes)

    def sync(self) -> "SyncSQLEnvClient":
        """This client's methods without `await`, for use inside `with`."""
        from shared.sync import SyncSQLEnvClient  # it wraps this class

        return SyncSQLEnvClient(self)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends what is under way and the connections. Open episodes stay on their servers until their leases end."""
        for replica in self._replicas.values():
            await replica.close()
        self._episodes.clear()
        await self._http.aclose()

    async def reset(
        self,
        *,
        question_id: str | None = None,
        split: str | None = None,
        difficulty: str | Sequence[str] | None = None,
        db_id: str | None = None,
        seed: int | None = None,
        step_budget: int | None = None,
        answer_form: AnswerForm | None = None,
        episode_id: str | None = None,
        actions: Sequence[SQLAction | str] | None = None,
        digest: str | None = None,
    ) -> ResetResult:
        """Begins an episode, under an id made here unless one is given. See `shared.models.ResetRequest`.

        With `actions`, the episode starts with them played, and the reply is the last one's. With `digest`, a server
        whose data or rules differ refuses (`DigestMismatch`).
        """
        episode_id = episode_id or str(uuid4())
        played = [_text(action) for action in actions or ()]
        return await self._timed(
            self._reset(
                episode_id=episode_id,
                question_id=question_id,
                split=split,
                difficulty=difficulty if difficulty is None or isinstance(difficulty, str) else list(difficulty),
                db_id=db_id,
                seed=seed,
                step_budget=step_budget,
                answer_form=answer_form,
                actions=played or None,
                digest=digest,
            )
        )

    async def step(self, episode_id: str, action: SQLAction | str, step: int | None = None) -> StepResult:
        """Plays one action and returns what came of it.

        `step` is how many steps the caller has seen answered; the client fills it in for its own episodes. Repeating an
        answered step returns its stored reply. An episode that the server has lost is rebuilt first, once. A call that
        was cancelled may or may not have been played: repeat it with the same action, or reset.
        """
        return await self._timed(self._step(episode_id, _text(action), step))

    async def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> list[ResetResult | SQLEnvError]:
        """`reset(**request)` for each, at once: results in order, an error in the place of its item."""
        return await _gather([self.reset(**request) for request in requests])

    async def step_many(self, steps: Iterable[tuple[str, SQLAction | str]]) -> list[StepResult | SQLEnvError]:
        """`step(episode_id, action)` for each, at once: results in order, an error in the place of its item."""
        return await _gather([self.step(episode_id, action) for episode_id, action in steps])

    async def close_episode(self, episode_id: str) -> None:
        """Ends an episode and frees its place. One that the server does not hold is closed already."""
        episode = self._episodes.pop(episode_id, None)
        replica = episode.replica if episode else self._replica(episode_id)
        with suppress(UnknownEpisode):
            await self._timed(replica.close_episode(episode_id))

    async def state(self, episode_id: str) -> SQLState:
        """Where an episode stands, as its server says; one of this client's that is lost there is rebuilt first."""
        replica = self._replica(episode_id)
        return _parse(SQLState, await self._timed(self._mended(episode_id, lambda: replica.state(episode_id))))

    async def verdicts(self, episode_id: str) -> EpisodeVerdicts:
        """An ended episode's answer by every standard. For people and reports, never for the agent."""
        replica = self._replica(episode_id)
        return _parse(EpisodeVerdicts, await self._timed(replica.verdicts(episode_id)))

    async def metadata(self) -> ServerMetadata:
        """What the servers are; `DigestMismatch` naming two that differ in data or rules."""
        replicas = list(self._replicas.values())
        bodies = await self._timed(_all([replica.call("GET", "/metadata") for replica in replicas]))
        found = [_parse(ServerMetadata, body) for body in bodies]
        for replica, metadata in zip(replicas, found, strict=True):
            if metadata.digest != found[0].digest:
                raise DigestMismatch(
                    f"{replica.url} and {replicas[0].url} serve different data or rules (digests"
                    f" {metadata.digest[:12]} and {found[0].digest[:12]}); start both with the same data and version"
                )
        return found[0]

    async def health(self) -> dict[str, str]:
        """URL -> the status that each server states; asked once, without retries."""
        replicas = self._replicas.values()
        bodies = await _all([replica.call_once("GET", "/health", timeout_s=HEALTH_TIMEOUT_S) for replica in replicas])
        return {
            replica.url: str(body.get("status", "")) if isinstance(body, dict) else ""
            for replica, body in zip(replicas, bodies, strict=True)
        }

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Returns when every server is ready to play; `ServerUnreachable` naming the first that is not in time."""
        await self._timed(_all([_until_ready(replica, timeout_s) for replica in self._replicas.values()]))

    def _replica(self, episode_id: str) -> Replica:
        episode = self._episodes.get(episode_id)
        if episode is not None:
            return episode.replica
        urls = self.urls
        return self._replicas[urls[0] if len(urls) == 1 else pick_url(urls, episode_id)]

    async def _reset(
        self, *, episode_id: str, step_budget: int | None, answer_form: str | None, **options: Any
    ) -> ResetResult:
        request = {"episode_id": episode_id, "step_budget": step_budget, "answer_form": answer_form, **options}
        item = encode({name: value for name, value in request.items() if value is not None})
        replica = self._replica(episode_id)
        digest = await replica.digest()
        result = _parse(ResetResult, await replica.reset(item))
        if result.done:
            self._episodes.pop(episode_id, None)
        else:
            # Its canonical texts, which a rebuild is compared with.
            actions = list(result.observation.action_history)
            question_id = result.info.question_id
            self._episodes[episode_id] = _Episode(replica, digest, question_id, step_budget, answer_form, actions)
        return result

    async def _step(self, episode_id: str, action: str, step: int | None) -> StepResult:
        episode = self._episodes.get(episode_id)
        if episode is None:
            request = {"episode_id": episode_id, "action": action} | ({} if step is None else {"step": step})
            result = _parse(StepResult, await self._replica(episode_id).step(encode(request)))
        else:
            async with episode.order:
                played = len(episode.actions)
                number = played if step is None else step
                item = encode({"episode_id": episode_id, "action": action, "step": number})
                reply = await self._mended(episode_id, lambda: episode.replica.step(item))
                result = _parse(StepResult, reply)
                if number == played:
                    episode.actions.append(action)
                if result.done and self._episodes.get(episode_id) is episode:
                    del self._episodes[episode_id]
        self.stats.steps += 1
        return result

    async def _mended(self, episode_id: str, call: Callable[[], Awaitable[T]]) -> T:
        """`call()`, once more after a rebuild where the server has lost this client's episode or slept through it."""
        try:
            return await call()
        except (UnknownEpisode, Behind):
            episode = self._episodes.get(episode_id)
            if episode is None:
                raise
            await self._rebuild(episode_id, episode)
            return await call()

    async def _rebuild(self, episode_id: str, episode: _Episode) -> None:
        self.stats.rebuilds += 1
        request = {
            "episode_id": episode_id,
            "question_id": episode.question_id,
            "step_budget": episode.step_budget,
            "answer_form": episode.answer_form,
            "actions": episode.actions,
            "digest": episode.digest,
        }
        try:
            await episode.replica.reset(encode({name: value for name, value in request.items() if value}))
        except DigestMismatch:
            episode.replica.forget_digest()
            raise

    async def _timed(self, call: Awaitable[T]) -> T:
        """`call`, with its time in `stats.wait_s`; calls that wait at once are counted once."""
        if self._waiting == 0:
            self._waiting_since = perf_counter()
        self._waiting += 1
        try:
            return await call
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.stats.wait_s += perf_counter() - self._waiting_since


def in_process(app: ASGIApp, **options: Any) -> SQLEnvClient:
    """A client of `app` itself, run in this process from entering the client to leaving it. `options`: SQLEnvClient's.

    The app is the caller's to make (`env_server.app.create_app()`): this package does not know the server.
    """
    return SQLEnvClient("http://in-process", transport=InProcessTransport(app), **options)


async def _until_ready(replica: Replica, timeout_s: float) -> None:
    deadline = perf_counter() + timeout_s
    wait_s, longest_wait_s = READY_POLL_S
    while True:
        try:
            await replica.call_once(
                "GET", "/ready", timeout_s=min(HEALTH_TIMEOUT_S, max(0.1, deadline - perf_counter()))
            )
            return
        except SQLEnvError as error:
            if not is_retryable(error):
                raise
            if perf_counter() + wait_s > deadline:
                raise ServerUnreachable(f"not ready after {timeout_s:g} s: {error}", url=replica.url) from error
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, longest_wait_s)


async def _all(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Every call's result; the first failure ends the others before it is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gather(calls: Sequence[Awaitable[T]]) -> list[T | SQLEnvError]:
    """Every call's result or `SQLEnvError`; any other exception is raised, after all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T | SQLEnvError] = []
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, SQLEnvError):
            raise result
        found.append(result)
    return found


def _text(action: SQLAction | str) -> str:
    return action if isinstance(action, str) else render_action(action)


def _parse(model: type[M], body: Any) -> M:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the reply"
        raise SQLEnvError(f"not a {model.__name__}: {where}: {first['msg']}; is the server's version ours?") from error
