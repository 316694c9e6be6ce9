"""Retries: whether an operation is tried again, and how long to wait before that.

Every request of the client is idempotent: the client chooses an episode's id, a step carries its
number, and a server answers a repeat with its stored reply. So a retry is always safe.
"""

import random
from time import monotonic
from typing import Any, Protocol

from shared.client.limits import ClientLimits, ClientStats
from shared.errors import SQLEnvError, is_retryable

# Of the retries of a server that has never answered, without `patience_s`.
FIRST_CONTACT_S = 8.0
# A longer Retry-After is cut to this, so that no server can stop a run for hours.
LONGEST_RETRY_AFTER_S = 60.0


def retry_wait_s(
    limits: ClientLimits,
    attempt: int,
    error: SQLEnvError,
    elapsed_s: float = 0.0,
    *,
    hopeful: bool = False,
) -> float | None:
    """Return the seconds to wait after attempt number `attempt` (from 1) failed; None to give up.

    `elapsed_s` counts from the first attempt. `hopeful`: another attempt may succeed although
    `error` itself is not retryable. A Retry-After in the error's details comes on top.
    """
    spent = attempt >= limits.max_attempts and elapsed_s >= limits.patience_s
    given_up_below = "attempts" in error.details  # by an inner retry
    if spent or given_up_below or not (hopeful or is_retryable(error)):
        return None
    longest_s = min(limits.longest_wait_s, limits.backoff_s * 2.0 ** min(attempt - 1, 60))
    wait_s = longest_s * random.uniform(0.5, 1.0)  # so that clients do not return all at once
    retry_after_s = error.details.get("retry_after_s")
    if isinstance(retry_after_s, int | float) and retry_after_s > 0:
        wait_s += min(float(retry_after_s), LONGEST_RETRY_AFTER_S)
    return wait_s


class Peers(Protocol):
    """What attempts and replicas ask of their `Fleet`, which documents the methods."""

    limits: ClientLimits
    stats: ClientStats

    def report(self, error: SQLEnvError) -> None: ...
    async def pause(self, wait_s: float) -> None: ...
    def lose(self, replica: Any, error: SQLEnvError) -> None: ...
    def others(self, replica: Any) -> int: ...
    def answered(self, replica: Any) -> None: ...


class Attempts:
    """The attempts of one operation: counted, timed, and with a wait between one and the next."""

    def __init__(self, peers: Peers, limits: ClientLimits | None = None) -> None:
        self.count = 1
        self._peers, self._limits = peers, limits or peers.limits
        self._began = monotonic()

    async def wait(self, error: SQLEnvError, *, hopeful: bool = False) -> None:
        """Wait before the next attempt after `error`; raise it if there is none, with "attempts" in
        its details, which tells an outer layer that it was retried already."""
        elapsed_s = monotonic() - self._began
        wait_s = retry_wait_s(self._limits, self.count, error, elapsed_s, hopeful=hopeful)
        first = error.details.get("first") and not self._limits.patience_s
        if wait_s is None or (first and elapsed_s + wait_s > FIRST_CONTACT_S):
            if is_retryable(error):
                error.details.setdefault("attempts", self.count)
            raise error
        if self.count > 1:  # one failure is common
            self._peers.report(error)
        self._peers.stats.retries += 1
        await self._peers.pause(wait_s)
        self.count += 1
