"""The numbers of the live board."""

import asyncio
import time
from collections import deque
from itertools import pairwise
from typing import Any

from env_server.service import Service
from shared.models import Outcome
from shared.run_stats import Rate

SAMPLES, SAMPLE_S = 121, 0.9  # of steps per second: how many are kept, seconds between two
REPLAYS = 2  # pages with replayed episodes that are made at a time


class Board:
    """What the server does now, and what all viewers of its page share."""

    def __init__(self) -> None:
        self.replays = asyncio.Semaphore(REPLAYS)
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def numbers(self, service: Service) -> dict[str, Any]:
        """Return the numbers; a rate needs two samples, of which each call takes one."""
        pool, samples = service.pool, self._samples
        now = time.monotonic()
        if not samples or now - samples[-1][0] >= SAMPLE_S:
            samples.append((now, sum(pool.steps.values())))
        owners = pool.store.owners
        stepping = sum(one.users > 0 for held in owners.values() for one in held.active.values())
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
            "owners": {name or "none": len(held.active) for name, held in owners.items()},
        }
