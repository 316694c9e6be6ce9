"""A curriculum by success rate: first the forms of questions that are right half of the time.

The next questions of a step are drawn from those that are left in the epoch, in proportion to
p (1 - p), where p is the success of the episodes of their form so far (`data/domains/templates/`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from trl.trainer.utils import RepeatSampler

LEAST = 0.02  # weight of a form that is always right or always wrong


class CurriculumSampler(RepeatSampler):  # type: ignore[misc]
    """trl's sampler, with the questions of a step drawn when it begins."""

    forms: Sequence[str]  # of the rows of the data
    played: Counter[str]
    right: Counter[str]

    def __iter__(self) -> Iterator[int]:
        rng, left = np.random.default_rng(self.seed), list(range(self.num_samples))
        while len(left) >= self.batch_size:
            rates = [
                (self.right[form] + 1) / (self.played[form] + 2)
                for form in (self.forms[row] for row in left)
            ]
            weights = np.array([max(LEAST, rate * (1 - rate)) for rate in rates])
            drawn = rng.choice(left, self.batch_size, replace=False, p=weights / weights.sum())
            left = sorted(set(left) - set(drawn.tolist()))
            for _ in range(self.repeat_count):
                for row in drawn.tolist():
                    yield from [row] * self.mini_repeat_count


def use_curriculum(
    trainer: Any, question_ids: Sequence[str], form_of: Mapping[str, str], decay: float = 0.98
) -> None:
    """Let a trainer of `build_trainer` draw its questions, the rows of its data, by success.

    Older episodes count less: by `decay` per step.
    """
    played, right = Counter[str](), Counter[str]()
    forms = [form_of[one] for one in question_ids]
    original, rollout = trainer._get_train_sampler, trainer.rollout_func

    def sampler(dataset: Any = None) -> Any:
        made = original(dataset)
        made.__class__ = CurriculumSampler
        made.forms, made.played, made.right = forms, played, right
        return made

    def played_rows(prompts: Any, trainer: Any) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = rollout(prompts, trainer)
        for counter in (played, right):
            for form in counter:
                counter[form] *= decay  # type: ignore[assignment]
        for question_id, correct in zip(
            columns["question_id"], columns["correctness"], strict=True
        ):
            if correct is not None:
                played[form_of[question_id]] += 1
                right[form_of[question_id]] += correct == 1
        return columns

    trainer._get_train_sampler, trainer.rollout_func = sampler, played_rows
