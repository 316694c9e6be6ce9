"""What a server counts, in Prometheus's format at `/metrics`.

Latencies are observed as they happen; everything else is read, when Prometheus asks, where it is
counted anyway. Every metric's name starts with `sqlenv_`, except `process_*` (memory, CPU and open
files of the server's process without its SQL workers). `docs/scaling-ops.md` says what to watch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, get_args

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from env_server.verifier import STANDARDS, TRAINING_STANDARD
from shared.actions import ActionType
from shared.models import AnswerForm, FormTotals, Outcome, VerdictTotals

Labels = Mapping[str, str]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Upper bounds in seconds. A look-up takes 50 us, a step of a busy server milliseconds, a query at
# the limit on VM steps 1 s, a request at most `request_timeout_s`.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STEP_BUCKETS_S = (0.0005, *BUCKETS_S)
REQUEST_BUCKETS_S = (*BUCKETS_S, 60.0)
OTHER = "other"  # the path label of requests to no endpoint: clients must not create labels

# metric -> its key in `SqlPool.counts`, and its help
SQL_COUNTERS = {
    "jobs": ("jobs", "SQL jobs requested."),
    "kills": ("kills", "SQL workers killed because a job exceeded its time limit."),
    "workers_lost": ("losses", "SQL workers that died, including killed ones."),
    "jobs_retried": ("retries", "SQL jobs sent again after their worker died."),
    "jobs_moved": ("moved", "SQL jobs moved to another worker from behind a slow one."),
    "queries_killed": ("killed_jobs", "Queries given up after they had killed their workers."),
}
# metric -> its key in `EpisodePool.counts`, and its help
EPISODE_COUNTERS = {
    "episodes_started": ("started", "Episodes started, including rebuilt ones."),
    "episodes_rebuilt": ("rebuilt", "Episodes rebuilt from their actions."),
    "steps_replayed": ("replayed", "Steps played to rebuild episodes."),
    "steps_repeated": ("repeated", "Steps whose reply was sent again; the budget is charged once."),
    "leases_expired": ("expired", "Episodes abandoned because they were idle."),
    "finished_evicted": ("evicted", "Finished episodes removed before their lease ended."),
}


class AnswerCounts:
    """The answers since the server started; replaying an ended episode counts it again."""

    def __init__(self) -> None:
        self.answered: Counter[AnswerForm] = Counter()
        self.right: Counter[tuple[AnswerForm, str]] = Counter()  # by the standard that says so

    def add(self, form: AnswerForm, verdicts: Mapping[str, bool]) -> None:
        """Count one answer. `verdicts` says which standards call it right."""
        self.answered[form] += 1
        self.right.update((form, name) for name, right in verdicts.items() if right)

    def totals(self) -> VerdictTotals:
        """Return the counts by form and by the standards that call answers right."""
        forms = {}
        for form in get_args(AnswerForm):
            right = {name: self.right[form, name] for name in STANDARDS}
            forms[form] = FormTotals(answered=self.answered[form], right=right)
        return VerdictTotals(training_standard=TRAINING_STANDARD, forms=forms)


class Episodes(Protocol):
    """What is read of the pool of episodes."""

    counts: Counter[str]
    steps: Counter[ActionType]
    ended: Counter[Outcome]
    draining: bool
    in_flight: int

    def __len__(self) -> int: ...
    @property
    def finished(self) -> int: ...


class Sql(Protocol):
    """What is read of the pool of SQL workers."""

    counts: Counter[str]

    @property
    def queue_depth(self) -> int: ...
    @property
    def workers_up(self) -> int: ...


class Metrics:
    """The metrics of one server. Before `observe` there are only latencies and errors."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._readings: _Readings | None = None
        step = prometheus.Histogram(
            "sqlenv_step_seconds",
            "Time from a step's turn to its reply, with SQL and its queue; repeats excluded.",
            ["action"],
            buckets=STEP_BUCKETS_S,
            registry=self.registry,
        )
        self.step_seconds = {action: step.labels(action.value.lower()) for action in ActionType}
        self.request_seconds = prometheus.Histogram(
            "sqlenv_request_seconds",
            "Time from a request's head to the end of its reply.",
            ["path"],
            buckets=REQUEST_BUCKETS_S,
            registry=self.registry,
        )
        self.errors = prometheus.Counter(
            "sqlenv_errors",
            "Errors sent, by code; each item of a batch counts.",
            ["code"],
            registry=self.registry,
        )
        prometheus.ProcessCollector(registry=self.registry)

    def observe(self, episodes: Episodes, sql: Sql, capacity: int, labels: Labels) -> None:
        """Read these pools from now on. `labels` are those of `sqlenv_server`."""
        if self._readings is not None:  # of an earlier lifespan of the same application
            self.registry.unregister(self._readings)
        self._readings = _Readings(episodes, sql, capacity, labels)
        self.registry.register(self._readings)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return prometheus.generate_latest(self.registry)


class _Readings(Collector):
    def __init__(self, episodes: Episodes, sql: Sql, capacity: int, labels: Labels) -> None:
        self._episodes, self._sql, self._capacity, self._labels = episodes, sql, capacity, labels

    def collect(self) -> Iterable[Metric]:
        episodes, sql = self._episodes, self._sql
        yield InfoMetricFamily("sqlenv_server", "What this server is.", value=dict(self._labels))
        gauges = {
            "draining": ("1 while the server shuts down.", episodes.draining),
            "leases": ("Unfinished episodes in the pool.", len(episodes)),
            "capacity": ("The most unfinished episodes that the pool takes.", self._capacity),
            "finished_held": ("Finished episodes kept for repeats.", episodes.finished),
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
            if outcome != Outcome.INFRA_FAILED:  # known to clients only
                ended.add_metric([outcome.value], episodes.ended[outcome])
        yield ended
        text = "Steps taken, replayed ones excluded."
        steps = CounterMetricFamily("sqlenv_steps", text, labels=["action"])
        for action in ActionType:
            steps.add_metric([action.value.lower()], episodes.steps[action])
        yield steps
