"""Open a recorded run, and play its actions again as the server did: same state machine, same SQL
workers, no HTTP. `shared.run_files` has the format of the files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from env_server.episode import Episode, Options, replay
from env_server.questions import QuestionBank
from env_server.rewards import RULES, RewardRules
from env_server.sql.pool import SqlPool
from shared import run_files
from shared.dataset import data_directory
from shared.errors import DataError, DigestMismatch, SQLEnvError, first_problem
from shared.models import MAX_STEP_BUDGET, Explanation, ResetRequest, StandardName, StepResult
from shared.run_files import EpisodeLine, LineError, RunFiles

IN_FLIGHT = 128  # episodes played concurrently

Progress = Callable[[int, int], None]  # (episodes done, in all)
NumberedLine = tuple[int, EpisodeLine]  # lines count from 1
Replies = list[StepResult] | SQLEnvError


class _TrainerConfig(BaseModel):
    step_budget: int = Field(ge=1, le=MAX_STEP_BUDGET)
    questions_path: Path
    db_dir: Path
    standard: StandardName
    difficulty_filter: list[str]
    reward_weights: list[float] = Field([1.0, 0.15, 1.0], min_length=3, max_length=3)
    explain: list[Explanation] = []  # a run without it is older than explanations


class _RunOptions(BaseModel):
    """Which questions a run was told to ask: all of the split and difficulties by default."""

    questions: list[str] = []  # to train on
    eval_limit: int = 0
    eval_points: int = 0


class _Evaluation(BaseModel):
    """Which questions an evaluation asks, of how many samples each."""

    split: str
    mode: str
    difficulty: list[str]
    databases: list[str] = []
    question_ids: list[str] = []
    limit: int = 0
    samples: int = 1
    questions: int


class _Settings(BaseModel):
    """The fields of config.json that a replay needs."""

    command: str = "train"
    config: _TrainerConfig
    options: _RunOptions = _RunOptions()
    evaluation: _Evaluation | None = None
    data_digest: str
    server_digest: str
    server_rules: dict[str, str] = {}  # by part: see `env_server.rules`
    reward_version: str


@dataclass(frozen=True)
class RunFolder(RunFiles):
    settings: _Settings

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open a run. Raises `DataError` if `path` is not one or its settings can't be read."""
        if not path.is_dir():
            raise DataError(f"no run at {path}; pass the folder of a run, such as runs/latest")
        config = RunFiles(path).config
        try:
            return cls(path, _Settings.model_validate_json(run_files.read_file(config)))
        except OSError as error:
            reason = f"can't read {config}: {error.strerror}"
            raise DataError(f"{path} is not a run: {reason}") from error
        except ValidationError as error:
            problem = first_problem(error, "not JSON")
            raise DataError(f"{config} has no run's settings: {problem}") from error

    def bank(self, data_dir: Path | None = None) -> QuestionBank:
        """Load the run's questions, by default from where it had them."""
        # as passed to the trainer: relative to the folder in which it ran
        place = data_directory(data_dir or self.settings.config.db_dir.parent)
        if data_dir is None and place.resolve().is_relative_to(self.path.resolve()):
            raise DataError(
                f"the data of {self.path} are inside it: who made the run could have made them to "
                "fit; name data that you trust with --data"
            )
        if not place.is_dir():
            remedy = "" if data_dir else f", which {self.path} used: pass the directory with --data"
            raise DataError(f"no data at {place}{remedy}")
        bank = QuestionBank.load(place)
        loaded, recorded = bank.data_digest, self.settings.data_digest
        if loaded != recorded:
            raise DigestMismatch(
                f"the data in {place} (digest {loaded[:12]}) are not those of {self.path} "
                f"(digest {recorded[:12]}): pass the run's data with --data"
            )
        return bank

    @property
    def train_split(self) -> str:
        return self.settings.config.questions_path.stem.removeprefix("questions_")

    def lines(self) -> Iterator[tuple[int, EpisodeLine | LineError]]:
        """Yield the number and the episode, or the damage, of each line of episodes.jsonl."""
        if not self.episodes.is_file():
            raise DataError(f"{self.path} has no {run_files.EPISODES}")
        for number, line in run_files.numbered_lines(self.episodes):
            try:
                run_files.check_seal(line)
                yield number, run_files.read_episode(line)
            except LineError as error:
                yield number, error

    async def replay(
        self,
        bank: QuestionBank,
        sql: SqlPool,
        lines: Iterable[NumberedLine],
        standard: StandardName | None = None,
        rules: RewardRules = RULES,
    ) -> AsyncIterator[tuple[int, EpisodeLine, Replies]]:
        """Yield each line with the replies to its reset and actions, or the error instead."""
        config = self.settings.config
        standard = standard or config.standard

        async def played(line: EpisodeLine) -> Replies:
            request = ResetRequest(
                question_id=line.question_id, step_budget=config.step_budget, explain=config.explain
            )
            try:
                episode = Episode(bank, Options.of(request, bank), standard, rules)
                return [reply async for reply in replay(episode, line.actions, sql.run)]
            except SQLEnvError as error:
                return error

        waiting = iter(lines)
        while group := list(islice(waiting, IN_FLIGHT)):
            found = await asyncio.gather(*(played(episode) for _, episode in group))
            for (number, episode), replies in zip(group, found, strict=True):
                yield number, episode, replies
