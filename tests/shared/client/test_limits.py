"""Invalid limits are refused."""

import pytest

from shared.client.limits import ClientLimits


@pytest.mark.parametrize("name", ["timeout_s", "stall_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_times_must_be_over_0(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be over 0"):
        ClientLimits(**{name: value})


@pytest.mark.parametrize(
    "name", ["max_attempts", "max_batch", "max_batch_bytes", "batches_in_flight"]
)
def test_counts_must_be_at_least_1(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
        ClientLimits(**{name: 0})
