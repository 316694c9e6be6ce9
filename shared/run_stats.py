"""Statistics of episodes: success rates with intervals, behaviour, counts, rows of metrics.jsonl.

The trainer writes them and `python -m env_server verify` recomputes them. Pure functions; a mean or
rate of no episodes is None.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict

from shared.actions import ActionType
from shared.dataset import OPEN
from shared.models import Outcome

Mode = Literal["greedy", "sampled"]
MODES: tuple[Mode, ...] = ("greedy", "sampled")
PHASES = ("random", "before", "after")  # measurements of the whole eval set
SEEN, UNSEEN = "seen", "unseen"  # whether a training question touches the database
PARTS = ("overall", SEEN, UNSEEN)
# the outcomes of an ANSWER
ANSWERED = frozenset({Outcome.CORRECT, Outcome.WRONG, Outcome.ANSWERED})
Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


class EpisodeLine(BaseModel):
    """A played episode: a line of episodes.jsonl. The four rewards are None if the infrastructure
    lost it."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    phase: str  # train, random, before, eval, after; or the split that `trainer evaluate` measured
    mode: str  # greedy or sampled
    step: int  # the training step that it trained, or after which it was measured
    question_id: str
    sample: int = 0  # its number among the episodes of the question in a step or an evaluation
    database: str
    difficulty: str
    part: str  # seen or unseen: whether a training question touches the database
    outcome: Outcome
    steps: int
    correctness: float | None
    progress: float | None  # the ledger's final `potential`, not its `progress`
    operational: float | None
    reward: float | None  # the weighted sum of the three
    parse_failures: int
    env_errors: int  # actions that the environment answered with an error
    context_overflow: bool  # it ended because the context window was full
    context_truncations: int  # how often its context was shortened
    inferred_actions: int  # texts of SQL alone or a tool call, read as the action they mean
    too_large: bool  # it ended as its actions reached the server's limit on bytes
    actions: list[str]  # canonical texts of the answered steps
    rewards: list[float]  # per answered step
    observations: list[str]  # `run_files.observation_digest` of the reset and of each step
    parts: list[dict[str, float]]  # per answered step, the named parts of its reward
    # As the model wrote them, None where equal to the canonical text; one more than `actions` if
    # the last step was lost.
    texts: list[str | None]

    @property
    def finished(self) -> bool:
        return self.outcome != Outcome.INFRA_FAILED

    @property
    def lost(self) -> bool:
        return not self.finished

    @property
    def correct(self) -> bool:
        return self.outcome == Outcome.CORRECT

    @property
    def judged(self) -> bool:
        """Whether its question has a gold."""
        return self.difficulty != OPEN


class Rate(TypedDict):
    """A success rate in [0, 1] over `n` questions or episodes, with its 95 % Wilson interval."""

    rate: float | None
    n: int
    ci95: list[float]  # [low, high]


class Behaviour(TypedDict):
    """What `n` finished episodes did: shares in [0, 1] and means per episode."""

    n: int
    n_answered: int
    answered: float | None  # share that ended with an ANSWER
    accuracy_when_answered: float | None  # share of correct ones among these
    describe_first: float | None  # share whose first action is a DESCRIBE
    steps: float | None
    repeats: float | None  # actions already taken in the same episode
    errors: float | None  # actions that the environment answered with an error
    truncated: float | None  # share that outgrew the context window and continued shortened


class Measurement(TypedDict):
    """One policy on the eval set: success and what explains it, over the finished episodes."""

    overall: Rate
    seen: Rate
    unseen: Rate
    by_difficulty: dict[str, Rate]
    behaviour: dict[str, Behaviour]  # overall, seen, unseen
    mean_reward: float | None
    mean_steps: float | None
    outcomes: dict[str, int]  # of all episodes, lost ones included
    episodes_lost: int
    parse_failures: int


class Counts(TypedDict, total=False):
    """Counts over all episodes, lost ones included."""

    episodes: int
    episodes_lost: int
    env_errors: int
    parse_failures: int
    context_overflows: int
    episodes_too_large: int
    episodes_truncated: int


