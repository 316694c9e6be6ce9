import pytest

from trainer.statistics import Rate, wilson_interval


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # published values of the Wilson score interval at 95 %
        (81, 263, 0.2553, 0.3662),  # Newcombe (1998), table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (10, 10, 0.7225, 1.0),
    ],
)
def test_wilson_interval_gives_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 50, 400])
def test_wilson_interval_holds_the_rate_and_stays_in_bounds(n: int) -> None:
    for successes in range(n + 1):
        low, high = wilson_interval(successes, n)
        assert 0.0 <= low <= successes / n <= high <= 1.0
        assert wilson_interval(n - successes, n) == pytest.approx((1 - high, 1 - low))


def test_nothing_tried_says_nothing() -> None:
    rate = Rate.of([])
    assert rate.rate is None
    assert rate.as_dict() == {"rate": None, "n": 0, "ci95": [0.0, 1.0]}
    assert str(rate) == "-"


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson_interval(3, 2)


def test_rate_is_a_share_between_0_and_1() -> None:
    fields = Rate.of([True, False, True, True]).as_dict()
    assert fields["rate"] == 0.75
    assert fields["n"] == 4
    assert fields["ci95"][0] < 0.75 < fields["ci95"][1]
