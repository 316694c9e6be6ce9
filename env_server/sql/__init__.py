"""Run untrusted SQL: read-only on one database, within limits, always with the same result.

limits.py       `SqlLimits`: every limit, with its reason
jobs.py         `SqlJob` and `SqlResult`, and how they cross a pipe
connection.py   a connection: jailed for other people's SQL, or trusted for this package's
run.py          `SqlRunner`: runs jobs in this process
worker.py       the child process: a `SqlRunner` behind a socket
process.py      one child process, from asyncio
pool.py         `SqlPool`: several of them
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from env_server.sql.jobs import JobKind, SqlJob, SqlResult
from env_server.sql.limits import SqlLimits

if TYPE_CHECKING:
    from env_server.sql.pool import SqlPool
    from env_server.sql.run import SqlRunner

__all__ = ["JobKind", "SqlJob", "SqlLimits", "SqlPool", "SqlResult", "SqlRunner"]


def __getattr__(name: str) -> Any:
    """Import `SqlPool` and `SqlRunner` on first use: a worker process needs no asyncio."""
    module = {"SqlPool": "pool", "SqlRunner": "run"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"env_server.sql.{module}"), name)
