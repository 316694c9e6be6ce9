"""Student's t interval of a mean, and pass@k. `shared.run_stats` has the statistics of a run."""

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
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom: expected 1 or more")
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


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k for one question: n >= k samples, c of them correct.

    1 - C(n - c, k) / C(n, k), the share of k-subsets of the samples with a correct one; the plug-in
    1 - (1 - c/n)^k would be too low. Average it over questions. Source: M. Chen et al., Evaluating
    Large Language Models Trained on Code, arXiv:2107.03374 (2021), equation 1.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} correct of {n} tries")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs {k} tries, got {n}: k is 1 to the number of tries")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
