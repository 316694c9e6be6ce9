"""Run untrusted SQL: read-only on one database, within limits, always with the same result.

limits.py       `SqlLimits`: every limit, with its reason
jobs.py         `SqlJob` and `SqlResult`, and how they cross a pipe
connection.py   a connection: jailed for other people's SQL, or trusted for this package's
deadline.py     the limit on a job's CPU time
run.py          `SqlRunner`: runs jobs in this process
worker.py       the child process: a `SqlRunner` behind a socket
process.py      one child process, from asyncio
queue.py        the order in which waiting jobs run
pool.py         `SqlPool`: several of them
"""

from env_server.sql.jobs import JobKind, Jobs, SqlJob, SqlResult, drive, drive_async
from env_server.sql.limits import SqlLimits

__all__ = ["JobKind", "Jobs", "SqlJob", "SqlLimits", "SqlResult", "drive", "drive_async"]
