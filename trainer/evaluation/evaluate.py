"""Measure a policy: success over a set of questions, and how many of them to measure on."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shared.console import percent
from shared.run_files import TimedMeasurement
from shared.run_stats import Mode, Rate, measurement, success
from trainer.config import GRPOConfig
from trainer.rollout.loop import raise_if_lost
from trainer.rollout.row import RolloutRow
from trainer.run.console import Summaries, bar
from trainer.run.folder import read_json, write_json
from trainer.run.records import Book, EpisodeRecord

BATCH = 128  # episodes played at once
PromptRow = Mapping[str, Any]  # of trainer.rollout.dataset.load_question_prompts
# plays (prompts, repeats) as `play_episodes` does, one episode per prompt
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


Results = dict[str, dict[str, EvalResult]]  # phase (random, before, after) -> mode


def summaries_of(results: Mapping[str, Mapping[str, EvalResult]]) -> Summaries:
    """Return the measurements of a run in the form of summary.json."""
    return {
        phase: {mode: result.summary() for mode, result in modes.items()}
        for phase, modes in results.items()
    }


def evaluate(
    play: Play,
    prompts: Sequence[PromptRow],
    book: Book,
    *,
    mode: Mode,
    batch: int = BATCH,
    max_lost_fraction: float = GRPOConfig.max_lost_fraction,
    title: str = "",
    console: Console | None = None,
) -> EvalResult:
    """Play every prompt once, `batch` episodes at a time, with a progress bar on a `console`.

    `RolloutError` as soon as it is certain that infrastructure lost more than `max_lost_fraction`
    of all the episodes.
    """
    started, lost = time.monotonic(), list[RolloutRow]()
    episodes: list[EpisodeRecord] = []
    with bar(console, title, len(prompts)) if console else nullcontext() as progress:
        for start in range(0, len(prompts), batch):
            rows = play([row["prompt"] for row in prompts[start : start + batch]])
            lost += [row for row in rows if row.lost is not None]
            remedy = "check the servers, then measure again (a training run with --resume)"
            raise_if_lost(lost, len(prompts), max_lost_fraction, remedy)
            episodes += map(book.episode, rows)
            if progress:
                correct = sum(one.correct for one in episodes)
                progress.to(len(episodes), f"success {percent(correct / len(episodes))}")
    return EvalResult(mode, tuple(episodes), time.monotonic() - started)


def choose(prompts: Sequence[PromptRow], limit: int) -> list[PromptRow]:
    """Return `limit` of the prompts, in their order; all for 0.

    Difficulties, databases and their combinations (cells) keep their shares: each place goes to the
    cell that is furthest below its shares by then. A cell's prompts are drawn at random, as files
    are sorted by the form of their questions; always the same ones, so that runs compare.
    """
    if limit <= 0 or limit >= len(prompts):
        return list(prompts)
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(prompts):
        cells[row["difficulty"], row["database_name"]].append(index)
    groups = {at: (("difficulty", at[0]), ("database", at[1]), ("cell", *at)) for at in cells}
    sizes = Counter(
        group for cell, members in cells.items() for group in groups[cell] for _ in members
    )
    taken: Counter[tuple[str, ...]] = Counter()
    for place in range(1, limit + 1):
        lack = {
            cell: sum(place * sizes[group] - len(prompts) * taken[group] for group in groups[cell])
            for cell, members in cells.items()
            if taken["cell", *cell] < len(members)
        }
        taken.update(groups[max(lack, key=lambda cell: lack[cell])])
    stream = random.Random("subset")
    chosen = [
        index
        for cell, members in cells.items()
        for index in stream.sample(members, taken["cell", *cell])
    ]
    return [prompts[index] for index in sorted(chosen)]
