"""Measure a policy: success over a set of questions, and how many of them to measure on."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shared import subset
from shared.run_files import TimedMeasurement
from shared.run_stats import Mode, Rate, measurement, success
from trainer.config import GRPOConfig
from trainer.rollout.loop import raise_if_lost
from trainer.rollout.row import RolloutRow
from trainer.run.console import Summaries
from trainer.run.folder import append_lines, keep_lines, read_json, read_lines, write_json
from trainer.run.progress import PlayProgress, bar
from trainer.run.records import Book, EpisodeRecord

BATCH = 128  # episodes played at once
PromptRow = Mapping[str, Any]  # of trainer.rollout.dataset.load_question_prompts
# plays (prompts, repeats, observer) as `play_episodes` does, one episode per prompt
Play = Callable[..., Sequence[RolloutRow]]


@dataclass(frozen=True)
class EvalResult:
    """One measurement: the episodes, and the seconds that they took."""

    mode: Mode
    episodes: tuple[EpisodeRecord, ...]
    wall_s: float

    def rate(self) -> Rate:
        return success(self.episodes)

    def summary(self) -> TimedMeasurement:
        """Return the statistics in the form of summary.json."""
        return {**measurement(self.episodes), "wall_s": round(self.wall_s, 3)}

    def by_question(self) -> dict[str, EpisodeRecord]:
        return {episode.question_id: episode for episode in self.episodes}

    def write(self, path: Path) -> None:
        """Write everything, turns included, for resuming the run."""
        episodes = [episode.model_dump() for episode in self.episodes]
        write_json(path, {"mode": self.mode, "wall_s": self.wall_s, "episodes": episodes})

    @classmethod
    def read(cls, path: Path) -> "EvalResult":
        """Read what `write` wrote."""
        fields = read_json(path)
        episodes = tuple(map(EpisodeRecord.model_validate, fields["episodes"]))
        return cls(fields["mode"], episodes, fields["wall_s"])

    def append_unfinished(self, path: Path) -> None:
        """Add these episodes to those of an unfinished measurement, whose result `path` will be.

        `wall_s` are its seconds so far.
        """
        lines = [{"wall_s": self.wall_s, "episode": one.model_dump()} for one in self.episodes]
        append_lines(unfinished(path), lines)

    @classmethod
    def read_unfinished(cls, path: Path, mode: Mode) -> "EvalResult | None":
        """Read what `append_unfinished` wrote, if anything."""
        keep_lines(unfinished(path), lambda line: True)  # without a last line that a crash cut
        lines = list(read_lines(unfinished(path)))
        episodes = tuple(EpisodeRecord.model_validate(line["episode"]) for line in lines)
        return cls(mode, episodes, lines[-1]["wall_s"]) if lines else None


def unfinished(path: Path) -> Path:
    """Return the file of the episodes of a measurement until its result is at `path`."""
    return path.with_suffix(".jsonl")


Results = dict[str, dict[str, EvalResult]]  # phase (random, before, after) -> mode


def summaries_of(results: Mapping[str, Mapping[str, EvalResult]]) -> Summaries:
    """Return the measurements of a run in the form of summary.json."""
    return {
        phase: {mode: result.summary() for mode, result in modes.items()}
        for phase, modes in results.items()
    }


def play_tasks(
    play: Play,
    tasks: Sequence[tuple[int, PromptRow]],
    progress: PlayProgress,
    *,
    batch: int,
    total: int,
    max_lost_fraction: float,
    remedy: str,
) -> list[RolloutRow]:
    """Play an episode of each task, a prompt with the number of its sample, `batch` at a time.

    `progress` sees the episodes as they end. Returns those that infrastructure lost; `RolloutError`
    as soon as it is certain that they are more than `max_lost_fraction` of `total`.
    """
    lost = list[RolloutRow]()
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        samples = [sample for sample, _ in part]
        rows = play([row["prompt"] for _, row in part], samples, progress)
        if others := [row for row in rows if not progress.has_seen(row)]:  # other processes'
            progress.on_end(others)
        lost += [row for row in rows if row.lost is not None]
        raise_if_lost(lost, total, max_lost_fraction, remedy)
    return lost


def evaluate(
    play: Play,
    prompts: Sequence[PromptRow],
    book: Book,
    *,
    mode: Mode,
    batch: int = BATCH,
    max_lost_fraction: float = GRPOConfig.max_lost_fraction,
    step_budget: int = GRPOConfig.step_budget,
    title: str = "",
    console: Console | None = None,
    earlier: EvalResult | None = None,
    keep: Callable[[EvalResult], None] = lambda result: None,
    processes: int = 1,
) -> EvalResult:
    """Play every prompt once, `batch` episodes at a time, and show the progress on a `console`.

    `keep` gets the episodes as they end, with the seconds until then; `earlier` are those of an
    interrupted call, which are not played again. `RolloutError` as soon as it is certain that
    infrastructure lost more than `max_lost_fraction` of all the episodes.
    """
    started = time.monotonic() - (earlier.wall_s if earlier else 0.0)
    found = {} if earlier is None else earlier.by_question()

    def result(episodes: Iterable[EpisodeRecord]) -> EvalResult:
        return EvalResult(mode, tuple(episodes), time.monotonic() - started)

    def ended(rows: Sequence[RolloutRow]) -> None:
        new = [book.episode(row) for row in rows]
        found.update((one.question_id, one) for one in new)
        keep(result(new))

    with bar(console or Console(quiet=True), title, len(prompts), len(found)) as shown:
        progress = PlayProgress(
            shown,
            step_budget,
            total=len(prompts),
            done=len(found),
            correct=sum(one.correct for one in found.values()),
            keep=ended,
            processes=processes,
        )
        lost = play_tasks(
            play,
            [(0, row) for row in prompts if row["question_id"] not in found],
            progress,
            batch=batch,
            total=len(prompts),
            max_lost_fraction=max_lost_fraction,
            remedy="check the servers, then measure again (a training run with --resume)",
        )
    found.update((row.question_id, book.episode(row)) for row in lost)
    return result(found[row["question_id"]] for row in prompts)


def choose(prompts: Sequence[PromptRow], limit: int) -> list[PromptRow]:
    """Return `limit` of the prompts, as `shared.subset` chooses them; all for 0."""
    return subset.choose(prompts, limit, lambda row: (row["difficulty"], row["database_name"]))
