"""What each training step did, to episodes.jsonl and metrics.jsonl, and when to measure success."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from transformers import TrainerCallback

from shared.run_stats import training_row
from trainer.config.settings import REWARD_WEIGHTS
from trainer.rollout.loop import RolloutStats
from trainer.rollout.rewards import both_verdicts
from trainer.rollout.row import RolloutRow
from trainer.run.cost import known, spent
from trainer.run.folder import Run, append_lines, read_lines
from trainer.run.progress import Bar, PlayCounts
from trainer.run.records import Book, EpisodeRecord, append_records
from trainer.run.summary import RANK_WAIT
from trainer.runtime.ranks import Ranks

TIMES = ("rollout_s", "generate_s", "env_wait_s")


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes one line per episode to episodes.jsonl and to observations.jsonl.gz, and one row per
    log event to metrics.jsonl.

    With several processes the first one writes the episodes of all; its seconds are its own,
    CPU-seconds are summed over all. `server_cpu` returns the CPU-seconds that the servers have used
    so far, NaN if unknown.
    """

    def __init__(
        self,
        run: Run,
        book: Book,
        stats: RolloutStats,
        on_progress: Callable[[int, int, Mapping[str, Any]], None] = lambda step, steps, row: None,
        *,
        server_cpu: Callable[[], float] = lambda: math.nan,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks or Ranks()
        self._times = TIMES if self._ranks.count == 1 else (*TIMES, RANK_WAIT)
        self._run, self._book, self._stats, self._on_progress = run, book, stats, on_progress
        self._pending: list[EpisodeRecord] = []  # since the last log event
        self._unfinished = 0  # those at the end of `_pending` whose step has not ended
        self._spent = dict.fromkeys((*self._times, "update_s"), 0.0)  # since the last log event
        self.spent = spent(read_lines(run.metrics))  # since the start of the run
        self._server_cpu = server_cpu
        self._rebuilds = stats.rebuilds  # at the last log event
        self._step_start_s = 0.0
        self._cpu_at_step_start = (0.0, 0.0)  # of this process, of the servers
        self._stats_at_step_start: dict[str, Any] = {}

    def rows(self, rows: Sequence[RolloutRow], trainer: Any) -> None:
        if not self._ranks.main:
            return
        step = trainer.state.global_step + 1
        episodes = [self._book.episode(row, "train", "sampled", step) for row in rows]
        self._pending += episodes
        self._unfinished = len(episodes)
        append_records(self._run, episodes)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._cpu_at_step_start = (time.process_time(), self._server_cpu())
        self._step_start_s, self._stats_at_step_start = time.perf_counter(), asdict(self._stats)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._unfinished = 0
        wall, sums = time.perf_counter() - self._step_start_s, asdict(self._stats)
        times = {name: sums[name] - self._stats_at_step_start[name] for name in self._times}
        for name, value in times.items():
            self._spent[name] += value
        self._spent["update_s"] += wall - times["rollout_s"]
        cpu, server_cpu = self._cpu_at_step_start
        self.spent["train_s"] += wall
        self.spent["cpu_s"] += sum(self._ranks.gather(time.process_time() - cpu))
        # a restarted server counts from 0
        self.spent["server_cpu_s"] += max(self._server_cpu() - server_cpu, 0.0)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._ranks.main:
            return
        row: dict[str, Any] = {"step": state.global_step, **kwargs.get("logs", {})}
        # by trl's formula 0 or 1 with scale_rewards=batch; one_verdict_groups is logged instead
        row.pop("frac_reward_zero_std", None)
        for layer, weight in zip(REWARD_WEIGHTS, getattr(args, "reward_weights", ()), strict=False):
            row.pop(f"rewards/reward_{layer}/std", None)  # TRL's are of values without weights
            if (logged := row.pop(f"rewards/reward_{layer}/mean", None)) is not None:
                row[f"reward_{layer}"] = weight * logged
        # a step that was interrupted is played again
        del self._pending[len(self._pending) - self._unfinished :]
        self._unfinished = 0
        if self._pending:
            row |= training_row(self._pending)
            row["one_verdict_groups"] = one_verdict_groups(self._pending)
            row["rebuilds"] = self._stats.rebuilds - self._rebuilds
            self._rebuilds = self._stats.rebuilds
            self._pending = []
        if any(self._spent.values()):
            row |= {name: round(value, 4) for name, value in self._spent.items()}
            row |= {name: known(value) for name, value in self.spent.items()}
            self._spent = dict.fromkeys(self._spent, 0.0)
        append_lines(self._run.metrics, [row])
        self._on_progress(state.global_step, state.max_steps, row)


def one_verdict_groups(episodes: Sequence[EpisodeRecord]) -> float:
    """Return the share of the groups, the episodes of a question in a step, that are all right or
    all wrong, lost ones aside."""
    judged = [((one.step, one.question_id), one.correctness) for one in episodes]
    return 1 - len(both_verdicts(judged)) / len({group for group, _ in judged})


class StepProgress(TrainerCallback):  # type: ignore[misc]
    def __init__(self, shown: Bar, processes: int = 1) -> None:
        self._bar, self._step, self._updates = shown, 0, 0
        self.plays = PlayCounts(self._playing, processes)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step, self._updates = state.global_step, 0
        self.plays.restart()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._updates += 1
        parts = f"micro-batch {self._updates} of {args.gradient_accumulation_steps}"
        self._show(f"step {state.global_step + 1}, update: {parts}")

    def _playing(self, ended: bool) -> None:
        plays = self.plays
        done = f"{plays.ended}/{plays.started} episodes"
        self._show(f"step {self._step + 1}, play: {done}, {plays}")

    def _show(self, note: str) -> None:
        if self._bar.due:
            self._bar.to(self._step, note)
