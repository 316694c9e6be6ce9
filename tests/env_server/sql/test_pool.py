"""Worker processes: batches, warm connections, kills, losses, and an orderly end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql.pool import SqlPool
from env_server.sql.process import WorkerProcess
from env_server.sql.run import SqlRunner
from shared.errors import InternalError, NotReady
from tests.conftest import alive, until
from tests.env_server.sql.conftest import pids

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
CELLS = "9e999, -9e999, x'00ff', x'', NULL, 2.0, -9223372036854775808, 'Zoë', '', '{}'"
NO_LIMITS = {"max_vm_steps": 10**12, "max_cpu_s": 1e9}
ROOT = Path(__file__).resolve().parents[3]


# With 1, the pool began with a worker more, which was lost and can't be started again.
with_or_without_a_loss = pytest.mark.parametrize("lost", [0, 1], ids=["all", "one less"])


def in_pool(
    body: Callable[[SqlPool], Coroutine[Any, Any, None]],
    workers: int = 1,
    lost: int = 0,
    **limits: Any,
) -> None:
    async def main() -> None:
        async with SqlPool(workers + lost, SqlLimits(**limits)) as pool:
            for worker in pool.processes[workers : workers + lost]:
                await lose(pool, worker)
            await body(pool)

    asyncio.run(asyncio.wait_for(main(), 60))


async def fail() -> None:
    raise OSError("no process can be made")


async def lose(pool: SqlPool, worker: WorkerProcess) -> None:
    """Kill a worker that can't be started again, and let the others do its share at once."""
    worker.start = fail  # type: ignore[method-assign]
    worker.process.kill()
    await until(lambda: pool.problem is not None)
    worker.failures += 2
    pool.counts.clear()


def count(path: str) -> SqlJob:
    return SqlJob(JobKind.QUERY, path, "SELECT count(*) FROM orders")


def slow(path: str, rows: int = 6_000_000) -> SqlJob:
    """Return a query that takes about a second."""
    numbers = f"SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows}"
    sql = f"WITH RECURSIVE n(i) AS ({numbers}) SELECT max(i) FROM n"
    return SqlJob(JobKind.QUERY, path, sql)


def pid_at_work(pool: SqlPool) -> int:
    busy = (worker for worker in pool.processes if worker.running_s() > 0)
    return next((worker.process.pid for worker in busy if worker.process is not None), 0)


@with_or_without_a_loss
def test_results_are_those_of_the_process_itself(tiny_data, shop, lost):
    zoo = str(tiny_data / "databases" / "zoo" / "zoo.sqlite")
    jobs = [
        SqlJob(JobKind.QUERY, shop, f"SELECT {CELLS}, * FROM orders"),
        SqlJob(JobKind.QUERY, shop, "SELECT nam FROM orders"),
        SqlJob(JobKind.TABLES, shop),
        SqlJob(JobKind.DESCRIBE, shop, "orders"),
        SqlJob(JobKind.SAMPLE, zoo, "animals"),
        SqlJob(JobKind.GOLD, shop, "SELECT avg(price) FROM products"),
        SqlJob(JobKind.QUERY, shop, "SELECT '\ud800'"),
    ]

    async def body(pool: SqlPool) -> None:
        with SqlRunner() as runner:
            expected = list(map(runner.run, jobs))
        found = await asyncio.gather(*map(pool.run, jobs))
        assert found[:-1] == expected[:-1]
        assert repr(found[0]) == repr(expected[0]), "2.0 is not 2"
        assert found[-1].error_code == expected[-1].error_code == "sql_error"

    in_pool(body, 2, lost)


@with_or_without_a_loss
def test_a_busy_workers_jobs_go_to_another(shop, lost):
    async def body(pool: SqlPool) -> None:
        blocked = asyncio.create_task(pool.run(slow(shop)))
        await until(lambda: pid_at_work(pool))
        busy = pid_at_work(pool)
        assert busy  # 0 would be this process's group
        os.kill(busy, signal.SIGSTOP)
        await asyncio.wait_for(pool.run(count(shop)), 10)
        assert not blocked.done()
        os.kill(busy, signal.SIGCONT)
        assert (await blocked).rows == [(6_000_000,)]

    in_pool(body, 2, lost, **NO_LIMITS)


