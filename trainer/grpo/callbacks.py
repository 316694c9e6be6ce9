"""What happens around the optimiser's steps: safe stops, the log on disk, progress and the small
evaluations."""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from shared.run_stats import training_row
from trainer.config import GRPOConfig
from trainer.errors import TrainingDiverged
from trainer.grpo.live.callback import LiveVisualizationCallback
from trainer.rollout.loop import RolloutStats
from trainer.rollout.row import RolloutRow
from trainer.run.cost import UNKNOWN, Spent, known
from trainer.run.folder import Run, append_lines, read_json
from trainer.run.records import Book, EpisodeRecord
from trainer.run.summary import RANK_WAIT
from trainer.runtime.ranks import Ranks

__all__ = [
    "EvalCallback",
    "Guard",
    "LiveVisualizationCallback",
    "MetricsCallback",
    "checkpoint_now",
    "curve_interval",
    "spent_at",
]

TIMES = ("rollout_s", "generate_s", "env_wait_s")
# where a checkpoint's trainer_state.json keeps `Spent`, under stateful_callbacks
SPENT = "sqlenv_spent"
CURVE_POINTS = 8  # of an automatic eval curve, about
SHORTEST_INTERVAL = 5  # steps between two points of it


class Guard(TrainerCallback):  # type: ignore[misc]
    """Keeps training resumable: stops after the step in which a signal came to any of its
    processes, and before an update that is no number."""

    def __init__(self, ranks: Ranks, config: GRPOConfig | None = None) -> None:
        self.ranks, self.config = ranks, config or GRPOConfig()
        self.updating = False  # the optimiser is at work on the weights
        self._diverged = 0  # the step whose logged loss is no number
        self.metrics: dict[str, list[Any]] = {}  # trl's own, since the last log event
        self._whole: dict[str, int] = {}  # how much of them is of whole steps
        self._tokens_seen = 0
        self._rng: dict[str, Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._rng, self._tokens_seen = _rng_states(), state.num_input_tokens_seen

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """fp16's loss scaling makes infinite gradients on purpose and skips those steps itself."""
        self.updating = True
        if args.fp16:
            return
        gradients = [one.grad for one in kwargs["model"].parameters() if one.grad is not None]
        if gradients and not torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            self.updating = False
            raise diverged("gradient", state.global_step + 1, state.global_step, args.learning_rate)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.updating = False

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self._diverged = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """fp16's loss scaling skips a step whose loss is no number, and would skip all that follow."""
        if self._diverged:
            raise diverged("loss", self._diverged, state.global_step, args.learning_rate)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._rng, self._tokens_seen = _rng_states(), state.num_input_tokens_seen
        self._whole = {name: len(values) for name, values in self.metrics.items()}
        if self.ranks.anywhere(self.ranks.interrupts.requested):
            control.should_save = control.should_training_stop = True
        if control.should_save or control.should_training_stop:
            # a resumed run has nothing of the steps since the last log event
            control.should_log = True
        return control

    def restore(self, state: Any) -> None:
        """Set trl's counts and the random generators back to where the last whole step left them."""
        state.num_input_tokens_seen = self._tokens_seen
        for name, values in self.metrics.items():
            del values[self._whole.get(name, 0) :]
        if self._rng is not None:
            random.setstate(self._rng["python"])
            np.random.set_state(self._rng["numpy"])
            torch.random.set_rng_state(self._rng["torch"])
            if self._rng["cuda"] is not None:
                torch.cuda.set_rng_state_all(self._rng["cuda"])


def diverged(what: str, step: int, done: int, learning_rate: float) -> TrainingDiverged:
    """The error of a step whose `what` is no number, with `done` steps before it that are whole."""
    return TrainingDiverged(
        f"the {what} of step {step} is not a number; the weights before it are kept in the run's checkpoints. Begin "
        f"again with a learning rate below {learning_rate:g}: --set learning_rate={learning_rate / 3:.1g}",
        step=done,
    )


def guard_of(trainer: Any) -> Guard | None:
    """The guard of `build_trainer`'s trainer."""
    return next((one for one in trainer.callback_handler.callbacks if isinstance(one, Guard)), None)


def _rng_states() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.random.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None,
    }


def checkpoint_now(trainer: Any, *, alone: bool = False) -> Path | None:
    """Write a checkpoint of the last whole step, in the middle of a rollout that will be played
    again. Its folder.

    Steps that wait for their log event get it first, without a loss. None where training had not
    begun. All processes call it: the first writes the model, each its own random generators.
    `alone`: another has gone, so nothing is asked of the others. transformers has no public way to
    save outside its own loop.
    """
    folder = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
    if trainer.optimizer is None or trainer.lr_scheduler is None:
        return None
    guard = guard_of(trainer)
    if guard and guard.updating:
        return None  # some weights may be changed and others not
    ranks = guard.ranks if guard else Ranks()
    there = (folder / "trainer_state.json").is_file()
    if alone and not ranks.main:
        return None
    if not (there if alone else ranks.gather(there)[0]):
        if guard:
            guard.restore(trainer.state)
        if trainer.state.global_step > max(
            (row["step"] for row in trainer.state.log_history), default=0
        ):
            trainer.log({})
        if alone:
            trainer.store_flos = lambda: None  # it would add up what every process counted
        trainer._save_checkpoint(trainer.model, None)
    return folder


