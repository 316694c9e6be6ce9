import itertools

import pytest

from trainer.run.statistics import mean_interval, pass_at_k, t_95


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
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="tries"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (8, 2.306), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (120, 1.980)],
)
def test_students_quantile_matches_published_values(freedom: int, expected: float) -> None:
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
