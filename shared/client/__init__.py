"""The client of the environment servers: plays any number of episodes at once.

    async with SQLEnvClient("http://127.0.0.1:8000") as client:
        first = await client.reset(question_id="q1")
        reply = await client.step(first.episode_id, "DESCRIBE: singer")

    with SQLEnvClient(["http://a:8000", "http://b:8000"]).sync() as client:    # the same methods, without await
        first = client.reset(split="train", seed=7)

    with in_process(app).sync() as client:                                     # no server: the app runs in this process
        ...

Steps (and resets) that are started together go to their server in one request, so start many at
once: with `asyncio.gather`, or `step_many`. Every failure is a `shared.errors.SQLEnvError`; a lost
connection, a busy server, a server that has lost the episode and one that is lost itself are mended
here: what reaches the caller is past mending.
"""

from typing import Any

from shared.client.async_client import AsyncClient
from shared.client.in_process import ASGIApp, InProcessTransport
from shared.client.sync import SyncSQLEnvClient

__all__ = ["SQLEnvClient", "in_process"]


class SQLEnvClient(AsyncClient):
    __doc__ = AsyncClient.__doc__

    def sync(self) -> SyncSQLEnvClient:
        """This client's methods without `await`, for use inside `with`."""
        return SyncSQLEnvClient(self)


def in_process(app: ASGIApp, **options: Any) -> SQLEnvClient:
    """A client of `app` itself, run in this process from entering the client to leaving it.
    `options`: SQLEnvClient's.

    The app is the caller's to make (`env_server.app.create_app()`): this package does not know the
    server.
    """
    return SQLEnvClient("http://in-process", transport=InProcessTransport(app), **options)
