"""SQL that nobody trusts, run so that it can only read one database, within limits, and always with
the same result.

    policy.py       every limit, with its reason
    jobs.py         SqlJob and SqlResult, and how they cross a pipe
    connection.py   one connection: jailed for SQL that somebody wrote, or trusted
    builtin.py      tables that are in no database
    functions.py    trim() with two arguments, in one pass
    deadline.py     CPU time
    run.py          a statement -> its result
    catalogue.py    DESCRIBE and SAMPLE
    runner.py       `SqlRunner`: a job -> its result, with connections kept open
    worker.py       the child process: a `SqlRunner` behind a socket
    process.py      one such child, from asyncio
    pool.py         `SqlPool`: many of them

Nothing here imports a room above it.
"""

from typing import TYPE_CHECKING, Any

from env_server.sql.jobs import JobKind, SqlJob, SqlResult
from env_server.sql.limits import SqlPolicy

if TYPE_CHECKING:
    from env_server.sql.pool import SqlPool
    from env_server.sql.runner import SqlRunner

__all__ = ["JobKind", "SqlJob", "SqlPolicy", "SqlPool", "SqlResult", "SqlRunner"]


def __getattr__(name: str) -> Any:
    """`SqlPool` and `SqlRunner` on first use: a worker process needs no asyncio, and the pool's
    process no SQLite."""
    if name == "SqlPool":
        from env_server.sql.pool import SqlPool

        return SqlPool
    if name == "SqlRunner":
        from env_server.sql.runner import SqlRunner

        return SqlRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
