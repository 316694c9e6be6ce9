"""The client without `await`: each call runs on an event loop in a thread of its own."""

import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shared.actions import AnyAction
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
        return self._run(method, *args, **kwargs)

    return call


def _close(stack: ExitStack, portal: BlockingPortal, pid: int) -> None:
    """Close a client that nobody closed. In a fork, which lacks its thread, only note that it has
    stopped: else the stack would wait for the thread when it is freed."""
    if os.getpid() == pid:
        stack.close()
    else:
        with suppress(StopIteration, RuntimeError):
            portal.stop().send(None)  # a coroutine that awaits nothing


class SyncSQLEnvClient:
    """`shared.client.SQLEnvClient` for code without an event loop, and for notebooks, whose loop is
    already running.

    Made by `SQLEnvClient.sync()` and used inside `with`, also more than once. May be called from
    several threads; calls that run at once are batched as the asynchronous client's are. Ctrl-C
    cancels the call under way, as `AsyncClient` describes.

    A fork and a pickle have connections of their own, which the first call opens, so the client can
    be used in `datasets.map`, in a DataLoader's workers and in `multiprocessing`. To them, the
    episodes of the original are another client's.
    """

    def __init__(self, client: AsyncClient, opens_itself: bool = False) -> None:
        self._client = client
        self._opens_itself = opens_itself  # at the first call; closed at exit
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()
        self._pid: int | None = None  # of the process that opened it
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("this client is open already: use it inside one 'with'")
        if self._pid is not None:
            self._closing()
            self._client = self._client._anew()
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("asyncio"))
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._stack = stack.pop_all()
        self._portal, self._pid = portal, os.getpid()
        # also at exit: later, closing would wait for ever, as threads no longer run
        self._closing: weakref.finalize[..., Self] = weakref.finalize(
            self, _close, self._stack, portal, self._pid
        )
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._portal = None
        if self._pid == os.getpid():
            self._closing.detach()
            self._stack.__exit__(*exc_info)  # an exception (Ctrl-C) cancels the calls under way
        else:
            self._closing()

    def __reduce__(self) -> tuple[Any, ...]:
        return SyncSQLEnvClient, (self._client, self._opens_itself or self._portal is not None)

    @property
    def open_episodes(self) -> list[str]:
        return self._client.open_episodes

    @property
    def stats(self) -> ClientStats:
        return self._client.stats

    def start_step(self, episode_id: str, action: AnyAction) -> Future[StepResult]:
        """Start `step` without waiting for its reply; cancelling the future cancels the call."""
        portal = self._open
        return portal.start_task_soon(partial(self._client.step, episode_id, action))

    reset = _sync(AsyncClient.reset)
    step = _sync(AsyncClient.step)
    reset_many = _sync(AsyncClient.reset_many)
    step_many = _sync(AsyncClient.step_many)
    close_episode = _sync(AsyncClient.close_episode)
    state = _sync(AsyncClient.state)
    metadata = _sync(AsyncClient.metadata)
    wait_ready = _sync(AsyncClient.wait_ready)

    @property
    def _open(self) -> BlockingPortal:
        if self._portal is None and not self._opens_itself:
            raise RuntimeError("this client is not open; use it inside 'with'")
        if not self._is_open:
            with self._opening:
                if not self._is_open:  # nor has another thread opened it meanwhile
                    self.__enter__()
        assert self._portal is not None
        return self._portal

    @property
    def _is_open(self) -> bool:
        """Whether it is open in this process: a fork of it lacks the portal's thread."""
        return self._portal is not None and self._pid == os.getpid()

    def _run(self, call: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        portal = self._open  # it may replace the client
        future: Future[T] = portal.start_task_soon(partial(call, self._client, *args, **kwargs))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