@with_or_without_a_loss
def test_jobs_behind_a_slow_one_are_taken_from_it(shop, lost):
    """Those of the same frame too. The worker that had them first skips them."""

    async def body(pool: SqlPool) -> None:
        half = slow(shop, 3_000_000)
        await pool.run(half)
        alone_s = cpu_s(pool)
        results = await asyncio.gather(*map(pool.run, (half, half, count(shop))))
        assert [result.rows for result in results] == [[(3_000_000,)], [(3_000_000,)], [(6,)]]
        # if the database's own worker was lost, the jobs went to two workers at once
        assert pool.counts["moved"] >= 2 or lost
        # every worker has finished
        await asyncio.gather(*(pool.run(count(shop)) for _ in range(40)))
        assert cpu_s(pool) < 3.7 * alone_s

    in_pool(body, 2, lost, **NO_LIMITS)


def cpu_s(pool: SqlPool) -> float:
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids(pool)]
    return sum(int(one[11]) + int(one[12]) for one in stats) / os.sysconf("SC_CLK_TCK")


@with_or_without_a_loss
def test_a_query_that_kills_its_worker_twice_is_its_own_error(shop, lost):
    async def body(pool: SqlPool) -> None:
        jobs = [count(shop), SqlJob(JobKind.QUERY, shop, ENDLESS), *[count(shop)] * 5]
        before = pids(pool)
        first, killed, *others = await asyncio.gather(*map(pool.run, jobs))
        assert (killed.error_code, killed.rows) == ("sql_killed", [])
        assert first.rows == [(6,)]
        assert [other.rows for other in others] == [[(6,)]] * 5
        assert (await pool.run(count(shop))).rows == [(6,)]
        assert pool.counts["kills"] == pool.counts["losses"] == 2
        assert pool.counts["killed_jobs"] == 1
        moved = lost or all(map(alive, before))
        assert moved, "others waited, so it had moved to another process"

    in_pool(body, 1, lost, kill_after_cpu_s=0.5, **NO_LIMITS)


@with_or_without_a_loss
def test_a_stopped_worker_is_replaced_however_many_jobs_come(shop, lost):
    async def body(pool: SqlPool) -> None:
        os.kill(pids(pool)[0], signal.SIGSTOP)
        jobs = [asyncio.create_task(pool.run(count(shop)))]
        while not jobs[0].done():
            await asyncio.sleep(0.05)
            jobs.append(asyncio.create_task(pool.run(count(shop))))
        assert [result.rows for result in await asyncio.gather(*jobs)] == [[(6,)]] * len(jobs)

    in_pool(body, 1, lost, kill_after_s=1.0)


def test_workers_leave_the_signals_of_their_group_to_the_server(shop):
    async def body(pool: SqlPool) -> None:
        await pool.run(count(shop))
        for pid in pids(pool):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(pid, number)
        assert (await pool.run(count(shop))).rows == [(6,)]
        assert pool.counts["losses"] == 0

    in_pool(body)


@pytest.mark.parametrize(("times", "lost"), [(1, 0), (2, 0), (1, 1)])
def test_a_query_whose_worker_is_stopped_is_not_to_blame(shop, times, lost):
    async def body(pool: SqlPool) -> None:
        rows = 1_000_000 if times < 2 else 10**9
        running = asyncio.create_task(pool.run(slow(shop, rows)))
        for losses in range(times):
            await until(
                lambda losses=losses: pool.counts["losses"] == losses and pid_at_work(pool), 30
            )  # type: ignore[misc]
            busy = pid_at_work(pool)
            assert busy
            os.kill(busy, signal.SIGSTOP)
        await until(lambda: pool.counts["losses"] == times, 30)
        if times < 2:
            assert (await running).rows == [(rows,)]
        else:
            with pytest.raises(InternalError, match="got no CPU time"):
                await running
        assert (await pool.run(count(shop))).rows == [(6,)]
        assert pool.counts["killed_jobs"] == 0

    # the query must end before, or be killed
    in_pool(body, 1, lost, kill_after_s=5.0 if times < 2 else 1.5, **NO_LIMITS)


