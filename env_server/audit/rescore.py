"""Score recorded episodes by another reward version or standard of comparison, and report changes.

The actions are replayed, so each step's facts are the environment's own; only rewards and verdicts
change. What a policy would have done under other rewards cannot be inferred from its episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env_server.audit.replay import NumberedLine, Progress, read_lines, replay
from env_server.audit.run_folder import RunFolder
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
from env_server.verifier import STANDARDS, Standard
from shared.actions import ActionType, parse_action
from shared.errors import DataError, SQLEnvError
from shared.models import DEFAULT_STANDARD, RewardLedger, StandardName, StepResult
from shared.run_files import CONFIG, EPISODES, EpisodeLine, LineError

Key = tuple[str, str]  # (phase, mode)


@dataclass(frozen=True)
class Change:
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
class Tally:
    """Sums over the episodes of one phase and mode, except those lost to infrastructure."""

    episodes: int = 0
    correct: tuple[int, int] = (0, 0)  # old, new
    rewards: tuple[float, float] = (0.0, 0.0)  # old, new
    gained: int = 0
    lost: int = 0
    rewards_changed: int = 0

    def add(self, change: Change) -> None:
        self.episodes += 1
        old, new = self.correct
        self.correct = (old + change.was_correct, new + change.is_correct)
        self.rewards = (self.rewards[0] + change.old_reward, self.rewards[1] + change.new_reward)
        self.gained += change.is_correct and not change.was_correct
        self.lost += change.was_correct and not change.is_correct
        self.rewards_changed += change.old_reward != change.new_reward

    def as_json(self) -> dict[str, Any]:
        return {
            "episodes": self.episodes,
            "correct": list(self.correct),
            "gained": self.gained,
            "lost": self.lost,
            "mean_reward": [round(total / self.episodes, 6) for total in self.rewards],
            "rewards_changed": self.rewards_changed,
        }


@dataclass
class Rescored:
    """The result of re-scoring. `skipped` episodes were lost to infrastructure: no reward."""

    file: str
    rewards: str
    standard: str
    tallies: dict[Key, Tally] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)  # in the file's order
    skipped: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "rewards": self.rewards,
            "standard": self.standard,
            "skipped": self.skipped,
            "phases": [
                {"phase": phase, "mode": mode, **tally.as_json()}
                for (phase, mode), tally in self.tallies.items()
            ],
            "changes": [vars(change) for change in self.changes],
        }


@dataclass(frozen=True)
class Source:
    """A file of episodes, with the data, step budget and standard they were played with."""

    path: Path
    bank: QuestionBank
    step_budget: int
    standard: StandardName = DEFAULT_STANDARD  # of the rewards in the file

    @classmethod
    def open(cls, path: Path, data_dir: Path | None = None, budget: int | None = None) -> "Source":
        """Open episodes.jsonl or its run's folder. Raises `DataError` for what is missing.

        Data and budget default to those of the config.json beside it; a single file needs both.
        """
        path = path / EPISODES if path.is_dir() else path
        if not path.is_file():
            raise DataError(f"no file at {path}; pass a run's {EPISODES} or its folder")
        if (path.parent / CONFIG).is_file():
            run = RunFolder.open(path.parent)
            config = run.settings.config
            bank = run.bank(data_dir)
            return cls(path, bank, budget or config.step_budget, config.standard)
        if data_dir is None or budget is None:
            raise DataError(f"{path} has no {CONFIG} beside it: pass --data and --step-budget")
        return cls(path, QuestionBank.load(data_dir), budget)

    def lines(self) -> list[NumberedLine]:
        """Return the numbered episodes. Raises `DataError` with the first damaged line."""
        episodes = []
        for number, episode in read_lines(self.path):
            if isinstance(episode, LineError):
                raise DataError(f"{self.path} line {number}: {episode}")
            episodes.append((number, episode))
        return episodes


async def rescore(
    source: Source,
    *,
    rewards: str = REWARD_VERSION,
    standard: str | None = None,
    workers: int = 2,
    progress: Progress = lambda done, total: None,
) -> Rescored:
    """Score all episodes of a file by one of `VERSIONS` and one of `STANDARDS`.

    Without `standard`, by the one that they were played with.
    """
    standard = standard or source.standard
    rules = _named(VERSIONS, rewards, "reward version")
    judge = _named(STANDARDS, standard, "standard")
    lines = source.lines()
    rescored = Rescored(str(source.path), rewards, standard)
    async with SqlPool(workers, source.bank.limits) as sql:
        replays = replay(source.bank, sql, lines, source.step_budget, source.standard)
        async for number, episode, replies in replays:
            progress(number, lines[-1][0])
            if isinstance(replies, SQLEnvError):
                where = f"{source.path} line {number}"
                raise DataError(f"{where} can't be replayed: {replies.message}") from replies
            if episode.reward is None:
                rescored.skipped += 1
                continue
            change = _score(number, episode, replies, source.bank, rules, judge)
            rescored.tallies.setdefault((episode.phase, episode.mode), Tally()).add(change)
            if change.flipped or change.old_reward != change.new_reward:
                rescored.changes.append(change)
    return rescored


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
    judge: Standard,
) -> Change:
    verdict = False
    last = parse_action(episode.actions[-1]) if episode.actions else None
    if last is not None and last.action_type == ActionType.ANSWER:
        # with its ties, which the replay's reset determined
        gold = bank.gold(bank.with_gold(episode.question_id))
        steps = zip(episode.actions, replies[1:], strict=True)
        shown = {
            reply.observation.result.strip()
            for action, reply in steps
            if reply.observation.error is None
            and parse_action(action).action_type in TABLES_SHOWN_BY
        }
        verdict = judge.answer(last.argument, gold, shown.__contains__)
    return Change(
        line=number,
        question_id=episode.question_id,
        last_action=episode.actions[-1] if episode.actions else "",
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
