"""Two measurements of the same questions, compared question by question. Pure functions of each
question's success.

Where a question was tried once by either side its success is 0 or 1, and the test is McNemar's
exact one. Over several tries it is a rate, and the same test, on which side's rate is higher, is
the exact sign test.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shared.run_stats import wilson_interval


@dataclass(frozen=True)
class Paired:
    """What came of the comparison over the `n` questions that both have. `difference` is after -
    before, in [-1, 1].

    `gained`: questions on which `after` is better; `lost`: on which it is worse. Both tell against
    chance, the rest don't. None is what nothing was measured of.
    """

    n: int
    before: float | None
    after: float | None
    gained: int
    lost: int
    p_value: float
    difference: float | None
    ci95: tuple[float, float]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ci95": list(self.ci95)}


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> Paired:
    """The comparison of success by question, in [0, 1], over the questions of both."""
    common = sorted(before.keys() & after.keys())
    pairs = [(before[one], after[one]) for one in common]
    gained, lost = sum(b < a for b, a in pairs), sum(b > a for b, a in pairs)
    p_value, ci95 = mcnemar_exact(gained, lost), difference_interval(pairs)
    if not pairs:
        return Paired(0, None, None, 0, 0, p_value, None, ci95)
    first, second = (math.fsum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Paired(len(pairs), first, second, gained, lost, p_value, second - first, ci95)


def mcnemar_exact(gained: int, lost: int) -> float:
    """The two-sided p-value of McNemar's exact test: how likely the two discordant counts are to
    lie so far apart, or further, where either side is as likely to win a question on which they
    differ. 1 where they differ on none.

    Source: Q. McNemar, Psychometrika 12 (1947), 153-157, with the binomial distribution in place of
    its approximation.
    """
    if gained < 0 or lost < 0:
        raise ValueError(f"{gained} and {lost} are no counts")
    n = gained + lost
    tail = sum(math.comb(n, fewer) for fewer in range(min(gained, lost) + 1))
    # whole numbers up to the division: no rounding but its own
    return min(1.0, 2 * tail / (1 << n))


def difference_interval(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """The 95 % interval of the mean of second - first over `pairs` of values in [0, 1]; (-1, 1)
    where there are none.

    Newcombe's square-and-add interval: the Wilson intervals of either mean, put together with the
    correlation of the pairs. Over rates, not 0 or 1, it is wider than it need be, as Wilson's is.
    Source: R. G. Newcombe, Statistics in Medicine 17 (1998), 2635-2650, method 10.
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
    """Pearson's (of 0 and 1: phi), with the method's continuity correction; 0 where a side doesn't
    vary."""
    n = len(firsts)
    mean1, mean2 = math.fsum(firsts) / n, math.fsum(seconds) / n
    both = math.fsum(
        (one - mean1) * (two - mean2) for one, two in zip(firsts, seconds, strict=True)
    )
    own1 = math.fsum((one - mean1) ** 2 for one in firsts)
    own2 = math.fsum((two - mean2) ** 2 for two in seconds)
    both = max(0.0, both - 0.5) if both > 0 else both
    return both / math.sqrt(own1 * own2) if own1 > 0 and own2 > 0 else 0.0
