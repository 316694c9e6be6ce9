import itertools

import pytest

from shared.run_stats import wilson_interval
from trainer.run.statistics import Rate, mean_interval, pass_at_k, t_95


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
def test_wilson_interval_gives_published_values(
    successes: int, n: int, low: float, high: float
) -> None:
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


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson_interval(3, 2)


def test_rate_is_a_share_between_0_and_1() -> None:
    fields = Rate.of([True, False, True, True]).as_dict()
    assert fields["rate"] == 0.75
    assert fields["n"] == 4
    assert fields["ci95"][0] < 0.75 < fields["ci95"][1]


@pytest.mark.parametrize(("n", "c"), [(5, 0), (5, 1), (5, 3), (6, 5), (4, 4)])
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(n: int, c: int) -> None:
    tries = [index < c for index in range(n)]
    for k in range(1, n + 1):
        draws = list(itertools.combinations(tries, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)


def test_pass_at_k_does_not_overflow() -> None:
    assert pass_at_k(10_000, 100, 100) == pytest.approx(1 - 0.99**100, abs=0.01)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6)])
def test_pass_at_k_refuses_what_can_not_be(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="tries"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (8, 2.306), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (120, 1.980)],
)
def test_students_quantile_gives_published_values(freedom: int, expected: float) -> None:
    assert t_95(freedom) == pytest.approx(expected, abs=1e-3)


def test_students_quantile_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="0 degrees"):
        t_95(0)


def test_mean_interval_is_the_t_interval() -> None:
    # mean 2.5, standard deviation 1.2910, standard error 0.6455, t of 3 degrees 3.182
    assert mean_interval([1.0, 2.0, 3.0, 4.0]) == pytest.approx((0.446, 4.554), abs=1e-3)
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0)
    assert mean_interval([2.0]) is None
    assert mean_interval([]) is None
