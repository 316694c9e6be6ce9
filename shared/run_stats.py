"""The interval beside every success rate: the trainer writes it, `python -m env_server verify`
checks it."""

import math

Z_95 = 1.959963984540054  # two-sided 95 % of the normal distribution


def wilson_interval(successes: float, n: int, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of a proportion, as (low, high) in [0, 1]; (0, 1) where nothing was
    tried.

    It stays inside [0, 1] and keeps its width at 0 % and 100 %, where the normal approximation has
    none. `successes` may be the sum of n values in [0, 1], such as each question's rate over
    several tries: their mean spreads no more than that of n yes-or-no results with the same mean,
    so the interval is then wider than it need be. Source: E. B. Wilson, Journal of the American
    Statistical Association 22 (1927), 209-212.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} tries")
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, z * z
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # the exact ends at 0 and 1 are lost to rounding
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high
