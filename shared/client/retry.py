"""When to send a request again, and how long to wait before.

Every request of the client is idempotent: an episode's id is chosen by the client, a step carries
its number, and the server answers a repeat with its stored reply. So a retry is always safe, and
what bounds it is time alone.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import TypeVar

from shared.errors import SQLEnvError, is_retryable

T = TypeVar("T")
logger = logging.getLogger(__name__)

# a server's Retry-After is honoured up to here, so that none can stop a run for hours
LONGEST_RETRY_AFTER_S = 60.0


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter: waits of about `backoff_s`, twice it, four times it, up to
    `longest_wait_s`.

    Gives up after `max_attempts`, but not until `patience_s` seconds have passed since the first.
    """

    max_attempts: int = 8
    backoff_s: float = 0.25
    longest_wait_s: float = 10.0
    patience_s: float = 0.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}; it must be at least 1")

    def spent(self, attempt: int, elapsed_s: float = 0.0) -> bool:
        """Whether `attempt` (1 for the first), `elapsed_s` seconds after the first began, was the
        last."""
        return attempt >= self.max_attempts and elapsed_s >= self.patience_s

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after `attempt`. The jitter, half of it, keeps clients that failed
        together from coming back together."""
        return min(
            self.longest_wait_s, self.backoff_s * 2.0 ** min(attempt - 1, 60)
        ) * random.uniform(0.5, 1.0)

    def wait_s(
        self, attempt: int, error: SQLEnvError, elapsed_s: float = 0.0, *, hopeful: bool = False
    ) -> float | None:
        """Seconds to wait after `attempt` failed with `error`, a stated Retry-After among them;
        None to give up.

        `hopeful`: another attempt can help, though the same server would say the same again.
        """
        if (
            "attempts" in error.details
            or self.spent(attempt, elapsed_s)
            or not (hopeful or is_retryable(error))
        ):
            return None
        wait_s = self.backoff(attempt)
        retry_after_s = error.details.get("retry_after_s")
        if isinstance(retry_after_s, int | float) and retry_after_s > 0:
            wait_s += min(float(retry_after_s), LONGEST_RETRY_AFTER_S)
        return wait_s


class Attempts:
    """One operation's attempts under a policy, counted and timed from its first."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy, self.count, self._began = policy, 1, monotonic()

    def wait_s(self, error: SQLEnvError, *, hopeful: bool = False) -> float | None:
        """`RetryPolicy.wait_s` of the attempt that failed with `error`."""
        return self.policy.wait_s(self.count, error, monotonic() - self._began, hopeful=hopeful)

    def spent(self) -> bool:
        return self.policy.spent(self.count, monotonic() - self._began)


async def with_retries(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    on_retry: Callable[[], None],
    *,
    gives_way: Callable[[int, SQLEnvError], bool] = lambda attempt, error: False,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """What `call()` returns, tried as often as `policy` allows; `on_retry` is called before each
    further attempt.

    An error that outlasts its retries has their number in `details["attempts"]`, and is not retried
    by an outer layer. One of which `gives_way(attempt, error)` says so is raised at once, without
    that number: somebody else can serve. `pause` waits, or less where it knows better.
    """
    attempts = Attempts(policy)
    while True:
        try:
            return await call()
        except SQLEnvError as error:
            if gives_way(attempts.count, error):
                raise
            wait_s = attempts.wait_s(error)
            if wait_s is None:
                if is_retryable(error):
                    error.details.setdefault("attempts", attempts.count)
                raise
            # one lost connection is everyday
            level = logging.WARNING if attempts.count > 1 else logging.INFO
            logger.log(level, "%s; attempt %d in %.2f s", error, attempts.count + 1, wait_s)
        on_retry()
        await pause(wait_s)
        attempts.count += 1


def parse_retry_after(value: str | None) -> float | None:
    """Seconds, from either form of a Retry-After header (a number or an HTTP date); None where it
    says nothing."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return None
