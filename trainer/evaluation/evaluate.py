"""Measure a policy: success over a set of questions, with 95 % intervals, on seen and unseen
databases."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared.run_files import TimedMeasurement
from shared.run_stats import Mode, Rate, mean, measurement, success
from trainer.config import GRPOConfig
from trainer.errors import RolloutError
from trainer.rollout.row import RolloutRow
from trainer.run.folder import read_json, write_json
from trainer.run.records import Book, EpisodeRecord

BATCH = 128  # episodes played at once
PromptRow = Mapping[str, Any]  # of trainer.rollout.dataset.load_question_prompts
Play = Callable[[Sequence[Any]], Sequence[RolloutRow]]  # from prompts


@dataclass(frozen=True)
class EvalResult:
    """One measurement: the episodes, and the seconds that they took."""

    mode: Mode
    episodes: tuple[EpisodeRecord, ...]
    wall_s: float

    @property
    def finished(self) -> tuple[EpisodeRecord, ...]:
        """Return the episodes that count: those not lost to infrastructure."""
        return tuple(episode for episode in self.episodes if episode.finished)

    @property
    def lost(self) -> int:
        return len(self.episodes) - len(self.finished)

    def rate(self) -> Rate:
        return success(self.episodes)

    @property
    def mean_reward(self) -> float | None:
        return mean(episode.reward for episode in self.finished)

    def summary(self) -> TimedMeasurement:
        """Return the statistics in the form of summary.json."""
        return {**measurement(self.episodes), "wall_s": round(self.wall_s, 3)}

    def by_question(self) -> dict[str, EpisodeRecord]:
        return {episode.question_id: episode for episode in self.episodes}

    def subset(self, question_ids: set[str]) -> "EvalResult":
        """Return the same measurement on some of its questions."""
        kept = tuple(episode for episode in self.episodes if episode.question_id in question_ids)
        return EvalResult(self.mode, kept, 0.0)

    def write(self, path: Path) -> None:
        """Write everything, turns included, for resuming the run."""
        episodes = [asdict(episode) for episode in self.episodes]
        write_json(path, {"mode": self.mode, "wall_s": self.wall_s, "episodes": episodes})

    @classmethod
    def read(cls, path: Path) -> "EvalResult":
        """Read what `write` wrote."""
        fields = read_json(path)
        episodes = tuple(map(EpisodeRecord.from_dict, fields["episodes"]))
        return cls(fields["mode"], episodes, fields["wall_s"])


def evaluate(
    play: Play,
    prompts: Sequence[PromptRow],
    book: Book,
    *,
    mode: Mode,
    batch: int = BATCH,
    max_lost_fraction: float = GRPOConfig.max_lost_fraction,
    on_batch: Callable[[Sequence[EpisodeRecord]], None] = lambda episodes: None,
) -> EvalResult:
    """Play every prompt once, `batch` episodes at a time.

    `play` takes messages and returns rollout rows in their order. `on_batch` hears of every batch,
    for a progress bar. `RolloutError` where more of the episodes than `max_lost_fraction` were lost
    to infrastructure: of all of them, so that the size of a batch doesn't matter, and as soon as
    that is certain.
    """
    began, lost = time.monotonic(), list[str]()
    episodes: list[EpisodeRecord] = []
    for start in range(0, len(prompts), batch):
        rows = play([row["prompt"] for row in prompts[start : start + batch]])
        played = [book.episode(row) for row in rows]
        lost += [row.lost or "" for row, one in zip(rows, played, strict=True) if not one.finished]
        if len(lost) > max_lost_fraction * len(prompts):
            raise RolloutError(
                f"{len(lost)} of {len(prompts)} episodes of an evaluation were lost to infrastructure, more than "
                f"{max_lost_fraction:.0%}: check the servers, then measure again (a training run with --resume). "
                f"The first error: {lost[0]}",
                lost=len(lost),
                episodes=len(prompts),
            )
        episodes += played
        on_batch(played)
    return EvalResult(mode, tuple(episodes), time.monotonic() - began)


def choose(prompts: Sequence[PromptRow], limit: int) -> list[PromptRow]:
    """`limit` of the prompts, in their order; 0: all. Difficulties, databases and both together
    keep their shares.

    The places go one by one to the cell (a difficulty of a database) that lacks most by then, and a
    cell's are evenly spaced over its prompts. Even spacing over the file would not do: it falls in
    step with the file's own order.
    """
    if limit <= 0 or limit >= len(prompts):
        return list(prompts)
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(prompts):
        cells[row["difficulty"], row["database_name"]].append(index)
    groups = {
        cell: (("difficulty", cell[0]), ("database", cell[1]), ("cell", *cell)) for cell in cells
    }
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
    chosen = []
    for cell, members in cells.items():
        count = taken["cell", *cell]
        chosen += [members[number * len(members) // count] for number in range(count)]
    return [prompts[index] for index in sorted(chosen)]
