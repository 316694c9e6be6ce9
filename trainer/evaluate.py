"""Measuring a policy: success over a set of questions, with 95 % intervals, on seen and on unseen databases."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainer.records import SEEN, UNSEEN, Book, Episode
from trainer.runs import read_json, write_json
from trainer.statistics import Rate

Mode = Literal["greedy", "sampled"]
BATCH = 128  # episodes played at once
PromptRow = Mapping[str, Any]  # of trainer.questions.load_question_prompts
Play = Callable[[Sequence[Any]], Sequence[Mapping[str, Any]]]  # prompts -> rows of trainer.rollout.play_episodes


@dataclass(frozen=True)
class EvalResult:
    """One measurement: an episode a question, and the seconds that it took."""

    mode: Mode
    episodes: tuple[Episode, ...]
    wall_s: float
    counts: Mapping[str, float] = field(default_factory=dict)  # further sums of the rollout, such as generate_s

    @property
    def finished(self) -> tuple[Episode, ...]:
        """The episodes that count: those that the infrastructure lost say nothing about the policy."""
        return tuple(episode for episode in self.episodes if episode.finished)

    @property
    def lost(self) -> int:
        return len(self.episodes) - len(self.finished)

    def rate(self, part: str | None = None) -> Rate:
        """Success over the finished episodes, or over those of one part."""
        return Rate.of(episode.correct for episode in self.finished if part in (None, episode.part))

    @property
    def mean_reward(self) -> float | None:
        rewards = [episode.reward for episode in self.finished if episode.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None

    def summary(self) -> dict[str, Any]:
        """The form of summary.json: `{overall, seen, unseen: {rate, n, ci95}}` and what explains them."""
        episodes = self.finished
        levels = sorted({episode.difficulty for episode in episodes})
        return {
            "overall": self.rate().as_dict(),
            SEEN: self.rate(SEEN).as_dict(),
            UNSEEN: self.rate(UNSEEN).as_dict(),
            "by_difficulty": {
                level: Rate.of(episode.correct for episode in episodes if episode.difficulty == level).as_dict()
                for level in levels
            },
            "mean_reward": self.mean_reward,
            "mean_steps": sum(episode.steps for episode in episodes) / len(episodes) if episodes else None,
            "outcomes": dict(sorted(Counter(episode.outcome for episode in self.episodes).items())),
            "episodes_lost": self.lost,
            "parse_failures": sum(episode.parse_failures for episode in self.episodes),
            "wall_s": round(self.wall_s, 3),
            **{name: round(value, 3) for name, value in self.counts.items()},
        }

    def by_question(self) -> dict[str, Episode]:
        return {episode.question_id: episode for episode in self.episodes}

    def subset(self, question_ids: set[str]) -> "EvalResult":
        """The same measurement of some of its questions."""
        kept = tuple(episode for episode in self.episodes if episode.question_id in question_ids)
        return EvalResult(self.mode, kept, 0.0)

    def write(self, path: Path) -> None:
        """Keep everything, turns with it, for a run that is resumed."""
        episodes = [asdict(episode) for episode in self.episodes]
        write_json(path, {"mode": self.mode, "wall_s": self.wall_s, "counts": dict(self.counts), "episodes": episodes})

    @classmethod
    def read(cls, path: Path) -> "EvalResult":
        """What `write` kept."""
        fields = read_json(path)
        episodes = tuple(Episode.from_dict(episode) for episode in fields["episodes"])
        return cls(fields["mode"], episodes, fields["wall_s"], fields["counts"])


def evaluate(
    play: Play,
    prompts: Sequence[PromptRow],
    book: Book,
    *,
    mode: Mode,
    batch: int = BATCH,
    counts: Callable[[], Mapping[str, float]] = dict,
    on_batch: Callable[[Sequence[Episode]], None] = lambda episodes: None,
) -> EvalResult:
    """Play every prompt once, `batch` episodes at a time.

    `play` takes messages and returns rollout rows in their order. `counts` gives the rollout's running sums, read at
    both ends. `on_batch` hears of every batch, for a progress bar.
    """
    began, sums = time.monotonic(), dict(counts())
    episodes: list[Episode] = []
    for start in range(0, len(prompts), batch):
        rows = play([row["prompt"] for row in prompts[start : start + batch]])
        played = [book.episode(row) for row in rows]
        episodes += played
        on_batch(played)
    spent = {name: value - sums.get(name, 0.0) for name, value in counts().items()}
    return EvalResult(mode, tuple(episodes), time.monotonic() - began, spent)


def choose(prompts: Sequence[PromptRow], limit: int) -> list[PromptRow]:
    """`limit` of the prompts, evenly spaced, so that databases and difficulties keep their shares; 0: all."""
    if limit <= 0 or limit >= len(prompts):
        return list(prompts)
    return [prompts[index * len(prompts) // limit] for index in range(limit)]
