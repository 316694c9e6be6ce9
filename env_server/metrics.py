"""What a server counts, as Prometheus reads it at `/metrics`.

Latencies are observed as they happen; all else is read where it is counted anyway, when Prometheus
asks. Every metric begins with `sqlenv_`, but for `process_*` (memory, CPU and open files of the
server's process, its SQL workers aside). `docs/scaling-ops.md` says which to watch.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.actions import ActionType
from shared.models import Outcome

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Upper bounds of the buckets, in seconds. A look-up takes 50 us, a step of a busy server
# milliseconds, a query at the limit on VM steps 1 s, a request at most `request_timeout_s`.
STEP_BUCKETS_S = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
REQUEST_BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
# the path of requests that name no endpoint; a label must not take any text that is sent
OTHER = "other"


class Episodes(Protocol):
    """What is read of the episodes' pool. `counts`: see `EpisodePool`."""

    counts: Counts[str]
    steps: Counts[ActionType]
    ended: Counts[Outcome]
    draining: bool
    in_flight: int

    def __len__(self) -> int: ...
    @property
    def finished(self) -> int: ...


class Sql(Protocol):
    """What is read of the SQL workers' pool. `counts`: see `SqlPool`."""

    counts: Counts[str]

    @property
    def queue_depth(self) -> int: ...
    @property
    def workers_up(self) -> int: ...


class Metrics:
    """The metrics of one server. `observe` names what to read; before that only latencies and
    errors are there."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._readings: _Readings | None = None
        step = Histogram(
            "sqlenv_step_seconds",
            "From a step's turn to its reply, SQL and its queue with it; repeats aside.",
            ["action"],
            buckets=STEP_BUCKETS_S,
            registry=self.registry,
        )
        self.step_seconds = {action: step.labels(action.value.lower()) for action in ActionType}
        self.request_seconds = Histogram(
            "sqlenv_request_seconds",
            "From a request's head to its reply's end.",
            ["path"],
            buckets=REQUEST_BUCKETS_S,
            registry=self.registry,
        )
        self.errors = Counter(
            "sqlenv_errors",
            "Errors sent, by code; items of batches count.",
            ["code"],
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def observe(
        self, episodes: Episodes, sql: Sql, capacity: int, about: Mapping[str, str]
    ) -> None:
        """Read these from now on, and no others. `about`: labels of the one metric that says what
        this server is."""
        if self._readings is not None:  # of an earlier life of the same application
            self.registry.unregister(self._readings)
        self._readings = _Readings(episodes, sql, capacity, about)
        self.registry.register(self._readings)

    def text(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self.registry)


class _Readings(Collector):
    def __init__(
        self, episodes: Episodes, sql: Sql, capacity: int, about: Mapping[str, str]
    ) -> None:
        self._episodes, self._sql, self._capacity, self._about = episodes, sql, capacity, about

    def collect(self) -> Iterable[Metric]:
        episodes, sql = self._episodes, self._sql
        yield InfoMetricFamily("sqlenv_server", "What this server is.", value=dict(self._about))
        yield _gauge("sqlenv_draining", "1 while the server shuts down.", float(episodes.draining))

        ended = {
            outcome.value: episodes.ended[outcome]
            for outcome in Outcome
            if outcome != Outcome.INFRA_FAILED
        }
        yield _counters(
            "sqlenv_episodes_ended",
            "Episodes ended here; a replay of an ended one counts.",
            "outcome",
            ended,
        )
        count = episodes.counts
        yield _counter(
            "sqlenv_episodes_started", "Episodes begun, rebuilt ones among them.", count["started"]
        )
        yield _counter(
            "sqlenv_episodes_rebuilt", "Episodes rebuilt from their actions.", count["rebuilt"]
        )
        yield _counter(
            "sqlenv_steps_replayed", "Steps played to rebuild episodes.", count["replayed"]
        )
        yield _counter(
            "sqlenv_steps_repeated", "Steps answered again, charged once.", count["repeated"]
        )
        steps = {action.value.lower(): episodes.steps[action] for action in ActionType}
        yield _counters("sqlenv_steps", "Steps taken, replayed ones aside.", "action", steps)

        yield _gauge("sqlenv_leases", "Unfinished episodes held.", len(episodes))
        yield _gauge("sqlenv_capacity", "Unfinished episodes that may be held.", self._capacity)
        yield _gauge(
            "sqlenv_finished_held", "Finished episodes held for repeats.", episodes.finished
        )
        yield _counter(
            "sqlenv_leases_expired", "Episodes abandoned because they were idle.", count["expired"]
        )
        yield _counter(
            "sqlenv_finished_evicted",
            "Finished ones forgotten before their lease.",
            count["evicted"],
        )
        yield _gauge(
            "sqlenv_in_flight",
            "Requests for episodes, items of batches each, under way.",
            episodes.in_flight,
        )

        yield _gauge(
            "sqlenv_sql_queue_depth", "SQL jobs sent and unanswered, or waiting.", sql.queue_depth
        )
        yield _gauge("sqlenv_sql_workers_up", "SQL workers that take jobs.", sql.workers_up)
        for name, key, text in (
            ("jobs", "jobs", "SQL jobs asked for."),
            ("kills", "kills", "SQL workers killed because a job ran past its time."),
            ("workers_lost", "losses", "SQL workers that died, killed ones among them."),
            ("jobs_retried", "retries", "SQL jobs sent again after their worker died."),
            ("jobs_moved", "moved", "SQL jobs taken from behind a slow one to another worker."),
            (
                "queries_killed",
                "killed_jobs",
                "Queries given up after they had killed their workers.",
            ),
        ):
            yield _counter(f"sqlenv_sql_{name}", text, sql.counts[key])


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
