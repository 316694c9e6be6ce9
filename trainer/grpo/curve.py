"""When to measure success during training."""

import math
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from trainer.runtime.ranks import Ranks

CURVE_POINTS = 6  # approximate number of points of an automatic curve


SHORTEST_INTERVAL = 5  # steps between two points


def curve_interval(steps: int) -> int:
    """Return the steps between two points, so that a run of `steps` has about `CURVE_POINTS`."""
    return max(SHORTEST_INTERVAL, math.ceil(steps / CURVE_POINTS))


class EvalCallback(TrainerCallback):  # type: ignore[misc]
    """Calls `measure(step)` every `every` steps; 0: never; None: as `curve_interval` says.

    It runs at the start of a step, when the one before is logged and saved. All processes call
    `measure`, which must leave the global random generators alone.
    """

    def __init__(self, every: int | None, ranks: Ranks, measure: Callable[[int], None]) -> None:
        self._every, self._ranks, self._measure = every, ranks, measure

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        every = curve_interval(state.max_steps) if self._every is None else self._every
        if every > 0 and state.global_step > 0 and state.global_step % every == 0:
            with self._ranks.interruptible():
                self._measure(state.global_step)
