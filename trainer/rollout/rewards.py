"""The reward functions that TRL calls: they return the server's own values. `grpo/build_trainer.py`
weights them, so that a row's reward is the total of the server's ledger. None from all three, as
for a lost episode, takes the row out of its group's baseline and out of training.

A function takes the completions, which it only counts, and the episodes' results: a list with one
value per completion, as TRL passes them, or `metadata`, a list of dicts as `rollout_func` returns.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

Reward = float | None


def reward_correctness(completions: Sequence[Any], **kwargs: Any) -> list[Reward]:
    """Return 1.0 for a correct ANSWER, else 0.0: `correctness` or `correct` of each episode."""
    return _values("reward_correctness", completions, kwargs, "correctness", "correct")


def reward_progress(completions: Sequence[Any], **kwargs: Any) -> list[Reward]:
    """Return the final potential, in [0, 1]: how close the best QUERY came to the gold."""
    return _values("reward_progress", completions, kwargs, "progress")


def reward_operational(completions: Sequence[Any], **kwargs: Any) -> list[Reward]:
    """Return the clamped sum of exec_ok, new_info, repeat and step_cost, in [-0.25, 0.05]."""
    return _values("reward_operational", completions, kwargs, "operational")


REWARD_FUNCTIONS = (reward_correctness, reward_progress, reward_operational)


def both_verdicts(episodes: Iterable[tuple[Hashable, Reward]]) -> set[Hashable]:
    """Return the groups that have a right and a wrong episode.

    An episode is its group and its correctness: 1 or 0, None if it was lost.
    """
    found = set(episodes)
    return {group for group, correct in found if correct == 1 and (group, 0) in found}


def _values(
    function: str, completions: Sequence[Any], kwargs: dict[str, Any], *names: str
) -> list[Reward]:
    """Return the first of `names` that there is, per completion; `ValueError` if there is none."""
    rows = kwargs.get("metadata") or [{}]
    columns = {name: [row[name] for row in rows] for name in names if name in rows[0]} | kwargs
    found = next((columns[name] for name in names if name in columns), None)
    if found is None:
        raise ValueError(
            f"{function} needs {' or '.join(names)} (one value per completion), or metadata (one "
            f"dict with it per completion), but got only {', '.join(kwargs) or 'completions'}"
        )
    if len(found) != len(completions):
        raise ValueError(f"{function} got {len(found)} values for {len(completions)} completions")
    return [None if value is None else float(value) for value in found]
