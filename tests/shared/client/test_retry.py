"""When a request is sent again, and how long after."""

import asyncio
import time
from email.utils import formatdate

import pytest

from shared.client.limits import ClientLimits, ClientStats
from shared.client.retry import LONGEST_RETRY_AFTER_S, Attempts, parse_retry_after, retry_wait_s
from shared.errors import CapacityReached, Conflict, NotReady, ServerUnreachable, SQLEnvError


def test_waits_double_up_to_the_longest_and_jitter() -> None:
    limits = ClientLimits(max_attempts=100, backoff_s=1.0, longest_wait_s=8.0)
    for attempt, longest in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (99, 8)]:
        waits = [retry_wait_s(limits, attempt, NotReady("")) for _ in range(200)]
        assert all(wait is not None and longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 100


def test_the_last_attempt_and_what_no_retry_helps_are_given_up() -> None:
    limits = ClientLimits(max_attempts=3)
    assert retry_wait_s(limits, 2, NotReady("")) is not None
    assert retry_wait_s(limits, 3, NotReady("")) is None
    assert retry_wait_s(limits, 1, Conflict("")) is None
    assert retry_wait_s(limits, 1, Conflict(""), hopeful=True) is not None
    # an inner layer has retried it
    assert retry_wait_s(limits, 1, ServerUnreachable("", attempts=3)) is None
    assert retry_wait_s(ClientLimits(max_attempts=1), 1, SQLEnvError("")) is None


def test_patience_outlasts_the_attempts() -> None:
    limits = ClientLimits(max_attempts=3, patience_s=10.0)
    assert retry_wait_s(limits, 99, NotReady(""), elapsed_s=9.0) is not None
    assert retry_wait_s(limits, 99, NotReady(""), elapsed_s=10.0) is None
    assert retry_wait_s(limits, 2, NotReady(""), elapsed_s=10.0) is not None


@pytest.mark.parametrize(
    ("stated", "low", "high"), [(2, 2, 2.1), (0.5, 0.5, 0.6), (9e9, 60, 60.1), (-5, 0, 0.1)]
)
def test_retry_after_comes_on_top_and_is_capped(stated: float, low: float, high: float) -> None:
    limits = ClientLimits(backoff_s=0.1)
    wait = retry_wait_s(limits, 1, CapacityReached("", retry_after_s=stated))
    assert wait is not None
    assert low <= wait <= high
    assert wait <= LONGEST_RETRY_AFTER_S + 0.1


@pytest.mark.parametrize("stated", ["soon", None, [1], True])
def test_an_invalid_retry_after_is_ignored(stated: object) -> None:
    limits = ClientLimits(backoff_s=0.1)
    wait = retry_wait_s(limits, 1, CapacityReached("", retry_after_s=stated))
    assert wait is not None
    assert wait <= (1.1 if stated is True else 0.1)


def test_retry_after_headers() -> None:
    assert parse_retry_after(None) is None
    assert parse_retry_after("12") == 12.0
    assert parse_retry_after("-3") == 0.0
    assert parse_retry_after("soon") is None
    assert parse_retry_after("nan") == 0.0
    seconds = parse_retry_after(formatdate(time.time() + 100, usegmt=True))
    assert seconds is not None
    assert 95 < seconds < 101
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


class Peers:
    async def pause(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)

    def report(self, error: Exception) -> None:
        pass


def test_attempts_are_counted_and_end() -> None:
    async def fail(failures: int, max_attempts: int) -> tuple[Attempts, ClientStats]:
        stats = ClientStats()
        limits = ClientLimits(max_attempts=max_attempts, backoff_s=0.001)
        attempts = Attempts(limits, stats, Peers())
        for _ in range(failures):
            await attempts.wait(NotReady("starting"))
        return attempts, stats

    attempts, stats = asyncio.run(fail(2, max_attempts=5))
    assert (attempts.count, stats.retries) == (3, 2)
    with pytest.raises(NotReady) as caught:
        asyncio.run(fail(2, max_attempts=2))
    assert caught.value.details == {"attempts": 2}


def test_an_error_that_no_retry_helps_is_raised_without_a_count() -> None:
    attempts = Attempts(ClientLimits(), ClientStats(), Peers())
    with pytest.raises(Conflict) as caught:
        asyncio.run(attempts.wait(Conflict("")))
    assert caught.value.details == {}
