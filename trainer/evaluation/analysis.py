"""What an evaluation's episodes say, overall and by group: evaluation.json's numbers. Pure
functions."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from shared.actions import ActionType
from shared.models import Difficulty, Outcome
from shared.run_stats import ANSWERED, SEEN, UNSEEN, wilson_interval
from trainer.evaluation.paired import compare
from trainer.evaluation.records import EvaluatedEpisode, success_rates
from trainer.run.statistics import pass_at_k

Episodes = Sequence[EvaluatedEpisode]


def groups(episodes: Episodes) -> dict[str, dict[str, Episodes]]:
    """kind -> name -> the group's episodes. Kinds are all, part (seen and unseen databases),
    difficulty, database."""
    found: dict[str, dict[str, Episodes]] = {"all": {"overall": episodes}}
    names = {
        "part": [SEEN, UNSEEN],
        "difficulty": [
            one
            for one in get_args(Difficulty)
            if any(one == other.difficulty for other in episodes)
        ],
        "database": sorted({one.database for one in episodes}),
    }
    for kind, known in names.items():
        found[kind] = {
            name: [one for one in episodes if getattr(one, kind) == name] for name in known
        }
    return found


def analyse(episodes: Episodes, ks: Sequence[int]) -> dict[str, Any]:
    """`{overall, seen, unseen, by_difficulty, by_database}`, each group as `measure_group` gives
    it."""
    found = {
        kind: {name: measure_group(of_group, ks) for name, of_group in by_name.items()}
        for kind, by_name in groups(episodes).items()
    }
    return {
        **found["all"],
        **found["part"],
        "by_difficulty": found["difficulty"],
        "by_database": found["database"],
    }


def measure_group(episodes: Episodes, ks: Sequence[int]) -> dict[str, Any]:
    """Success and behaviour over finished episodes.

    `success` and each of `pass_at` are `{rate, n, ci95}` over `n` questions. The first is the mean
    over questions of the share of its episodes that are right, pass@k the mean of
    `trainer.run.statistics.pass_at_k` over the questions with k episodes or more. `actions`,
    `steps`, the tokens, `fallbacks` (texts that were no action and stood as a QUERY), `errors`
    (actions that the environment answered with an error) and `repeats` are means an episode;
    `answered`, `accuracy_when_answered`, `invalid` (errors among all actions) and `truncated`
    (episodes that outgrew a local model's context window and went on) shares. None is what nothing
    was measured of.
    """
    tries = success_by_question(episodes)
    kinds = Counter(action.partition(":")[0] for one in episodes for action in one.actions)
    answered = [one for one in episodes if one.outcome in ANSWERED]
    rewards = [one.reward for one in episodes if one.reward is not None]
    return {
        "success": share([sum(right) / len(right) for right in tries.values()]),
        "pass_at": {
            str(k): share(
                [
                    pass_at_k(len(right), sum(right), k)
                    for right in tries.values()
                    if len(right) >= k
                ]
            )
            for k in ks
        },
        "episodes": len(episodes),
        "mean_reward": _mean(rewards),
        "steps": _mean([one.steps for one in episodes]),
        "actions": {kind: _mean_of(kinds[kind], len(episodes)) for kind in ActionType},
        "prompt_tokens": _mean([one.prompt_tokens for one in episodes]),
        "sampled_tokens": _mean([one.sampled_tokens for one in episodes]),
        "fallbacks": _mean([one.parse_failures for one in episodes]),
        "errors": _mean([one.env_errors for one in episodes]),
        "invalid": _mean_of(sum(one.env_errors for one in episodes), kinds.total()),
        "truncated": _mean([(one.context_truncations or 0) > 0 for one in episodes]),
        "repeats": _mean([len(one.actions) - len(set(one.actions)) for one in episodes]),
        "answered": _mean([one.outcome in ANSWERED for one in episodes]),
        "accuracy_when_answered": _mean([one.correct for one in answered]),
        "outcomes": {
            str(outcome): count
            for outcome in Outcome
            if (count := sum(one.outcome == outcome for one in episodes))
        },
    }


def compare_groups(before: Mapping[str, float], after: Episodes) -> dict[str, Any]:
    """`trainer.evaluation.paired.compare` of each group, in the form of `analyse`, over the
    questions of both.

    `before`: success by question. A question's group is that of `after`.
    """
    found = {
        kind: {
            name: compare(before, rates(of_group)).as_dict() for name, of_group in by_name.items()
        }
        for kind, by_name in groups(after).items()
    }
    return {**found["all"], **found["part"], "by_difficulty": found["difficulty"]}


def success_by_question(episodes: Iterable[EvaluatedEpisode]) -> dict[str, list[bool]]:
    """Question id -> whether each of its episodes was right."""
    found: dict[str, list[bool]] = defaultdict(list)
    for one in episodes:
        found[one.question_id].append(one.correct)
    return dict(found)


def rates(episodes: Iterable[EvaluatedEpisode]) -> dict[str, float]:
    """Question id -> the share of its episodes that were right."""
    return success_rates((one.question_id, one.outcome) for one in episodes)


def share(values: Sequence[float]) -> dict[str, Any]:
    """`{rate, n, ci95: [low, high]}` of values in [0, 1], one a question. The interval is Wilson's."""
    total, n = math.fsum(values), len(values)
    return {"rate": total / n if n else None, "n": n, "ci95": list(wilson_interval(total, n))}


def usage(took: Mapping[str, Any]) -> dict[str, int]:
    """What a model server's policy counted over all sessions, out of `EvaluationFolder.took`; empty
    for others."""
    prefix = "api_"
    return {
        name.removeprefix(prefix): value for name, value in took.items() if name.startswith(prefix)
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_of(total: float, n: int) -> float | None:
    return total / n if n else None
