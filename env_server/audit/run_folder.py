"""A run's folder, opened for replaying: its settings, its data, its lines. `shared.run_files` has
the format."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from env_server.questions import QuestionBank
from shared.dataset import data_directory
from shared.errors import DataError, DigestMismatch
from shared.models import MAX_STEP_BUDGET
from shared.run_files import RunFiles


class _TrainerConfig(BaseModel):
    step_budget: int = Field(ge=1, le=MAX_STEP_BUDGET)
    questions_path: Path
    db_dir: Path


class _Settings(BaseModel):
    """The part of config.json that a replay needs."""

    config: _TrainerConfig
    data_digest: str
    server_digest: str
    reward_version: str


@dataclass(frozen=True)
class RunFolder(RunFiles):
    """One run, with the settings that it was played by."""

    settings: _Settings

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """`DataError` where `path` is no run, or one whose settings can't be read."""
        if not path.is_dir():
            raise DataError(f"no run at {path}; name the folder of one, such as runs/latest")
        config = RunFiles(path).config
        try:
            return cls(path, _Settings.model_validate_json(config.read_bytes()))
        except OSError as error:
            raise DataError(
                f"{path} is not a run: can't read {config}: {error.strerror}"
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "not JSON"
            raise DataError(f"{config} is not a run's settings: {where}: {first['msg']}") from error

    @property
    def data_dir(self) -> Path:
        """As the trainer was given it: relative to where that ran."""
        return self.settings.config.db_dir.parent

    @property
    def train_split(self) -> str:
        """The split that was trained on."""
        return self.settings.config.questions_path.stem.removeprefix("questions_")

    def bank(self, data_dir: Path | None = None) -> QuestionBank:
        """The questions that it was played on, from `data_dir` where given. `DigestMismatch` where
        they are others."""
        place = data_directory(data_dir or self.data_dir)
        if not place.is_dir():
            said = (
                ""
                if data_dir
                else f", where {self.path} had them: name their directory with --data"
            )
            raise DataError(f"no data at {place}{said}")
        bank = QuestionBank.load(place)
        if bank.data_digest != self.settings.data_digest:
            raise DigestMismatch(
                f"the data in {place} (digest {bank.data_digest[:12]}) are not those that {self.path} was played on "
                f"(digest {self.settings.data_digest[:12]}): name these with --data"
            )
        return bank

    def train_databases(self, bank: QuestionBank) -> frozenset[str]:
        """The databases that a training question touches."""
        return frozenset(
            question.database_name for question in bank.splits.get(self.train_split, [])
        )


def read_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSON lines file. `DataError` names the `file` and the `line` that
    is none."""
    return [
        (number, _object(line, path, number))
        for number, line in enumerate(_bytes(path).splitlines(keepends=True), start=1)
    ]


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. `DataError` as of `read_rows`, with line 0."""
    return _object(_bytes(path), path, 0)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"can't read it: {error.strerror}", file=path.name, line=0) from error


def _object(text: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DataError(f"not JSON: {error}", file=path.name, line=number) from error
    if not (isinstance(value, dict) and text.endswith(b"\n")):
        raise DataError("not a whole JSON object", file=path.name, line=number)
    return value
