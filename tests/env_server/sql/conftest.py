"""What tests of single statements share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql.pool import SqlPool
from env_server.sql.run import SqlRunner

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000000)"
ENDLESS = f"{NUMBERS} SELECT max(i) FROM n"


@pytest.fixture(scope="module")
def runner() -> Iterator[SqlRunner]:
    with SqlRunner(SqlLimits(max_vm_steps=2_000_000, max_cpu_s=1.0)) as runner:
        yield runner


@pytest.fixture
def shop(tiny_data: Path) -> str:
    return str(tiny_data / "databases" / "shop" / "shop.sqlite")


def query(runner: SqlRunner, path: str | Path, sql: str, max_rows: int | None = None) -> SqlResult:
    return runner.run(SqlJob(JobKind.QUERY, str(path), sql, max_rows))


def pids(pool: SqlPool) -> list[int]:
    return [worker.process.pid for worker in pool.processes if worker.process is not None]
