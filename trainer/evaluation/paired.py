"""Comparison of two measurements question by question. Pure functions of each question's success.

With one episode per question, success is 0 or 1, and the test is McNemar's exact test. Over several
samples it is a rate, and the same test, on which side's rate is higher, is the exact sign test.
"""

import math
from collections.abc import Mapping
from typing import TypedDict

from shared.run_stats import wilson_interval


class Paired(TypedDict):
    """The comparison over the `n` questions of both sides; None if there are none."""

    n: int
    before: float | None  # mean success
    after: float | None
    gained: int  # questions on which `after` is better
    lost: int  # questions on which it is worse
    p_value: float
    difference: float | None  # after - before, in [-1, 1]
    ci95: list[float]  # of the difference


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> Paired:
    """Compare success by question, in [0, 1], over the questions of both."""
    pairs = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    gained, lost = sum(b < a for b, a in pairs), sum(b > a for b, a in pairs)
    first, second = (
        math.fsum(pair[side] for pair in pairs) / len(pairs) if pairs else None for side in (0, 1)
    )
    return {
        "n": len(pairs),
        "before": first,
        "after": second,
        "gained": gained,
        "lost": lost,
        "p_value": mcnemar_exact(gained, lost),
        "difference": None if first is None or second is None else second - first,
        "ci95": list(difference_interval(pairs)),
    }


def mcnemar_exact(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test; 1 if the sides differ nowhere.

    The probability that the two discordant counts lie at least so far apart if each side is equally
    likely to win a question on which they differ. Source: Q. McNemar, Psychometrika 12 (1947),
    153-157, with the binomial distribution instead of its approximation.
    """
    n = gained + lost
    tail = sum(math.comb(n, fewer) for fewer in range(min(gained, lost) + 1))
    # integers up to the division, so that only it rounds
    return min(1.0, 2 * tail / (1 << n))


def difference_interval(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of second - first over `pairs` of values in [0, 1].

    (-1, 1) without pairs. Newcombe's square-and-add interval: the Wilson intervals of both means,
    combined with the correlation of the pairs; conservative for rates other than 0 and 1, as
    Wilson's is. Source: R. G. Newcombe, Statistics in Medicine 17 (1998), 2635-2650, method 10.
    """
    n = len(pairs)
    if n == 0:
        return -1.0, 1.0
    firsts, seconds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    total1, total2 = math.fsum(firsts), math.fsum(seconds)
    p1, p2 = total1 / n, total2 / n
    low1, high1 = wilson_interval(total1, n)
    low2, high2 = wilson_interval(total2, n)
    related = _correlation(firsts, seconds)
    down, up = p2 - low2, high1 - p1
    below = math.sqrt(max(0.0, down * down - 2 * related * down * up + up * up))
    up, down = high2 - p2, p1 - low1
    above = math.sqrt(max(0.0, up * up - 2 * related * up * down + down * down))
    return max(-1.0, p2 - p1 - below), min(1.0, p2 - p1 + above)


def _correlation(firsts: list[float], seconds: list[float]) -> float:
    """Return Pearson's r (phi for 0 and 1) with method 10's continuity correction.

    0 if a side is constant.
    """
    n = len(firsts)
    mean1, mean2 = math.fsum(firsts) / n, math.fsum(seconds) / n
    both = math.fsum((a - mean1) * (b - mean2) for a, b in zip(firsts, seconds, strict=True))
    own1 = math.fsum((value - mean1) ** 2 for value in firsts)
    own2 = math.fsum((value - mean2) ** 2 for value in seconds)
    both = max(0.0, both - 0.5) if both > 0 else both
    return both / math.sqrt(own1 * own2) if own1 > 0 and own2 > 0 else 0.0
