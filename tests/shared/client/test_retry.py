"""When a request is sent again, and how long after."""

import asyncio
import time
from email.utils import formatdate

import pytest

from shared.client.retry import LONGEST_RETRY_AFTER_S, RetryPolicy, parse_retry_after, with_retries
from shared.errors import CapacityReached, Conflict, NotReady, ServerUnreachable, SQLEnvError


def test_waits_double_up_to_the_longest_and_jitter() -> None:
    policy = RetryPolicy(max_attempts=100, backoff_s=1.0, longest_wait_s=8.0)
    for attempt, longest in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (99, 8)]:
        waits = [policy.wait_s(attempt, NotReady("")) for _ in range(200)]
        assert all(wait is not None and longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 100


def test_the_last_attempt_and_what_no_retry_mends_are_given_up() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert policy.wait_s(2, NotReady("")) is not None
    assert policy.wait_s(3, NotReady("")) is None
    assert policy.wait_s(1, Conflict("")) is None
    # an inner layer has retried it
    assert policy.wait_s(1, ServerUnreachable("", attempts=3)) is None


@pytest.mark.parametrize(
    ("stated", "low", "high"), [(2, 2, 2.1), (0.5, 0.5, 0.6), (9e9, 60, 60.1), (-5, 0, 0.1)]
)
def test_retry_after_comes_on_top_and_is_capped(stated: float, low: float, high: float) -> None:
    wait = RetryPolicy(backoff_s=0.1).wait_s(1, CapacityReached("", retry_after_s=stated))
    assert wait is not None
    assert low <= wait <= high
    assert wait <= LONGEST_RETRY_AFTER_S + 0.1


@pytest.mark.parametrize("stated", ["soon", None, [1], True])
def test_a_senseless_retry_after_is_ignored(stated: object) -> None:
    wait = RetryPolicy(backoff_s=0.1).wait_s(1, CapacityReached("", retry_after_s=stated))
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


def test_retrying_counts_and_ends() -> None:
    calls = retries = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise NotReady("starting")
        return "done"

    def count() -> None:
        nonlocal retries
        retries += 1

    async def main(policy: RetryPolicy) -> str:
        return await with_retries(call, policy, count)

    assert asyncio.run(main(RetryPolicy(max_attempts=5, backoff_s=0.001))) == "done"
    assert (calls, retries) == (3, 2)
    calls = retries = 0
    with pytest.raises(NotReady) as caught:
        asyncio.run(main(RetryPolicy(max_attempts=2, backoff_s=0.001)))
    assert caught.value.details == {"attempts": 2}
    assert (calls, retries) == (2, 1)


def test_an_unforeseen_exception_passes_at_once() -> None:
    async def call() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(with_retries(call, RetryPolicy(), lambda: None))


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        RetryPolicy(max_attempts=0)
    assert RetryPolicy(max_attempts=1).wait_s(1, SQLEnvError("")) is None
