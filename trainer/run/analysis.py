"""The numbers of evaluation.json, overall and by group, from an evaluation's episodes, and the
comparison with another measurement question by question."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from shared.actions import ActionType
from shared.models import DIFFICULTIES, Outcome
from shared.run_stats import SEEN, UNSEEN, Rate, behaviour, mean, success_rate, wilson_interval
from trainer.rollout.vote import gives_up, vote
from trainer.run.records import EpisodeRecord

# an answer with more of the weighed votes is learned from as right: of five votes on 320 unseen
# Spider questions, 78 % of such answers are right, and 67 % of the attempts at them; where 75 % of
# the attempts agree, 92 and 88 %: little is left to learn
LABEL_WEIGHT = 0.5
LEAST_ATTEMPTS = 3  # at a question whose answer may be taken as right: one agrees with itself

Episodes = Sequence[EpisodeRecord]


class Tries(NamedTuple):
    """The attempts at a question, and how many of them are right."""

    right: int
    played: int

    @property
    def share(self) -> float:
        return self.right / self.played


def analyse(
    episodes: Episodes, ks: Sequence[int], levels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the result of every group that has episodes, with pass@k for each of `ks`. `levels`
    are the difficulties that the data set itself gives, by question."""

    def of(group: Iterable[EpisodeRecord]) -> dict[str, Any]:
        return measure_group(list(group), ks)

    return {
        **_by_group(episodes, of),
        "by_database": {
            name: of(one for one in episodes if one.database == name)
            for name in sorted({one.database for one in episodes})
        },
        "by_source_difficulty": {
            level: of(one for one in episodes if levels.get(one.question_id) == level)
            for level in dict.fromkeys(levels.values())
        },
    }


def paired_groups(before: Mapping[str, Tries], after: Episodes) -> dict[str, Any]:
    """Compare every group of `after` with `before`."""

    def of(group: Iterable[EpisodeRecord]) -> dict[str, Any]:
        return compare(before, tries_of(group))

    return _by_group(after, of)


def _by_group(episodes: Episodes, of: Callable[[Iterable[EpisodeRecord]], Any]) -> dict[str, Any]:
    present = {one.difficulty for one in episodes}
    return {
        "overall": of(episodes),
        SEEN: of(one for one in episodes if one.part == SEEN),
        UNSEEN: of(one for one in episodes if one.part == UNSEEN),
        "by_difficulty": {
            level: of(one for one in episodes if one.difficulty == level)
            for level in DIFFICULTIES
            if level in present
        },
    }


def measure_group(episodes: Episodes, ks: Sequence[int]) -> dict[str, Any]:
    """Return success and behaviour of a group of finished episodes, which docs/evaluate.md
    describes. Rates are means over questions, those of k over questions with at least k episodes;
    of open questions only `winning_share` is known."""
    attempts = _by_question(episodes).values()
    tries = [[one.correct for one in played] for played in attempts]
    votes = [voted(one) for one in attempts]
    success_of = share if all(one.judged for one in episodes) else unknown
    kinds = Counter(action.partition(":")[0] for one in episodes for action in one.actions)
    outcomes = Counter(one.outcome for one in episodes)
    return {
        "success": success_of([sum(right) / len(right) for right in tries]),
        "pass_at": {
            str(k): success_of(
                [pass_at_k(len(right), sum(right), k) for right in tries if len(right) >= k]
            )
            for k in ks
        },
        "vote_at": {
            str(k): success_of([vote_at_k(one, k) for one in attempts if len(one) >= k])
            for k in ks
            if k > 1
        },
        "agreement": {
            str(k): success_of([right for agreeing, right in votes if agreeing >= k])
            for k in range(1, max(ks) + 1)
        },
        "labels": success_of(
            [right for one, (_, right) in zip(attempts, votes, strict=True) if label_of(one)]
        ),
        "winning_share": share([winning_share(one) for one in attempts]),
        "episodes": len(episodes),
        "mean_reward": mean(one.reward for one in episodes),
        "actions": {kind: _ratio(kinds[kind], len(episodes)) for kind in ActionType},
        "prompt_tokens": mean(one.prompt_tokens for one in episodes),
        "sampled_tokens": mean(one.sampled_tokens for one in episodes),
        # texts that were no action and were sent as a QUERY
        "fallbacks": mean(one.parse_failures for one in episodes),
        "invalid": _ratio(sum(one.env_errors for one in episodes), kinds.total()),
        **behaviour(episodes),
        "outcomes": {str(one): outcomes[one] for one in Outcome if outcomes[one]},
    }


