"""The client of the environment servers: plays any number of episodes at once.

    async with SQLEnvClient("http://127.0.0.1:8000") as client:
        first = await client.reset(question_id="q1")
        reply = await client.step(first.episode_id, "DESCRIBE: singer")

    # the same methods without await, on two servers
    with SQLEnvClient(["http://a:8000", "http://b:8000"]).sync() as client:
        first = client.reset(split="train", seed=7)

    with in_process(app).sync() as client:  # no server: the app runs in this process
        ...

Steps (and resets) that are started together go to their server in one request, so start many at
once: with `asyncio.gather`, or `step_many`. Every failure is a `shared.errors.SQLEnvError`: the
caller gets only what the client cannot recover from. The way of one step:

    SQLEnvClient.step       numbers the step, keeps the episode's latest reply
      |
    failover.run            FAIL-OVER LAYER, one loop per call: which server?
      |   ^                   server lost the episode -> rebuild it there by replay
      |   |                   server lost or refuses  -> the next server of the Fleet
      |   |                   none left               -> wait, then all again
    Replica.step            one server; parses the reply
      |
    Batcher                 gathers the steps of one moment
      |
    Replica.request         RETRY LAYER, one loop per HTTP request: again?
      |   ^                   broken connection, 429, 5xx -> wait, then the same again
      |   |                   server lost, another serves -> raise, for the fail-over layer
    Replica.request_once    one HTTP request; every failure becomes a `SQLEnvError`

Both loops count and wait with `Attempts`, under the same `ClientLimits`. `Fleet` knows the servers,
resolves names and sees lost servers return.
"""

from shared.client.async_client import AsyncClient
from shared.client.in_process import ASGIApp, InProcessTransport
from shared.client.limits import ClientLimits, ClientStats
from shared.client.sync import SyncSQLEnvClient

__all__ = ["ClientLimits", "ClientStats", "SQLEnvClient", "in_process"]


class SQLEnvClient(AsyncClient):
    __doc__ = AsyncClient.__doc__

    def sync(self) -> SyncSQLEnvClient:
        """Return this client's methods without `await`, for use inside `with`."""
        return SyncSQLEnvClient(self)


def in_process(
    app: ASGIApp, limits: ClientLimits | None = None, *, api_key: str | None = None
) -> SQLEnvClient:
    """Return a client of `app` (`env_server.app.create_app()`), which runs in this process while
    the client is open."""
    transport = InProcessTransport(app)
    return SQLEnvClient("http://in-process", limits, transport=transport, api_key=api_key)
