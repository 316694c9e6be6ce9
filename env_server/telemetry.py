"""What a server reports of itself: log lines, and metrics in Prometheus's format at `/metrics`.

A log line is text or one JSON object, and names the episode that it is about: that of the request
being handled (`about`), or the one in `extra={"episode_id": ...}`.

Latencies and errors are observed as they happen; `service.Readings` reads everything else when
Prometheus asks. `process_*` is the server's process without its SQL workers.
"""

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import prometheus_client as prometheus

from shared.actions import ActionType
from shared.errors import BY_CODE

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(suffix)s"
NO_HANDSHAKE = "ASGI callable returned without completing handshake."
REFUSALS = "env_server.http.auth"  # the logger of what is refused for its key, origin or digest
_episode_id: ContextVar[str | None] = ContextVar("episode_id", default=None)


@contextmanager
def about(episode_id: str) -> Iterator[None]:
    """Attribute the block's log lines, and the exceptions that leave it, to an episode."""
    token = _episode_id.set(episode_id)
    try:
        yield
    except Exception as error:
        vars(error).setdefault("episode_id", episode_id)
        raise
    finally:
        _episode_id.reset(token)


def episode_of(error: BaseException) -> dict[str, str]:
    """Return `extra` for a line about an error that left an `about` block."""
    return {"episode_id": str(vars(error).get("episode_id", ""))}


class WithEpisode(logging.Filter):
    """Sets each record's `episode_id`, "" if it is about none, and its form in `TEXT`."""

    def filter(self, record: logging.LogRecord) -> bool:
        episode_id = getattr(record, "episode_id", "") or _episode_id.get() or ""
        record.episode_id, record.suffix = episode_id, f" [{episode_id}]" if episode_id else ""
        return True


class OncePerMinute(logging.Filter):
    """Passes the first line of each kind, then one a minute, which says how many it stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, tuple[float, int]] = {}  # kind -> seconds of its last line, left out

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.msg
        last, left_out = self.seen.get(kind, (-math.inf, 0))
        if record.created < last + 60:
            self.seen[kind] = last, left_out + 1
            return False
        if left_out:
            record.msg = f"{kind} ({left_out:,} more since the last such line)"
        self.seen[kind] = record.created, 0
        return True


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message"}`, with an `episode_id` and a `traceback` if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if episode_id := getattr(record, "episode_id", ""):
            fields["episode_id"] = episode_id
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def configure(level: str, form: Literal["text", "json"]) -> None:
    """Make every logger write to stderr; uvicorn's, which log each request, from warnings up."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
    handler.addFilter(WithEpisode())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    # of a WebSocket that was refused, which is logged where it is refused
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != NO_HANDSHAKE)
    logging.getLogger(REFUSALS).addFilter(OncePerMinute())


# -- metrics

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
    "jobs_moved": ("moved", "SQL jobs moved to another worker from behind a slow one."),
    "jobs_preempted": ("preempted", "SQL jobs stopped while others waited, to start anew later."),
    "queries_killed": ("killed_jobs", "Queries given up after they had killed their workers."),
}
# metric -> its key in `EpisodePool.counts`, and its help
EPISODE_COUNTERS = {
    "episodes_started": ("started", "Episodes started, including rebuilt ones."),
    "episodes_rebuilt": ("rebuilt", "Episodes rebuilt from their actions."),
    "steps_replayed": ("replayed", "Steps played to rebuild episodes."),
    "steps_repeated": ("repeated", "Steps whose reply was sent again; each counts once."),
    "episodes_moved": ("moved", "Unfinished copies closed, of episodes that ended elsewhere."),
    "leases_expired": ("expired", "Episodes abandoned because they were idle."),
    "finished_evicted": ("evicted", "Finished episodes removed before their lease ended."),
}


class Metrics:
    """The latencies and errors of one server."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        histogram = partial(prometheus.Histogram, registry=self.registry)
        text = "Time from a step's turn to its reply, with SQL and its queue; repeats excluded."
        step = histogram("sqlenv_step_seconds", text, ["action"], buckets=STEP_BUCKETS_S)
        self.step_seconds = {action: step.labels(action.value.lower()) for action in ActionType}
        text, buckets = "Time from a request's head to the end of its reply.", REQUEST_BUCKETS_S
        self.request_seconds = histogram("sqlenv_request_seconds", text, ["path"], buckets=buckets)
        text = "Errors sent, by code; each item of a batch counts."
        self.errors = prometheus.Counter("sqlenv_errors", text, ["code"], registry=self.registry)
        for code in BY_CODE:  # from 0: of a series that begins with an error, increase() is 0
            self.errors.labels(code)
        text = "Requests that were admitted, by the name of their key; none: without one."
        self.requests = prometheus.Counter("sqlenv_requests", text, ["key"], registry=self.registry)
        prometheus.ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        return prometheus.generate_latest(self.registry)
