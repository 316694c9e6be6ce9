"""What a running server consists of: the questions, the SQL workers, the episodes. No HTTP."""

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from env_server.episode_pool import EpisodePool
from env_server.questions import QuestionBank
from env_server.rewards import REWARD_VERSION
from env_server.rules import rules_of
from env_server.settings import Settings
from env_server.sql.pool import SqlPool
from env_server.telemetry import EPISODE_COUNTERS, SQL_COUNTERS, Metrics
from shared.actions import ActionType
from shared.errors import NotReady, QueueFull
from shared.models import Outcome, ServerMetadata

log = logging.getLogger(__name__)
Task = asyncio.Task[Any]
Reply = TypeVar("Reply")

SWEEP_EVERY_S = 5.0  # for idle episodes
MAX_LARGE = 64  # large requests of a client that wait for each other; a trainer's 16 processes: 32
NAME = "sqlenv"
DESCRIPTION = (
    "Episodes in which an agent explores a read-only SQL database to answer a question in plain "
    "language"
)


def package_version() -> str:
    """Return the installed version, or 0.0.0 for a source tree that is not installed."""
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "0.0.0"


def describe(bank: QuestionBank, settings: Settings) -> ServerMetadata:
    """Return the reply to `GET /metadata`. `digest` covers everything that a reply depends on."""
    rules = rules_of(bank, settings)
    return ServerMetadata(
        name=NAME,
        description=DESCRIPTION,
        version=package_version(),
        reward_version=REWARD_VERSION,
        sqlite_version=bank.sqlite_version,
        digest=hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest(),
        rules=rules,
        data_digest=bank.data_digest,
        questions=bank.counts,
        databases=len(bank.databases),
        step_budget=settings.step_budget,
        standard=settings.standard,
        capacity=settings.capacity,
    )


