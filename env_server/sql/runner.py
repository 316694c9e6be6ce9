"""`SqlRunner`: jobs to results in this process, with connections kept open."""

from collections import OrderedDict

import apsw

from env_server.sql.catalogue import describe, sample
from env_server.sql.connection import SqlConnection
from env_server.sql.deadline import Deadline
from env_server.sql.jobs import JobKind, SqlJob, SqlResult
from env_server.sql.limits import SqlPolicy
from env_server.sql.run import OUT_OF_MEMORY, out_of_memory, run_query, unreadable

# Which connection a kind of job has; the others share a trusted one. An agent's statements have
# theirs to themselves. A sample is jailed since a view of the data set's may read the catalogue.
_JAILED = {JobKind.QUERY: "agent", JobKind.GOLD: "data set", JobKind.SAMPLE: "data set"}


class SqlRunner:
    """Runs jobs in this process, one at a time, keeping connections open. Not for several threads.

    The executor of a `SQLEnvironment` without a server, and the heart of a worker process. In a
    notebook's process the modifier 'localtime' follows the process's time zone.
    """

    def __init__(self, policy: SqlPolicy | None = None) -> None:
        """Limits SQLite's heap in this whole process, for connections that apsw opens."""
        self.policy = policy or SqlPolicy()
        apsw.hard_heap_limit(self.policy.max_heap_bytes)
        self._deadline = Deadline(self.policy.max_cpu_s)
        self._open: OrderedDict[tuple[str, str], SqlConnection] = OrderedDict()

    def __enter__(self) -> "SqlRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._deadline.close()

    def run(self, job: SqlJob) -> SqlResult:
        """The result of a job. An unknown kind is a ValueError; whatever else goes wrong is in the
        result."""
        result = self._run_once(job)
        # the other connections' caches count too, so the verdict needs an empty heap
        if out_of_memory(result):
            self.close()
            result = self._run_once(job)
            if out_of_memory(result):
                self.close()
        return result

    def close(self) -> None:
        """Closes every connection; the next job opens its own again."""
        while self._open:
            self._open.popitem()[1].close()

    def _run_once(self, job: SqlJob) -> SqlResult:
        kind = JobKind(job.kind)
        try:
            connection = self._connection(kind, job.db_path)
        except apsw.Error as error:
            return SqlResult(error=unreadable(error), error_code="db_error")
        except MemoryError:
            return SqlResult(error=OUT_OF_MEMORY, error_code="sql_budget")
        if kind == JobKind.TABLES:
            return SqlResult(["name"], [(name,) for name in connection.tables])
        self._deadline.start(connection)
        try:
            match kind:
                case JobKind.DESCRIBE:
                    return describe(connection, job.sql)
                case JobKind.SAMPLE:
                    return sample(connection, job.sql)
                case _:
                    default = self.policy.gold_rows if kind == JobKind.GOLD else None
                    max_rows = default if job.max_rows is None else job.max_rows
                    return run_query(connection, job.sql, self.policy, max_rows)
        finally:
            self._deadline.stop()

    def _connection(self, kind: JobKind, path: str) -> SqlConnection:
        jailed = kind in _JAILED
        key = (_JAILED.get(kind, "trusted"), path)
        connection = self._open.get(key)
        if connection is None:
            while len(self._open) >= self.policy.open_connections:
                self._open.popitem(last=False)[1].close()
            connection = self._open[key] = SqlConnection(path, self.policy, jailed=jailed)
        self._open.move_to_end(key)
        return connection
