"""Paired comparison of two measurements: the exact test, the interval of the difference; pass@k."""

import itertools

import pytest

from trainer.evaluation.analysis import compare, difference_interval, mcnemar_exact, pass_at_k


def pairs(both: int, first: int, second: int, neither: int) -> list[tuple[float, float]]:
    """Return questions that both sides, only the first, only the second, and neither got right."""
    return (
        [(1.0, 1.0)] * both + [(1.0, 0.0)] * first + [(0.0, 1.0)] * second + [(0.0, 0.0)] * neither
    )


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 5, 1.0),
        (7, 1, 18 / 256),
        (1, 7, 18 / 256),
        (6, 0, 2 / 64),
        (10, 2, 158 / 4096),
    ],
)
def test_mcnemars_exact_test_sums_binomial_tails(gained: int, lost: int, p: float) -> None:
    assert mcnemar_exact(gained, lost) == pytest.approx(p, rel=1e-12)


def test_the_test_is_exact_for_thousands() -> None:
    assert mcnemar_exact(3000, 0) == 0.0  # 2^-2999 underflows
    assert mcnemar_exact(1000, 1000) == 1.0
    # the normal approximation, continuity-corrected
    assert mcnemar_exact(1100, 900) == pytest.approx(8.5e-6, rel=0.02)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ((20, 2, 12, 16), (0.0562, 0.3292)),  # Newcombe 1998
        ((1, 1, 7, 12), (0.026, 0.507)),  # Fagerland, Lydersen and Laake 2014
    ],
)
def test_the_interval_is_the_published_one(
    table: tuple[int, int, int, int], expected: tuple[float, float]
) -> None:
    assert difference_interval(pairs(*table)) == pytest.approx(expected, abs=5e-4)
    both, first, second, neither = table
    turned = difference_interval(pairs(both, second, first, neither))
    assert turned == pytest.approx((-expected[1], -expected[0]), abs=5e-4)


def test_a_comparison_covers_the_questions_of_both_sides() -> None:
    before = {"a": 0.0, "b": 1.0, "c": 0.0, "only before": 1.0}
    after = {"a": 1.0, "b": 1.0, "c": 1.0, "only after": 0.0}
    found = compare(before, after)
    assert (found["n"], found["gained"], found["lost"], found["p_value"]) == (3, 2, 0, 0.5)
    assert (found["before"], found["after"]) == pytest.approx((1 / 3, 1.0))
    assert found["difference"] == pytest.approx(2 / 3)
    low, high = found["ci95"]
    assert low <= found["difference"] <= high
    assert low < 0  # three questions prove nothing
    nothing = compare({"a": 1.0}, {"b": 1.0})
    assert (nothing["n"], nothing["difference"], nothing["ci95"]) == (0, None, [-1.0, 1.0])


def test_rates_count_for_the_higher_side() -> None:
    before = {"a": 0.25, "b": 0.5, "c": 0.75, "d": 1.0}
    after = {"a": 0.5, "b": 0.75, "c": 0.5, "d": 1.0}
    found = compare(before, after)
    assert (found["gained"], found["lost"], found["p_value"]) == (2, 1, 1.0)
    assert found["difference"] == pytest.approx(0.25 / 4)
    assert found["ci95"][0] < 0 < found["ci95"][1]


@pytest.mark.parametrize(("n", "c"), [(5, 0), (5, 1), (5, 3), (6, 5), (4, 4)])
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(n: int, c: int) -> None:
    tries = [index < c for index in range(n)]
    for k in range(1, n + 1):
        draws = list(itertools.combinations(tries, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
