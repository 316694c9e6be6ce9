"""Student's t interval of a mean. `shared.run_stats` has the statistics of a run."""

import math
from collections.abc import Sequence

from shared.run_stats import Z_95

# two-sided 95 % quantiles of Student's t with 1, 2, ... degrees of freedom
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def t_95(freedom: int) -> float:
    """Return Student's two-sided 95 % quantile with `freedom` >= 1 degrees of freedom, to 0.001.

    Source beyond the table: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions (1964),
    26.7.5.
    """
    if freedom <= len(T_95):
        return T_95[freedom - 1]
    z = Z_95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % t interval of the mean of independent `values`; None for fewer than 2."""
    n = len(values)
    if n < 2:
        return None
    mean = sum(values) / n
    half = t_95(n - 1) * math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    return mean - half, mean + half
