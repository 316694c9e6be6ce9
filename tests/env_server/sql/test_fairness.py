"""Clients are served in turns, slow jobs hold nobody up and are finished, cancelled ones end."""

import asyncio
import os
import signal
import time
import zlib
from collections.abc import Coroutine
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

import pytest

from env_server.sql import SqlJob, SqlLimits, SqlResult
from env_server.sql.jobs import JobKind
from env_server.sql.pool import SLICE_S, SqlPool
from env_server.sql.process import WorkerProcess
from env_server.sql.queue import CLIENT, MAX_REMEMBERED, FairQueue, Task
from env_server.sql.run import SqlRunner
from tests.conftest import until
from tests.env_server.sql.test_pool import (
    ENDLESS,
    NO_LIMITS,
    count,
    fail,
    in_pool,
    slow,
    with_or_without_a_loss,
)

T = TypeVar("T")


def started(client: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    context = copy_context()
    context.run(CLIENT.set, client)
    return asyncio.create_task(work, context=context)


def endless(shop: str) -> SqlJob:
    return SqlJob(JobKind.QUERY, shop, ENDLESS)


def order(queue: FairQueue) -> str:
    return "".join(queue.take().job.sql for _ in range(len(queue)))


# (workers that are up, workers that were lost and can't be started again)
SLOW = pytest.mark.slow
POOLS = [(1, 0), pytest.param(2, 0, marks=SLOW), pytest.param(1, 1, marks=SLOW), (2, 1)]
pools = pytest.mark.parametrize(("workers", "lost"), POOLS)


@pytest.mark.parametrize(
    ("workers", "lost", "clients"), [(1, 0, 1), pytest.param(2, 0, 24, marks=SLOW), (2, 1, 24)]
)
def test_endless_queries_hold_nobody_up(shop, workers, lost, clients):
    """No limit ends them here, so that a look-up is answered only if it goes before them."""

    async def body(pool: SqlPool) -> None:
        attack = [started(f"attacker {n % clients}", pool.run(endless(shop))) for n in range(24)]
        await until(lambda: pool.counts["preempted"] >= workers)
        for _ in range(5):
            assert (await started("honest", pool.run(count(shop)))).rows == [(6,)]
        assert pool.counts["losses"] == 0
        for job in attack:
            job.cancel()

    in_pool(body, workers, lost, **NO_LIMITS)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=SLOW), 2])
def test_the_last_worker_takes_turns(shop, workers):
    """A look-up waits for one slow job at most: those of other clients take long in all."""

    async def body(pool: SqlPool) -> None:
        if workers == 1:  # the second process starts when it is needed
            pool.processes[1].start = fail  # type: ignore[method-assign]
        attack = [started(f"{n}", pool.run(endless(shop))) for n in range(6)]
        other = started("other", pool.run(slow(shop, 1_000_000)))
        while not other.done():
            ended = sum(job.done() for job in attack)
            assert (await started("honest", pool.run(count(shop)))).rows == [(6,)]
            assert sum(job.done() for job in attack) - ended <= 1
        assert (await other).rows == [(1_000_000,)]
        assert {(await job).error_code for job in attack} == {"sql_budget"}
        assert pool.ready
        assert pool.problem == "1 of 2 SQL workers can't start: no process can be made"

    in_pool(body, 1, lost=workers - 1, max_vm_steps=20_000_000, max_cpu_s=1e9)


@cache
def undisturbed(shop: str) -> tuple[SqlResult, SqlResult]:
    # a CPU limit could end the queries first, at another number of steps each time
    with SqlRunner(SqlLimits(max_cpu_s=1e9)) as runner:
        return runner.run(slow(shop, 1_500_000)), runner.run(endless(shop))


@pools
def test_a_slow_query_is_finished_however_many_fresh_ones_come(shop, workers, lost):
    """Its result is that of an undisturbed run, to the number of steps."""
    expected, over = undisturbed(shop)
    assert over.error_code == "sql_budget"

    async def body(pool: SqlPool) -> None:
        jobs = [started("slow", pool.run(job)) for job in (slow(shop, 1_500_000), endless(shop))]

        async def keep_busy(name: str) -> int:
            answered = 0
            while not all(job.done() for job in jobs):
                await pool.run(count(shop))
                answered += 1
            return answered

        steps = await asyncio.gather(
            *(started(f"{n}", keep_busy(f"{n}")) for n in range(3 * workers))
        )
        assert [await job for job in jobs] == [expected, over]
        assert pool.counts["preempted"] >= 1
        assert min(steps) > 20
        assert pool.counts["kills"] == pool.counts["killed_jobs"] == 0

    in_pool(body, workers, lost, max_cpu_s=1e9)


@pools
def test_cancelled_jobs_end(shop, workers, lost):
    """Those that wait, that run, that were stopped before, and that are behind another."""

    async def body(pool: SqlPool) -> None:
        jobs = [asyncio.create_task(pool.run(endless(shop))) for _ in range(8)]
        await asyncio.sleep(4 * SLICE_S)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await until(lambda: pool.queue_depth == 0)
        assert pool.counts["losses"] == 0
        assert (await pool.run(count(shop))).rows == [(6,)]

    in_pool(body, workers, lost, **NO_LIMITS)


