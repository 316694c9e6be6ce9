"""Score recorded episodes by another reward version or standard of comparison, and report changes.

The actions are replayed, so each step's facts are the environment's own; only rewards and verdicts
change. What a policy would have done under other rewards cannot be inferred from its episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env_server.audit.replay import NumberedLine, Progress, RunFolder, read_lines, replay
from env_server.environment import TABLES_SHOWN_BY
from env_server.questions import QuestionBank
from env_server.rewards import (
    EMPTY_LEDGER,
    REWARD_VERSION,
    VERSIONS,
    RewardRules,
    StepFacts,
    settle,
)
from env_server.sql.pool import SqlPool
from env_server.verifier import STANDARDS, answer_verdicts
from shared.actions import ActionType, parse_action
from shared.errors import DataError, SQLEnvError
from shared.models import RewardLedger, StepResult
from shared.run_files import EPISODES, EpisodeLine, LineError

Key = tuple[str, str]  # (phase, mode)


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

    @property
    def changed(self) -> bool:
        return self.flipped or self.old_reward != self.new_reward


@dataclass
class Rescored:
    """The result of re-scoring. `skipped` episodes were lost to infrastructure: no reward."""

    file: str
    rewards: str
    standard: str
    scores: dict[Key, list[Score]] = field(default_factory=dict)
    skipped: int = 0

    @property
    def changes(self) -> list[Score]:
        """The episodes whose verdict or reward changed, in the file's order."""
        scores = (score for scores in self.scores.values() for score in scores if score.changed)
        return sorted(scores, key=lambda score: score.line)

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "rewards": self.rewards,
            "standard": self.standard,
            "skipped": self.skipped,
            "phases": [
                {"phase": phase, "mode": mode, **tally(scores)}
                for (phase, mode), scores in self.scores.items()
            ],
            "changes": [vars(change) for change in self.changes],
        }


def tally(scores: Sequence[Score]) -> dict[str, Any]:
    """Return counts and means over the episodes of one phase and mode; pairs are old and new."""
    rewards = sum(one.old_reward for one in scores), sum(one.new_reward for one in scores)
    return {
        "episodes": len(scores),
        "correct": [sum(one.was_correct for one in scores), sum(one.is_correct for one in scores)],
        "gained": sum(one.is_correct > one.was_correct for one in scores),
        "lost": sum(one.is_correct < one.was_correct for one in scores),
        "mean_reward": [round(total / len(scores), 6) for total in rewards],
        "rewards_changed": sum(one.old_reward != one.new_reward for one in scores),
    }


async def rescore(
    path: Path,
    *,
    data_dir: Path | None = None,
    rewards: str = REWARD_VERSION,
    standard: str | None = None,
    workers: int = 2,
    progress: Progress = lambda done, total: None,
) -> Rescored:
    """Score all episodes of a run, its folder or its episodes.jsonl, by one of `VERSIONS`.

    Without `standard`, by the one that they were played with. Raises `DataError` for what is
    missing, damaged or can't be replayed.
    """
    run = RunFolder.open(path.parent if path.name == EPISODES else path)
    standard = standard or run.settings.config.standard
    rules = _named(VERSIONS, rewards, "reward version")
    _named(STANDARDS, standard, "standard")
    bank, lines = run.bank(data_dir), _read(run.episodes)
    rescored = Rescored(str(run.episodes), rewards, standard)
    async with SqlPool(workers, bank.limits) as sql:
        async for number, episode, replies in replay(run, bank, sql, lines):
            progress(number, lines[-1][0])
            if isinstance(replies, SQLEnvError):
                where = f"{run.episodes} line {number}"
                raise DataError(f"{where} can't be replayed: {replies.message}") from replies
            if episode.reward is None:
                rescored.skipped += 1
                continue
            score = _score(number, episode, replies, bank, rules, standard)
            rescored.scores.setdefault((episode.phase, episode.mode), []).append(score)
    return rescored


def _read(path: Path) -> list[NumberedLine]:
    """Return the numbered episodes. Raises `DataError` with the first damaged line."""
    if not path.is_file():
        raise DataError(f"no file at {path}")
    episodes = []
    for number, episode in read_lines(path):
        if isinstance(episode, LineError):
            raise DataError(f"{path} line {number}: {episode}")
        episodes.append((number, episode))
    return episodes


def _named(table: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise DataError(f"no {what} {name!r}; expected one of {', '.join(table)}")
    return table[name]


def _score(
    number: int,
    episode: EpisodeLine,
    replies: Sequence[StepResult],
    bank: QuestionBank,
    rules: RewardRules,
    standard: str,
) -> Score:
    actions = [parse_action(text) for text in episode.actions]
    verdict = False
    if actions and actions[-1].action_type == ActionType.ANSWER:
        # with its ties, which the replay's reset determined
        gold = bank.gold(bank.with_gold(episode.question_id))
        seen = [reply.observation for reply in replies[1:]]
        shown = {
            observation.result.strip()
            for action, observation in zip(actions, seen, strict=True)
            if observation.error is None and action.action_type in TABLES_SHOWN_BY
        }
        verdicts = answer_verdicts(actions[-1].argument, gold, shown.__contains__)
        verdict = verdicts[standard]
    return Score(
        line=number,
        question_id=episode.question_id,
        last_action=episode.actions[-1] if actions else "",
        was_correct=bool(episode.correctness),
        is_correct=verdict,
        old_reward=float(episode.reward or 0.0),
        new_reward=rules.weighted(settle_again(replies, rules, verdict)),
    )


def settle_again(replies: Sequence[StepResult], rules: RewardRules, correct: bool) -> RewardLedger:
    """Return an episode's ledger by other rules, from its replies (the reset's first).

    `correct`: whether its ANSWER is right.
    """
    ledger = EMPTY_LEDGER
    for index, reply in enumerate(replies[1:], start=2):
        paid = reply.ledger
        facts = StepFacts(
            exec_ok="exec_ok" in paid.step,
            new_info="new_info" in paid.step,
            repeat="repeat" in paid.step,
            potential=paid.potential,  # the best so far, so its maximum is the same
            correct=correct and index == len(replies),
        )
        _, ledger = settle(ledger, facts, rules)
    return ledger