def _by_question(episodes: Iterable[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    tries: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for one in sorted(episodes, key=lambda one: one.sample):
        if one.finished:
            tries[one.question_id].append(one)
    return dict(tries)


def voted(episodes: Episodes) -> tuple[int, bool]:
    """Return how many episodes of a question agree with the vote's winner, and whether it is right;
    (0, False) if none has an answer."""
    groups = vote([one.attempt for one in episodes])
    if not groups:
        return 0, False
    return len(groups[0].members), episodes[groups[0].members[0]].correct


def winning_share(episodes: Episodes) -> float:
    """Return the share of a question's episodes that the vote's winner has; 0 if it gives up: a
    model that always does agrees with itself."""
    groups = vote([one.attempt for one in episodes])
    return groups[0].share if groups and not gives_up(groups[0].key) else 0.0


def label_of(episodes: Episodes) -> str | None:
    """Return the key of the answer to a question that is taken as right without a gold: the vote's
    winner, if two attempts give it, its weight exceeds `LABEL_WEIGHT` and it doesn't give up; else
    None."""
    groups = vote([one.attempt for one in episodes])
    if len(episodes) < LEAST_ATTEMPTS or not groups or len(groups[0].members) < 2:
        return None
    winner = groups[0]
    return None if winner.weight <= LABEL_WEIGHT or gives_up(winner.key) else winner.key


def vote_at_k(episodes: Episodes, k: int) -> float:
    """Return the share of votes of k that are right, over the disjoint runs of k episodes in the
    order of their samples: they are independent of each other."""
    runs = [episodes[start : start + k] for start in range(0, len(episodes) - k + 1, k)]
    return sum(right for _, right in map(voted, runs)) / len(runs)


def tries_of(episodes: Iterable[EpisodeRecord]) -> dict[str, Tries]:
    """Return the attempts at each question."""
    tries = _by_question(episodes)
    return {
        key: Tries(sum(one.correct for one in played), len(played)) for key, played in tries.items()
    }


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k for one question: n >= k samples, c of them correct.

    The share of k-subsets of the samples with a correct one; the plug-in 1 - (1 - c/n)^k would be
    too low. Source: M. Chen et al., arXiv:2107.03374 (2021), equation 1.
    """
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def share(values: Sequence[float]) -> Rate:
    """Return the mean of values in [0, 1], one per question, with Wilson's interval."""
    return success_rate(math.fsum(values), len(values))


def unknown(values: Sequence[float]) -> Rate:
    return {"rate": None, "n": len(values), "ci95": [0.0, 1.0]}


def _ratio(total: float, n: int) -> float | None:
    return total / n if n else None


def compare(before: Mapping[str, Tries], after: Mapping[str, Tries]) -> dict[str, Any]:
    """Compare success over the `n` questions of both; the means are None without any. `gained` and
    `lost` count the questions on which `after` has the larger and the smaller share. `p_value` is
    that of the questions with equally many attempts on both sides, None if they are fewer than
    half: of eight attempts, some fail where a single one hardly ever does."""
    both = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    pairs = [(one.share, other.share) for one, other in both]
    fair = [(one.right, other.right) for one, other in both if one.played == other.played]
    (gained, lost), tested = _changes(pairs), _changes(fair)
    first, second = (
        math.fsum(pair[side] for pair in pairs) / len(pairs) if pairs else None for side in (0, 1)
    )
    return {
        "n": len(pairs),
        "before": first,
        "after": second,
        "gained": gained,
        "lost": lost,
        "p_value": mcnemar_exact(*tested) if 2 * len(fair) >= len(pairs) else None,
        "difference": None if first is None or second is None else second - first,
        "ci95": list(difference_interval(pairs)),
    }


def _changes(pairs: Iterable[tuple[float, float]]) -> tuple[int, int]:
    signs = Counter((after > before) - (after < before) for before, after in pairs)
    return signs[1], signs[-1]


def mcnemar_exact(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test; 1 if the sides differ nowhere.

    With success rates over several samples it is the sign test. Source: Q. McNemar, Psychometrika
    12 (1947), 153-157, with the binomial distribution instead of its approximation.
    """
    n = gained + lost
    tail = sum(math.comb(n, fewer) for fewer in range(min(gained, lost) + 1))
    # integers up to the division, so that only it rounds
    return min(1.0, 2 * tail / (1 << n))


def difference_interval(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of second - first over `pairs` of values in [0, 1].

    (-1, 1) without pairs. Newcombe's square-and-add interval, conservative for rates other than 0
    and 1. Source: R. G. Newcombe, Statistics in Medicine 17 (1998), 2635-2650, method 10.
    """
    n = len(pairs)
    if n == 0:
        return -1.0, 1.0
    firsts, seconds = zip(*pairs, strict=True)
    total1, total2 = math.fsum(firsts), math.fsum(seconds)
    p1, p2 = total1 / n, total2 / n
    low1, high1 = wilson_interval(total1, n)
    low2, high2 = wilson_interval(total2, n)
    related = _correlation(firsts, seconds)

    def combined(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one - 2 * related * one * other + other * other))

    below, above = combined(p2 - low2, high1 - p1), combined(high2 - p2, p1 - low1)
    return max(-1.0, p2 - p1 - below), min(1.0, p2 - p1 + above)


def _correlation(firsts: Sequence[float], seconds: Sequence[float]) -> float:
    """Return Pearson's r with method 10's continuity correction; 0 if a side is constant."""
    n = len(firsts)
    mean1, mean2 = math.fsum(firsts) / n, math.fsum(seconds) / n
    both = math.fsum((a - mean1) * (b - mean2) for a, b in zip(firsts, seconds, strict=True))
    own1 = math.fsum((value - mean1) ** 2 for value in firsts)
    own2 = math.fsum((value - mean2) ** 2 for value in seconds)
    both = max(0.0, both - 0.5) if both > 0 else both
    return both / math.sqrt(own1 * own2) if own1 > 0 and own2 > 0 else 0.0