def test_a_stop_never_hits_the_next_job(shop, monkeypatch):
    """The worker begins it between the decision to stop the one before and the stop."""
    recall = WorkerProcess.recall

    def late(worker: WorkerProcess, *, finished: bool = False) -> list[Task]:
        number, deadline = worker.current, time.monotonic() + 10
        while worker.current == number and time.monotonic() < deadline:
            time.sleep(0.001)
        return recall(worker, finished=finished)

    async def body(pool: SqlPool) -> None:
        monkeypatch.setattr(WorkerProcess, "recall", late)
        first, second = await asyncio.gather(*map(pool.run, [slow(shop, 2_000_000), slow(shop)]))
        assert (first.rows, second.rows) == ([(2_000_000,)], [(6_000_000,)])
        assert pool.counts["preempted"] == 0

    in_pool(body, 1, **NO_LIMITS)


def test_innocents_do_not_wait_for_a_new_worker(shop, monkeypatch):
    """The jobs behind one that loses its worker go to another; it waits for the new one itself."""
    may_start = asyncio.Event()
    start = WorkerProcess._start_again

    async def held(worker: WorkerProcess) -> None:
        await may_start.wait()
        await start(worker)

    async def body(pool: SqlPool) -> None:
        monkeypatch.setattr(WorkerProcess, "_start_again", held)
        monkeypatch.setattr("env_server.sql.pool.BUSY_S", 10.0)  # they don't move before the kill
        killer = asyncio.create_task(pool.run(slow(shop)))
        innocents = [asyncio.create_task(pool.run(count(shop))) for _ in range(15)]
        worker = pool.processes[zlib.crc32(shop.encode()) % 2]  # the database's own
        await until(lambda: worker.running_s() > 0)
        os.kill(worker.process.pid, signal.SIGKILL)
        results = await asyncio.wait_for(asyncio.gather(*innocents), 20)
        assert [result.rows for result in results] == [[(6,)]] * 15
        await until(lambda: pool.counts["losses"] == 1)
        await asyncio.sleep(4 * SLICE_S)
        assert not killer.done()
        assert pool.processes[1 - pool.processes.index(worker)].load == 0, "it could kill this too"
        may_start.set()
        assert (await killer).rows == [(6_000_000,)]

    in_pool(body, 2, **NO_LIMITS)


@with_or_without_a_loss
def test_a_clients_short_jobs_do_not_hold_up_another(shop, lost):
    """Each is shorter than a slice, but the frame that was sent is not."""

    async def body(pool: SqlPool) -> None:
        passed = []  # a busy machine may let the worker run on before this process sees it
        while not passed or (min(passed) > 20 and len(passed) < 5):
            many = [started("many", pool.run(slow(shop, 100_000))) for _ in range(60)]
            await until(lambda jobs=many: any(job.done() for job in jobs))  # type: ignore[misc]
            before = sum(job.done() for job in many)
            assert (await started("other", pool.run(count(shop)))).rows == [(6,)]
            passed.append(sum(job.done() for job in many) - before)
            results: list[SqlResult] = await asyncio.gather(*many)
            assert [result.rows for result in results] == [[(100_000,)]] * 60
        assert min(passed) <= 20

    in_pool(body, 1, lost, **NO_LIMITS)


@pytest.mark.anyio
async def test_the_client_with_least_work_is_served_next():
    loop = asyncio.get_running_loop()

    def put(text: str) -> None:
        queue.put(Task(SqlJob(JobKind.QUERY, "", text), loop.create_future(), text.lower()))

    queue = FairQueue()
    for text in "aAb":
        put(text)
    assert queue.take().job.sql == "a"
    queue.charge("a", 1_000_000)  # a long job
    for text in "BbBbB":
        put(text)
    put("c")  # who comes late starts where the others are
    assert order(queue) == "bcBbBbBA"
    for text in "BbBdDd":  # and is not owed what they had before
        put(text)
    assert order(queue) == "BdbDBd"
    for number in range(2 * MAX_REMEMBERED):
        queue.charge(f"gone {number}", 1)
    assert len(queue._work) <= MAX_REMEMBERED + 1


@pytest.mark.anyio
async def test_a_result_on_its_way_is_not_taken_back(shop):
    """Between the end of a job and its result, the process has no current job."""
    async with SqlPool(workers=1) as pool:
        worker = pool.processes[0]
        loop = asyncio.get_running_loop()
        done, waiting = (Task(count(shop), loop.create_future()) for _ in range(2))
        worker.add(done)
        marker = worker._marker
        marker.begin(done.number)
        marker.begin(0)
        worker.add(waiting)
        assert worker.recall(finished=True) == [waiting]
        assert list(worker.sent.values()) == [done]
        worker.sent.clear()
