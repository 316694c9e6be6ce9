"""The numbers of the live board."""

import time
from collections import deque
from itertools import pairwise
from typing import Any

from env_server.service import Service
from shared.models import Outcome
from shared.run_stats import Rate

SAMPLES, SAMPLE_S = 121, 0.9  # of steps per second: how many are kept, and the time between two


class Board:
    """What the server does now. `watchers` is how many browsers are sent it every second."""

    def __init__(self) -> None:
        self.watchers = 0
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def numbers(self, service: Service) -> dict[str, Any]:
        """Return the numbers; a rate needs two samples, of which each call takes one."""
        pool, samples = service.pool, self._samples
        now = time.monotonic()
        if not samples or now - samples[-1][0] >= SAMPLE_S:
            samples.append((now, sum(pool.steps.values())))
        held = pool.store.owners
        stepping = sum(one.users > 0 for part in held.values() for one in part.active.values())
        return {
            "rates": [(b - a) / (end - start) for (start, a), (end, b) in pairwise(samples)],
            "unfinished": len(pool),
            "capacity": service.settings.capacity,
            "draining": pool.draining,
            "started": pool.counts["started"],
            "correct": Rate(pool.ended[Outcome.CORRECT], sum(pool.ended.values())),
            "states": {
                "waiting for an action": len(pool) - stepping,
                "with a step under way": stepping,
                "ended, kept for repeats": pool.store.finished,
            },
            "outcomes": dict(pool.ended),
            "steps": dict(pool.steps),
            "sql": {
                "jobs waiting or running": service.sql.queue_depth,
                "workers": service.sql.workers_up,
                "workers lost": service.sql.counts["losses"],
            },
            "owners": {name or "none": len(part.active) for name, part in held.items()},
        }
