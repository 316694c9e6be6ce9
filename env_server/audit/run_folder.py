"""A run's folder, opened for replay: its settings and data. `shared.run_files` has the format."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError

from env_server.questions import QuestionBank
from shared.dataset import data_directory
from shared.errors import DataError, DigestMismatch, first_problem
from shared.models import DEFAULT_STANDARD, MAX_STEP_BUDGET, StandardName
from shared.run_files import MetricsRow, RunFiles, RunSummary


class _TrainerConfig(BaseModel):
    step_budget: int = Field(ge=1, le=MAX_STEP_BUDGET)
    questions_path: Path
    db_dir: Path
    standard: StandardName = DEFAULT_STANDARD  # older runs have no other


class _Settings(BaseModel):
    """The fields of config.json that a replay needs."""

    config: _TrainerConfig
    data_digest: str
    server_digest: str
    reward_version: str


@dataclass(frozen=True)
class RunFolder(RunFiles):
    """One run, with the settings that it was played with."""

    settings: _Settings

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open a run. Raises `DataError` if `path` is not one or its settings can't be read."""
        if not path.is_dir():
            raise DataError(f"no run at {path}; pass the folder of a run, such as runs/latest")
        config = RunFiles(path).config
        try:
            return cls(path, _Settings.model_validate_json(config.read_bytes()))
        except OSError as error:
            reason = f"can't read {config}: {error.strerror}"
            raise DataError(f"{path} is not a run: {reason}") from error
        except ValidationError as error:
            problem = first_problem(error, "not JSON")
            raise DataError(f"{config} has no run's settings: {problem}") from error

    def bank(self, data_dir: Path | None = None) -> QuestionBank:
        """Load the run's questions, by default from where it had them.

        Raises `DataError` if they are missing, `DigestMismatch` if they are different ones.
        """
        # as passed to the trainer: relative to the folder in which it ran
        place = data_directory(data_dir or self.settings.config.db_dir.parent)
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

    def train_databases(self, bank: QuestionBank) -> frozenset[str]:
        """Return the databases with a training question."""
        split = self.settings.config.questions_path.stem.removeprefix("questions_")
        return frozenset(question.database_name for question in bank.splits.get(split, ()))


def read_metrics(path: Path) -> list[tuple[int, MetricsRow]]:
    """Return (line number, row). Raises `DataError` with the `file` and the `line`."""
    lines = enumerate(_bytes(path).splitlines(keepends=True), 1)
    return [(number, cast(MetricsRow, _object(line, path, number))) for number, line in lines]


def read_summary(path: Path) -> RunSummary:
    """Return the summary. Raises `DataError` like `read_metrics`, with line 0."""
    return cast(RunSummary, _object(_bytes(path), path, 0))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"can't read: {error.strerror}", file=path.name, line=0) from error


def _object(text: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DataError(f"not JSON: {error}", file=path.name, line=number) from error
    if not (isinstance(value, dict) and text.endswith(b"\n")):
        raise DataError("not a complete JSON object", file=path.name, line=number)
    return value