def spent_at(checkpoint: Path | None) -> Spent:
    """What training had cost when it wrote `checkpoint`; nothing before the first."""
    if checkpoint is None:
        return Spent()
    return Spent.from_dict(
        read_json(checkpoint / "trainer_state.json").get("stateful_callbacks", {}).get(SPENT)
    )


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes episodes.jsonl and metrics.jsonl: a row a log event, with trl's keys, `success` and
    the seconds spent.

    Of several processes the first writes, what all of them did: the seconds are its own, but
    CPU-seconds their sum. `rows` is the rollout's `on_rows`. `on_progress(step, steps, row)` hears
    of every log event. `spent` is what the checkpoint that training goes on from had cost; it is
    counted on. `server_cpu` reads the CPU-seconds that the servers used so far, and NaN where
    nobody knows.
    """

    def __init__(
        self,
        run: Run,
        book: Book,
        stats: RolloutStats,
        on_progress: Callable[[int, int, Mapping[str, Any]], None] = lambda step, steps, row: None,
        *,
        spent: Spent | None = None,
        server_cpu: Callable[[], float] = lambda: UNKNOWN,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks or Ranks()
        self._times = TIMES if self._ranks.count == 1 else (*TIMES, RANK_WAIT)
        self._run, self._book, self._stats, self._on_progress = run, book, stats, on_progress
        self._pending: list[EpisodeRecord] = []  # since the last log event
        self._unfinished = 0  # of them, those of a step under way
        self._spent = dict.fromkeys((*self._times, "update_s"), 0.0)  # since the last log event
        self.spent = spent or Spent()  # since the run began
        self._server_cpu = server_cpu
        self._rebuilds = stats.rebuilds  # when the last log event was written
        self._step_began = 0.0
        self._cpu_at_step_begin = (0.0, 0.0)  # of this process, of the servers
        self._at_step_begin: dict[str, Any] = {}

    def rows(self, rows: Sequence[RolloutRow], trainer: Any) -> None:
        """Record one generation batch, of all processes."""
        if not self._ranks.main:
            return
        episodes = [self._book.episode(row) for row in rows]
        self._pending += episodes
        self._unfinished = len(episodes)
        step = trainer.state.global_step + 1
        append_lines(
            self._run.episodes, (one.as_line("train", "sampled", step) for one in episodes)
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        state.stateful_callbacks[SPENT] = self.spent.as_dict()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._cpu_at_step_begin = (time.process_time(), self._server_cpu())
        self._step_began, self._at_step_begin = time.perf_counter(), self._stats.as_dict()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._unfinished = 0
        wall, sums = time.perf_counter() - self._step_began, self._stats.as_dict()
        times = {name: sums[name] - self._at_step_begin[name] for name in self._times}
        for name, value in times.items():
            self._spent[name] += value
        self._spent["update_s"] += wall - times["rollout_s"]
        times.pop(RANK_WAIT, None)
        cpu, server_cpu = self._cpu_at_step_begin
        served = self._server_cpu() - server_cpu
        self.spent.add(
            train_s=wall,
            **times,
            cpu_s=sum(self._ranks.gather(time.process_time() - cpu)),
            # a restarted server begins at 0
            server_cpu_s=served if math.isnan(served) else max(0.0, served),
        )
        state.stateful_callbacks[SPENT] = self.spent.as_dict()  # every checkpoint holds it

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._ranks.main:
            return
        row: dict[str, Any] = {"step": state.global_step, **(logs or {})}
        # a step that broke off is played again
        del self._pending[len(self._pending) - self._unfinished :]
        self._unfinished = 0
        if self._pending:
            row |= training_row(self._pending)
            row["rebuilds"], self._rebuilds = (
                self._stats.rebuilds - self._rebuilds,
                self._stats.rebuilds,
            )
            row.update({name: round(value, 4) for name, value in self._spent.items()})
            # so far, where the others are of this row
            for name in ("train_s", "cpu_s", "server_cpu_s"):
                row[name] = known(getattr(self.spent, name))
            self._spent = dict.fromkeys(self._spent, 0.0)
            self._pending = []
        append_lines(self._run.metrics, [row])
        self._on_progress(state.global_step, state.max_steps, row)


def curve_interval(steps: int) -> int:
    """Steps between two points of the eval curve, so that a run of `steps` has about `CURVE_POINTS`
    of them."""
    return max(SHORTEST_INTERVAL, math.ceil(steps / CURVE_POINTS))


class EvalCallback(TrainerCallback):  # type: ignore[misc]
    """Measures a few fixed questions every `every` steps, for the curve; 0: never; None: as
    `curve_interval` says.

    It runs at the start of a step, when the step before is logged and saved, so that a run may be
    stopped inside it and resumed with the same measurement. `measure(step)` plays and writes, with
    several processes on all of them; it leaves the global random generators alone.
    """

    def __init__(self, every: int | None, ranks: Ranks, measure: Callable[[int], None]) -> None:
        self._every, self._ranks, self._measure = every, ranks, measure

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        every = curve_interval(state.max_steps) if self._every is None else self._every
        if every > 0 and state.global_step > 0 and state.global_step % every == 0:
            with self._ranks.interruptible():
                self._measure(state.global_step)
