"""Run untrusted SQL: read-only on one database, within limits, always with the same result.

`run.SqlRunner` runs jobs in this process, on a `connection`, under `limits`.
`pool.SqlPool` runs them in several child processes (`process`), in the order of its `queue`;
`worker` is the child's side, and `jobs` has what crosses the pipe.
"""

from env_server.sql.jobs import JobKind, Jobs, SqlJob, SqlResult, drive_async
from env_server.sql.limits import SqlLimits

__all__ = ["JobKind", "Jobs", "SqlJob", "SqlLimits", "SqlResult", "drive_async"]
