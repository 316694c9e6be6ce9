"""The limits of a client, the counts that it keeps, and the retry layer: whether an operation is
tried again, and how long to wait before that.

Every request of the client is idempotent: the client chooses an episode's id, a step carries its
number, and a server answers a repeat with its stored reply. So a retry is always safe.
"""

import random
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from shared.errors import SQLEnvError, is_retryable


@dataclass(frozen=True)
class ClientLimits:
    """How long a client waits, how often it tries, and how much it sends at once."""

    timeout_s: float = 60.0  # one request, from connecting to the last byte
    # A request that takes this long makes the client check `/health`; without an answer for as
    # long again, other servers take over.
    stall_s: float = 3.0
    max_attempts: int = 8  # tries of one request, and rounds over all servers
    patience_s: float = 0.0  # keeps trying for at least this long, past `max_attempts`
    backoff_s: float = 0.25  # upper bound of the first wait; doubles each time; x 0.5 to 1.0
    longest_wait_s: float = 10.0  # where the doubling ends
    max_batch: int = 256  # steps or resets in one request
    max_batch_bytes: int = 512 * 1024  # of one request, unless a single item is larger
    # Requests under way, of steps and of resets each, per server. Behind a gateway that spreads
    # episodes over shards: one per shard.
    batches_in_flight: int = 2
    refresh_s: float = 10.0  # between two look-ups of a host name's addresses

    def __post_init__(self) -> None:
        for name in ("timeout_s", "stall_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be over 0")
        for name in ("max_attempts", "max_batch", "max_batch_bytes", "batches_in_flight"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass
class ClientStats:
    """What a client has done so far."""

    requests: int = 0  # HTTP requests sent, retries included
    batches: int = 0  # of them, /step_batch and /reset_batch
    steps: int = 0  # steps answered
    retries: int = 0  # requests sent again, and batch items sent again
    rebuilds: int = 0  # episodes rebuilt by replay
    moves: int = 0  # of them, those that went to another server
    servers_lost: int = 0  # times that a server was taken out of use
    calls_waiting: int = 0  # calls that wait for a server now
    # seconds in which at least one call waited for a server; concurrent waits count once
    wait_s: float = 0.0


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
