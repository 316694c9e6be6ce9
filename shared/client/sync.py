"""The client without `await`: each call runs on an event loop in a thread of its own."""

import os
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shared.actions import SQLAction
from shared.client.async_client import AsyncClient
from shared.client.limits import ClientStats
from shared.models import StepResult

P = ParamSpec("P")
T = TypeVar("T")


def _sync(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncSQLEnvClient", P], T]:
    @wraps(method)
    def call(self: "SyncSQLEnvClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(partial(method, self._client, *args, **kwargs))

    return call


def _close(stack: ExitStack, pid: int) -> None:
    """Close a client that nobody closed, unless this process is a fork without its thread."""
    if os.getpid() == pid:
        stack.close()


class SyncSQLEnvClient:
    """`shared.client.SQLEnvClient` for code without an event loop, and for notebooks, whose loop is
    already running.

    Made by `SQLEnvClient.sync()` and used inside `with`. May be called from several threads; calls
    that run at once are batched as the asynchronous client's are.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("asyncio"))
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._stack = stack.pop_all()
        self._portal = portal
        # also at exit: later, closing would wait for ever, as threads no longer run
        self._closing = weakref.finalize(self, _close, self._stack, os.getpid())
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._closing.detach()
        self._portal = None
        self._stack.__exit__(*exc_info)  # an exception (Ctrl-C) cancels the calls under way

    @property
    def urls(self) -> list[str]:
        return self._client.urls

    @property
    def open_episodes(self) -> list[str]:
        return self._client.open_episodes

    @property
    def stats(self) -> ClientStats:
        return self._client.stats

    def start_step(self, episode_id: str, action: SQLAction | str) -> Future[StepResult]:
        """Start `step` without waiting for its reply; cancelling the future gives it up."""
        return self._open.start_task_soon(partial(self._client.step, episode_id, action))

    reset = _sync(AsyncClient.reset)
    step = _sync(AsyncClient.step)
    reset_many = _sync(AsyncClient.reset_many)
    step_many = _sync(AsyncClient.step_many)
    close_episode = _sync(AsyncClient.close_episode)
    state = _sync(AsyncClient.state)
    verdicts = _sync(AsyncClient.verdicts)
    metadata = _sync(AsyncClient.metadata)
    health = _sync(AsyncClient.health)
    wait_ready = _sync(AsyncClient.wait_ready)

    @property
    def _open(self) -> BlockingPortal:
        if self._portal is None:
            raise RuntimeError("this client is not open; use it inside 'with'")
        return self._portal

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        result: T = self._open.call(call)
        return result