@dataclass
class Service:
    settings: Settings
    metadata: ServerMetadata
    sql: SqlPool
    pool: EpisodePool
    metrics: Metrics
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, repr=False)
    # by client
    _under_way: Counter[str] = field(default_factory=Counter, repr=False)
    _large: dict[str, asyncio.Lock] = field(default_factory=dict, repr=False)
    _waiting: Counter[str] = field(default_factory=Counter, repr=False)  # for `_large`, or with it

    def admit(self, client: str, items: int) -> None:
        """Raise `QueueFull` if so many more items are too many for a client that has some already:
        one batch may be larger than the limit."""
        limit, under_way = self.settings.max_client_items, self._under_way[client]
        if under_way and under_way + items > limit:
            raise QueueFull(
                f"{under_way:,} of your requests, items and replayed actions are under way, and at "
                f"most {limit:,} may be: wait for replies, or raise SQLENV_MAX_CLIENT_ITEMS",
                limit="max_client_items",
                retry_after_s=1,
            )

    def start(
        self, work: Coroutine[Any, Any, Reply], client: str, items: int
    ) -> asyncio.Task[Reply]:
        """Run work to its end, even if nobody awaits it any more, as so many items of a client."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._under_way[client] += items
        task.add_done_callback(partial(self._done, client, items))
        return task

    @asynccontextmanager
    async def one_large(self, client: str) -> AsyncIterator[None]:
        """Wait until no other large request of the client is worked on; `QueueFull` if many do."""
        lock = self._large.setdefault(client, asyncio.Lock())
        self._waiting[client] += 1
        try:
            if self._waiting[client] > MAX_LARGE:
                raise QueueFull(
                    f"{MAX_LARGE} of your requests over 64 KiB are queued: wait for their replies",
                    limit="large_requests",
                    retry_after_s=1,
                )
            async with lock:
                yield
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client], self._large[client]

    def _done(self, client: str, items: int, task: Task) -> None:
        self._tasks.discard(task)
        self._under_way[client] -= items
        if not self._under_way[client]:
            del self._under_way[client]

    def check_ready(self) -> None:
        """Raise `NotReady` unless episodes can start."""
        if self.pool.draining:
            raise NotReady("the server is shutting down", retry_after_s=1)
        if not self.sql.ready:
            reason = f": {self.sql.problem}; see its log" if self.sql.problem else ""
            raise NotReady(f"no SQL worker is up{reason}", retry_after_s=1)

    async def sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.pool.sweep()


class Readings(Collector):
    """The metrics that are read of a service when Prometheus asks."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterable[Metric]:
        episodes, sql = self.service.pool, self.service.sql
        labels = {"version", "reward_version", "sqlite_version", "digest"}
        info = self.service.metadata.model_dump(include=labels)
        yield InfoMetricFamily("sqlenv_server", "What this server is.", value=info)
        most = self.service.settings.capacity
        gauges = {
            "leases": ("Unfinished episodes in the pool.", len(episodes)),
            "capacity": ("The most unfinished episodes that the pool takes.", most),
            "held_bytes": ("Memory of the episodes' texts.", episodes.store.held_bytes),
            "in_flight": ("Requests for episodes under way, or batch items.", episodes.in_flight),
            "sql_queue_depth": ("SQL jobs waiting, or sent and unanswered.", sql.queue_depth),
            "sql_workers_up": ("SQL workers that take jobs.", sql.workers_up),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"sqlenv_{name}", text, value=float(value))
        for name, (key, text) in EPISODE_COUNTERS.items():
            yield CounterMetricFamily(f"sqlenv_{name}", text, value=episodes.counts[key])
        for name, (key, text) in SQL_COUNTERS.items():
            yield CounterMetricFamily(f"sqlenv_sql_{name}", text, value=sql.counts[key])
        text = "Episodes ended here; replaying an ended one counts it again."
        ended = CounterMetricFamily("sqlenv_episodes_ended", text, labels=["outcome"])
        for outcome in Outcome:
            if outcome != Outcome.INFRA_FAILED:
                ended.add_metric([outcome.value], float(episodes.ended[outcome]))
        yield ended
        text = "Steps taken, replayed ones excluded."
        steps = CounterMetricFamily("sqlenv_steps", text, labels=["action", "key"])
        text = "Unfinished episodes of a key."
        leases = GaugeMetricFamily("sqlenv_key_leases", text, labels=["key"])
        for owner, held in episodes.store.owners.items():
            leases.add_metric([owner or "none"], float(len(held.active)))
            for kind in ActionType:
                taken = float(episodes.steps[owner, kind])
                steps.add_metric([kind.value.lower(), owner or "none"], taken)
        yield from (steps, leases)
        text = "Judged answers of an agent's key; rebuilding an ended episode adds none."
        tries = CounterMetricFamily("sqlenv_tries", text, labels=["key"])
        text = "Those that were not the key's first of their question."
        repeated = CounterMetricFamily("sqlenv_tries_repeated", text, labels=["key"])
        for one in episodes.store.tries:
            tries.add_metric([one.key], float(one.total))
            repeated.add_metric([one.key], float(one.total - len(one.questions)))
        yield from (tries, repeated)


@asynccontextmanager
async def running(
    settings: Settings, bank: QuestionBank, metrics: Metrics
) -> AsyncIterator[Service]:
    """Run a service, with its SQL workers and the sweeping of leases, until the block ends."""
    metadata = describe(bank, settings)
    async with SqlPool(settings.sql_workers, bank.limits) as sql:
        pool = EpisodePool(bank, sql, settings, metadata.digest, metrics=metrics)
        service = Service(settings, metadata, sql, pool, metrics)
        readings = Readings(service)
        metrics.registry.register(readings)
        sweeper = asyncio.create_task(service.sweep_forever())
        try:
            yield service
        finally:
            sweeper.cancel()
            metrics.registry.unregister(readings)
            counts = [f"{count} {outcome}" for outcome, count in sorted(pool.ended.items())]
            log.info("episodes ended: %s; unfinished: %d", ", ".join(counts) or "none", len(pool))