@with_or_without_a_loss
def test_a_worker_lost_by_accident_loses_no_result(shop, lost):
    async def body(pool: SqlPool) -> None:
        jobs = (slow(shop), count(shop), count(shop))
        running = [asyncio.create_task(pool.run(job)) for job in jobs]
        await asyncio.sleep(0.1)
        os.kill(pids(pool)[0], signal.SIGKILL)
        results = await asyncio.gather(*running)
        assert [result.rows for result in results] == [[(6_000_000,)], [(6,)], [(6,)]]
        os.kill(pids(pool)[0], signal.SIGKILL)  # this one idle
        assert (await pool.run(count(shop))).rows == [(6,)]
        assert pool.counts["killed_jobs"] == 0
        await until(lambda: pool.ready)

    in_pool(body, 1, lost, **NO_LIMITS)


@with_or_without_a_loss
def test_a_fault_of_this_package_is_no_error_of_the_agents(shop, lost):
    async def body(pool: SqlPool) -> None:
        with pytest.raises(InternalError, match="nonsense"):
            await pool.run(SqlJob("nonsense", shop))
        assert (await pool.run(count(shop))).rows == [(6,)]

    in_pool(body, 1, lost)


@with_or_without_a_loss
def test_the_end_leaves_no_process_and_no_waiting_job(shop, lost):
    async def main() -> None:
        pool = SqlPool(2, SqlLimits(**NO_LIMITS))  # type: ignore[arg-type]
        with pytest.raises(NotReady):
            await pool.run(count(shop))
        async with pool:
            before = pids(pool)
            assert len(before) == 2
            if lost:
                await lose(pool, pool.processes[0])
            jobs = (SqlJob(JobKind.QUERY, shop, ENDLESS), count(shop))
            waiting = [asyncio.create_task(pool.run(job)) for job in jobs]
            await asyncio.sleep(0.1)
        assert not any(map(alive, before))
        assert not pool.ready
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], NotReady)
        assert isinstance(results[1], NotReady | SqlResult)
        await pool.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_workers_end_when_the_parent_is_killed():
    script = """
import asyncio
from env_server.sql.pool import SqlPool
async def main():
    async with SqlPool(2) as pool:
        print(*(worker.process.pid for worker in pool.processes[:2]), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
    asyncio.run(until(lambda: not any(map(alive, workers))))


def test_a_worker_that_cannot_start_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")

    async def main() -> None:
        with pytest.raises(NotReady, match="worker"):
            await SqlPool(1).__aenter__()

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_worker_has_only_the_parents_packages_of_its_environment(monkeypatch, tmp_path):
    """Packages may be where only PYTHONPATH leads, as after `pip install --target`, and Python's
    library where only LD_LIBRARY_PATH does, as of a cluster's modules."""
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'seen')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")

    async def body(pool: SqlPool) -> None:
        environment = Path(f"/proc/{pids(pool)[0]}/environ").read_bytes()
        assert b"hunter2" not in environment
        assert f"\0LD_LIBRARY_PATH={tmp_path}\0".encode() in b"\0" + environment
        assert (tmp_path / "seen").exists()

    in_pool(body)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="needs /proc")
def test_a_worker_is_limited_by_the_system_too(shop):
    async def body(pool: SqlPool) -> None:
        lines = Path(f"/proc/{pids(pool)[0]}/limits").read_text().splitlines()
        hard = {line[:26].strip(): line[26:].split()[1] for line in lines[1:]}
        limits = pool.limits
        assert hard["Max file size"] == hard["Max core file size"] == "0"
        assert hard["Max open files"] == str(limits.max_open_files)
        growth = limits.max_address_space_growth_bytes
        assert growth < int(hard["Max address space"]) < growth + 100 * 1024 * 1024

    in_pool(body)


def test_where_the_heap_limit_lets_too_much_pass_the_address_space_does_not(shop):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)"
    sql = f"{numbers} SELECT i || printf('%.*c', 40000, 'x') AS x FROM n ORDER BY x"
    sort = SqlJob(JobKind.QUERY, shop, sql)

    async def body(pool: SqlPool) -> None:
        before = pids(pool)
        assert (await pool.run(sort)).error_code == "sql_budget"
        assert (await pool.run(count(shop))).rows == [(6,)]
        assert pids(pool) == before

    in_pool(body, max_heap_bytes=2**32, max_address_space_growth_bytes=48 * 1024 * 1024)


def test_a_worker_imports_no_web_framework():
    unwanted = {"fastapi", "pydantic", "asyncio", "sqlglot", "torch"}
    script = f"import env_server.sql.worker, sys; print({unwanted} & {{*sys.modules}})"
    assert subprocess.check_output([sys.executable, "-c", script], cwd=ROOT) == b"set()\n"
