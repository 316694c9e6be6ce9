"""Measure a policy: success over a set of questions, and how many of them to measure on."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from shared import subset
from shared.dataset import OPEN
from shared.run_files import TimedMeasurement
from shared.run_stats import Mode, measurement
from trainer.config.settings import GRPOConfig
from trainer.rollout.loop import raise_if_lost
from trainer.rollout.row import RolloutRow
from trainer.run.console import Summaries
from trainer.run.progress import Pace, PlayProgress, bar
from trainer.run.records import Book, EpisodeRecord, Key

BATCH = 128  # episodes played at once
PromptRow = Mapping[str, Any]  # of trainer.rollout.dataset.load_question_prompts
# plays (prompts, repeats, observer) as `play_episodes` does, one episode per prompt
Play = Callable[..., Sequence[RolloutRow]]
Task = tuple[PromptRow, int]  # a prompt and the number of its sample
Keep = Callable[[Sequence[EpisodeRecord]], None]


@dataclass(frozen=True)
class EvalResult:
    """One measurement: the episodes, and the seconds that they took."""

    episodes: tuple[EpisodeRecord, ...]
    wall_s: float = 0.0

    def summary(self) -> TimedMeasurement:
        return {**measurement(self.episodes), "wall_s": round(self.wall_s, 3)}

    def by_question(self) -> dict[str, EpisodeRecord]:
        return {episode.question_id: episode for episode in self.episodes}


Results = dict[str, dict[str, EvalResult]]  # phase (random, before, after) -> mode


def summaries_of(results: Mapping[str, Mapping[str, EvalResult]]) -> Summaries:
    return {
        phase: {mode: result.summary() for mode, result in modes.items()}
        for phase, modes in results.items()
    }


def key_of(task: Task) -> Key:
    return str(task[0]["question_id"]), task[1]


def play_missing(
    play: Play,
    tasks: Sequence[Task],
    found: dict[Key, EpisodeRecord],
    record: Callable[[RolloutRow], EpisodeRecord],
    *,
    keep: Keep = lambda episodes: None,
    batch: int = BATCH,
    max_lost_fraction: float = GRPOConfig.max_lost_fraction,
    remedy: str = "check the servers, then measure again (a training run with --resume)",
    step_budget: int = GRPOConfig.step_budget,
    title: str = "",
    console: Console | None = None,
    on_pace: Callable[[Pace], None] | None = None,
    processes: int = 1,
) -> list[EpisodeRecord]:
    """Play the tasks that are not `found`, `batch` at a time, show the progress on a `console`, and
    add their records to `found` and to `keep` as they end. Returns those that infrastructure lost;
    `RolloutError` as soon as they are certainly more than `max_lost_fraction` of all."""

    def ended(rows: Sequence[RolloutRow]) -> None:
        new = list(map(record, rows))
        keep(new)
        found.update((one.key, one) for one in new)

    missing = [task for task in tasks if key_of(task) not in found]
    earlier = [one for task in tasks if (one := found.get(key_of(task)))]
    lost = list[RolloutRow]()
    is_open = any(row["difficulty"] == OPEN for row, _ in tasks)
    with bar(console or Console(quiet=True), title, len(tasks), len(earlier)) as shown:
        progress = PlayProgress(
            shown,
            step_budget,
            total=len(tasks),
            done=len(earlier),
            correct=None if is_open else sum(one.correct for one in earlier),
            keep=ended,
            on_pace=on_pace,
            processes=processes,
        )
        for start in range(0, len(missing), batch):
            part = missing[start : start + batch]
            rows = play(
                [row["prompt"] for row, _ in part], [sample for _, sample in part], progress
            )
            if others := [row for row in rows if not progress.has_seen(row)]:  # other processes'
                progress.on_end(others)
            lost += [row for row in rows if row.lost is not None]
            raise_if_lost(lost, len(tasks), max_lost_fraction, remedy)
    return list(map(record, lost))


def evaluate(
    play: Play,
    prompts: Sequence[PromptRow],
    book: Book,
    *,
    mode: Mode,
    phase: str = "eval",
    step: int = 0,
    found: Mapping[Key, EpisodeRecord] | None = None,
    keep: Keep = lambda episodes: None,
    **how: Any,
) -> EvalResult:
    """Play every prompt once, without the `found` ones; lost episodes count in no rate. `how` are
    further options of `play_missing`."""
    started, tasks, known = time.monotonic(), [(row, 0) for row in prompts], dict(found or {})
    record = partial(book.episode, phase=phase, mode=mode, step=step)
    lost = play_missing(play, tasks, known, record, keep=keep, **how)
    if lost:
        keep(lost)
        known.update((one.key, one) for one in lost)
    episodes = tuple(known[key_of(task)] for task in tasks)
    return EvalResult(episodes, time.monotonic() - started)


def choose(prompts: Sequence[PromptRow], limit: int) -> list[PromptRow]:
    return subset.choose(prompts, limit, lambda row: (row["difficulty"], row["database_name"]))
