"""Score recorded episodes by another reward version or standard of comparison, and report changes.

The actions are replayed under the other rules. What a policy would have done under other rewards
cannot be inferred from its episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import Any

from env_server.audit.run_folder import Progress, RunFolder
from env_server.rewards import REWARD_VERSION, VERSIONS
from env_server.sql.pool import SqlPool
from env_server.verifier import STANDARDS
from shared.errors import DataError, SQLEnvError
from shared.models import Outcome, StandardName
from shared.run_files import LineError


@dataclass(frozen=True)
class Score:
    """One episode's old and new verdict and reward (the trainer's weighted sum)."""

    line: int  # from 1
    question_id: str
    last_action: str
    was_correct: bool
    is_correct: bool
    old_reward: float
    new_reward: float

    @property
    def flipped(self) -> bool:
        return self.was_correct != self.is_correct


@dataclass
class Rescored:
    standard: str
    scores: dict[tuple[str, str], list[Score]] = field(default_factory=dict)  # by phase and mode
    skipped: int = 0  # episodes lost to infrastructure, without a reward

    @property
    def flipped(self) -> list[Score]:
        scores = (score for scores in self.scores.values() for score in scores)
        return sorted((one for one in scores if one.flipped), key=lambda score: score.line)


def tally(scores: Sequence[Score]) -> dict[str, Any]:
    """Return counts and means over the episodes of one phase and mode; lists are old and new."""
    rewards = fsum(one.old_reward for one in scores), fsum(one.new_reward for one in scores)
    return {
        "episodes": len(scores),
        "correct": [sum(one.was_correct for one in scores), sum(one.is_correct for one in scores)],
        "gained": sum(one.is_correct > one.was_correct for one in scores),
        "lost": sum(one.is_correct < one.was_correct for one in scores),
        "mean_reward": [total / len(scores) for total in rewards],
        "rewards_changed": sum(one.old_reward != one.new_reward for one in scores),
    }


async def rescore(
    path: Path,
    *,
    data_dir: Path | None = None,
    rewards: str = REWARD_VERSION,
    standard: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Rescored:
    """Score all episodes of a run; `DataError` for what is damaged or can't be replayed."""
    run = RunFolder.open(path)
    judge: StandardName = standard or run.settings.config.standard  # type: ignore[assignment]
    rules = _named(VERSIONS, rewards, "reward version")
    _named(STANDARDS, judge, "standard")
    bank, lines = run.bank(data_dir), []
    for number, line in run.lines():
        if isinstance(line, LineError):
            raise DataError(f"{run.episodes} line {number}: {line}")
        lines.append((number, line))
    rescored = Rescored(judge)
    async with SqlPool(limits=bank.limits) as sql:
        async for number, episode, replies in run.replay(bank, sql, lines, judge, rules):
            progress(number, lines[-1][0])
            if isinstance(replies, SQLEnvError):
                where = f"{run.episodes} line {number}"
                raise DataError(f"{where} can't be replayed: {replies.message}") from replies
            if episode.reward is None:
                rescored.skipped += 1
                continue
            score = Score(
                line=number,
                question_id=episode.question_id,
                last_action=episode.actions[-1] if episode.actions else "",
                was_correct=bool(episode.correctness),
                is_correct=replies[-1].info.outcome == Outcome.CORRECT,
                old_reward=episode.reward,
                new_reward=rules.weighted(replies[-1].ledger),
            )
            rescored.scores.setdefault((episode.phase, episode.mode), []).append(score)
    return rescored


def _named(table: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise DataError(f"no {what} {name!r}; expected one of {', '.join(table)}")
    return table[name]
