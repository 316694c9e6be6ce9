"""The folder of an evaluation, written while it is played, so that an interrupted one can resume.

config.json and episodes.jsonl have the format of a run's. docs/evaluate.md lists the files.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.run_files import EVALUATION, InFolder, LineError, RunFiles, check_seal, numbered_lines
from trainer.errors import RunError
from trainer.evaluation.analysis import EvaluatedEpisode, success_shares
from trainer.run.folder import OBSERVATIONS, SERVER_LOG, begin_or_resume, read_json
from trainer.run.records import EpisodeRecord, drop_observations, read_observations

Key = tuple[str, int]  # question id, number of the sample


def deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, of config.json, that a resumed evaluation must keep."""
    kept = settings.get("evaluation", {})
    return {name: value for name, value in kept.items() if name != "samples"}


@dataclass(frozen=True)
class EvaluationFolder(RunFiles):
    """The files of one evaluation. They may not exist yet."""

    result = InFolder(EVALUATION)
    observations = InFolder(OBSERVATIONS)
    server_log = InFolder(SERVER_LOG)

    def start(self, settings: Mapping[str, Any]) -> None:
        """Create the folder with these settings, or resume one that has the same.

        `RunError` names the settings that differ. Only the number of samples may.
        """
        begin_or_resume(self.config, settings, deciding)
        if self.episodes.exists():  # without a last line that a crash cut
            os.truncate(self.episodes, self.episodes.read_bytes().rfind(b"\n") + 1)
        drop_observations(self.observations, 0)  # of a batch that a crash cut

    def played(self) -> dict[Key, EvaluatedEpisode]:
        """Return the stored episodes by question and sample."""
        return {one.key: one for one in read_episodes(self.episodes)}

    def records(self) -> list[EpisodeRecord]:
        """Return the episodes in the order of their questions, with what their agents read."""
        seen = {
            (one["question_id"], one.get("sample", 0)): one["observations"]
            for one in read_observations(self.observations)
        }
        return [
            EpisodeRecord.of_line(one.model_dump(), seen.get(one.key))
            for one in sorted(read_episodes(self.episodes), key=lambda one: one.key)
        ]


def read_episodes(path: Path) -> list[EvaluatedEpisode]:
    """Read every complete line of an episodes.jsonl, none if it is missing.

    `RunError` names a line that was changed.
    """
    episodes = []
    for number, line in numbered_lines(path) if path.exists() else ():
        if line.endswith(b"\n"):
            try:
                check_seal(line)
                episodes.append(EvaluatedEpisode.model_validate_json(line))
            except (LineError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise RunError(
                    f"{path} line {number} is not as it was written: {reason}"
                ) from error
    return episodes


@dataclass(frozen=True)
class Measured:
    """Another measurement to compare with. `success` is by question, the share of its episodes."""

    name: str
    settings: Mapping[str, Any]
    success: Mapping[str, float]


def read_measured(path: Path) -> Measured:
    """Read the evaluation in a folder; `RunError` if there is none, or no finished episode."""
    files = EvaluationFolder(path)
    saved = read_json(files.config) if files.config.is_file() else {}
    if "evaluation" not in saved:
        raise RunError(f"no evaluation at {path}: name the --out of one")
    episodes = read_episodes(files.episodes)
    success = success_shares(episodes)
    if not success:
        raise RunError(f"{files.episodes} has no finished episode")
    return Measured(str(path), saved["evaluation"], success)


def mixed_questions(path: Path) -> list[str]:
    """Return the ids of the training questions that an evaluation got right in some of their
    episodes, but not in all; `RunError` if there are none."""
    found = read_measured(path)
    remedy = "make it with 'python -m trainer evaluate --split train --samples 8'"
    if found.settings["split"] != "train":
        raise RunError(f"{path} has no training questions: {remedy}")
    mixed = sorted(name for name, share in found.success.items() if 0 < share < 1)
    if not mixed:
        raise RunError(f"no question at {path} has both right and wrong episodes: {remedy}")
    return mixed
