"""Success rates with their uncertainty. Pure functions of counts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.run_stats import Z_95, wilson_interval

# two-sided 95 % of Student's t with 1, 2, ... degrees of freedom
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def t_95(freedom: int) -> float:
    """Student's two-sided 95 % quantile with `freedom` >= 1 degrees of freedom, to 0.001.

    Source: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions (1964), 26.7.5, beyond
    its table.
    """
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom")
    if freedom <= len(T_95):
        return T_95[freedom - 1]
    z = Z_95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of independent `values`: mean -+ t x standard error. None of
    fewer than 2."""
    n = len(values)
    if n < 2:
        return None
    mean = sum(values) / n
    half = t_95(n - 1) * math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    return mean - half, mean + half


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that one of `k` tries or more is right, estimated without bias from `n` >= k tries
    of which `c` are.

    1 - C(n - c, k) / C(n, k): one minus the share of the k-subsets of the n tries that hold no
    right one. The plug-in 1 - (1 - c/n)^k would be too low. A question's value; average over
    questions. Source: M. Chen et al., Evaluating Large Language Models Trained on Code,
    arXiv:2107.03374 (2021), equation 1.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} right of {n} tries")
    if not 1 <= k <= n:
        raise ValueError(
            f"pass@{k} can't be estimated from {n} tries: k is 1 to the number of tries"
        )
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@dataclass(frozen=True)
class Rate:
    """A success rate in [0, 1] over `n` distinct questions, with its 95 % interval. `rate` is None
    where n is 0."""

    successes: int
    n: int

    @classmethod
    def of(cls, results: Iterable[bool]) -> "Rate":
        outcomes = list(results)
        return cls(sum(outcomes), len(outcomes))

    @property
    def rate(self) -> float | None:
        return self.successes / self.n if self.n else None

    @property
    def ci95(self) -> tuple[float, float]:
        return wilson_interval(self.successes, self.n)

    def as_dict(self) -> dict[str, Any]:
        """`{rate, n, ci95: [low, high]}`, the form of summary.json; unrounded."""
        return {"rate": self.rate, "n": self.n, "ci95": list(self.ci95)}
