"""GRPO with shuffled rewards: the same training, but each episode gets another one's reward.

This cuts the link between an episode and its reward, and leaves the optimizer, the batches and the
token format. A gain that remains is not due to reinforcement learning.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.learning.bench import Bench, Result, measure_both
from benchmarks.learning.training import RewardFunction, train
from trainer.config import REWARD_WEIGHTS
from trainer.rollout.rewards import REWARD_FUNCTIONS, Reward
from trainer.run.folder import Run

STREAM = 0x5348  # separates the permutations' random numbers from the rollouts'


def permutation(seed: int, step: int, lost: Sequence[bool]) -> list[int]:
    """Return from which row each row takes its reward in an optimizer step.

    A random permutation of the finished rows; a lost row keeps its own reward, which is None.
    """
    rows = [index for index, one in enumerate(lost) if not one]
    order = list(range(len(lost)))
    mixed = np.random.default_rng((STREAM, seed, step)).permutation(len(rows))
    for row, source in zip(rows, mixed, strict=True):
        order[row] = rows[source]
    return order


def shuffled(functions: Sequence[RewardFunction], seed: int) -> list[RewardFunction]:
    """Permute the rewards of `functions` among the episodes of a batch, all in the same way."""

    def shuffle(function: RewardFunction) -> RewardFunction:
        @functools.wraps(function)  # TRL logs by name
        def reward(**fields: Any) -> list[Reward]:
            lost = [
                None in parts
                for parts in zip(*(fields[name] for name in REWARD_WEIGHTS), strict=True)
            ]
            order = permutation(seed, int(fields["trainer_state"].global_step), lost)
            values = function(**fields)
            return [values[source] for source in order]

        return reward

    return [shuffle(function) for function in functions]


def control(bench: Bench, folder: Run) -> Result:
    """Train from the run's start with its settings, seed and steps, and measure.

    Resumes from the last checkpoint in `folder`.
    """
    config = replace(bench.connection.config, max_steps=bench.finished.steps)
    rewards = shuffled(REWARD_FUNCTIONS, config.seed)
    trained = train(bench, folder, config, "GRPO, shuffled rewards", reward_funcs=rewards)
    modes = measure_both(bench, folder, "shuffled", trained.model, trained.tokenizer)
    notes = {"steps": config.max_steps, "seed": config.seed}
    return Result({"shuffled": modes}, trained.spent.cpu_s, notes)