def success_rate(successes: float, n: int) -> Rate:
    """Return the rate of `successes` in n tries, unrounded; None where n is 0."""
    interval = wilson_interval(successes, n)
    return {"rate": successes / n if n else None, "n": n, "ci95": list(interval)}


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Return a proportion's 95 % Wilson score interval, (low, high) in [0, 1]; (0, 1) if n is 0.

    `successes` may be the sum of n values in [0, 1], such as per-question rates over several
    samples: their variance is at most that of n binary results with the same mean, so the interval
    is conservative.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} tries")
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, Z_95 * Z_95
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # rounding would move the exact ends at 0 and 1
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None."""
    known = [value for value in values if value is not None]
    # not sum(), whose last digit depends on Python's version
    return math.fsum(known) / len(known) if known else None


def success(episodes: Iterable[EpisodeLine]) -> Rate:
    finished = [episode for episode in episodes if episode.finished]
    return success_rate(sum(episode.correct for episode in finished), len(finished))


def behaviour(episodes: Iterable[EpisodeLine]) -> Behaviour:
    played = [episode for episode in episodes if episode.finished]
    answered = [episode for episode in played if episode.outcome in ANSWERED]
    return {
        "n": len(played),
        "n_answered": len(answered),
        "answered": mean(episode.outcome in ANSWERED for episode in played),
        "accuracy_when_answered": mean(one.correct for one in answered if one.judged),
        "describe_first": mean(
            bool(one.actions) and one.actions[0].startswith(ActionType.DESCRIBE) for one in played
        ),
        "steps": mean(episode.steps for episode in played),
        "repeats": mean(len(one.actions) - len(set(one.actions)) for one in played),
        "errors": mean(episode.env_errors for episode in played),
        "truncated": mean(episode.context_truncations > 0 for episode in played),
    }


def measurement(episodes: Sequence[EpisodeLine]) -> Measurement:
    finished = [episode for episode in episodes if episode.finished]
    seen, unseen = ([one for one in finished if one.part == part] for part in (SEEN, UNSEEN))
    levels = sorted({episode.difficulty for episode in finished})
    return {
        "overall": success(finished),
        "seen": success(seen),
        "unseen": success(unseen),
        "by_difficulty": {
            level: success(one for one in finished if one.difficulty == level) for level in levels
        },
        "behaviour": {
            "overall": behaviour(finished),
            SEEN: behaviour(seen),
            UNSEEN: behaviour(unseen),
        },
        "mean_reward": mean(episode.reward for episode in finished),
        "mean_steps": mean(episode.steps for episode in finished),
        "outcomes": dict(sorted(Counter(str(episode.outcome) for episode in episodes).items())),
        "episodes_lost": len(episodes) - len(finished),
        "parse_failures": sum(episode.parse_failures for episode in episodes),
    }


def rates(modes: Mapping[str, Measurement]) -> dict[str, dict[str, Rate]]:
    """Return mode -> overall, seen, unseen -> rate: success alone."""
    return {
        mode: {"overall": one["overall"], SEEN: one["seen"], UNSEEN: one["unseen"]}
        for mode, one in modes.items()
    }


def counts(episodes: Sequence[EpisodeLine]) -> Counts:
    """Count what summary.json counts, in total and by phase."""
    return {
        "episodes": len(episodes),
        "episodes_lost": sum(not episode.finished for episode in episodes),
        "env_errors": sum(episode.env_errors for episode in episodes),
        "parse_failures": sum(episode.parse_failures for episode in episodes),
        "context_overflows": sum(episode.context_overflow for episode in episodes),
        "episodes_too_large": sum(episode.too_large for episode in episodes),
        "episodes_truncated": sum(episode.context_truncations > 0 for episode in episodes),
    }


def training_row(episodes: Sequence[EpisodeLine]) -> dict[str, Any]:
    """Return what a row of metrics.jsonl reports of the training episodes since the row before."""
    finished = [episode for episode in episodes if episode.finished]
    return {
        **counts(episodes),
        "success": mean(episode.correct for episode in finished),
        "steps_per_episode": mean(episode.steps for episode in finished),
    }


def eval_row(mode: str, episodes: Iterable[EpisodeLine]) -> dict[str, float | None]:
    """Return what a point of the eval curve reports of one mode: success and mean reward."""
    finished = [episode for episode in episodes if episode.finished]
    return {
        f"eval_{mode}_success": mean(episode.correct for episode in finished),
        f"eval_{mode}_reward": mean(episode.reward for episode in finished),
    }
