"""An evaluation's folder, written as it is played, so that an interrupted one goes on where it
stopped.

DIR/
  config.json         what was measured and how; another measurement is refused
  episodes.jsonl      one line a finished episode (`shared.run_files`), with its sample's number and its tokens
  batches.jsonl       one line a batch: episodes, those lost, seconds, and what a model server counted
  server.log          what the environment server said, where the evaluation started it
  evaluation.json     the result, made anew from the lines above

config.json and episodes.jsonl are those of a run, so `python -m env_server verify DIR` replays an
evaluation too.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.models import Outcome
from shared.run_files import EpisodeLine, LineError, RunFiles, check_seal, numbered_lines, sealed
from trainer.errors import RunError
from trainer.rollout.row import RolloutRow
from trainer.run.folder import append_lines, read_json, read_lines, write_json
from trainer.run.records import Book

Key = tuple[str, int]  # question id, number of the sample


class EvaluatedEpisode(EpisodeLine):
    """A line of an evaluation's episodes.jsonl, or of a run's."""

    sample: int = 0  # which of the question's episodes it is, from 0
    prompt_tokens: int = 0  # read by a model (`trainer.rollout.generators.base.View`)
    sampled_tokens: int = 0  # written by a model

    @property
    def key(self) -> Key:
        return self.question_id, self.sample

    @property
    def correct(self) -> bool:
        return self.outcome == Outcome.CORRECT


def line_of(row: RolloutRow, book: Book, phase: str, mode: str, sample: int) -> dict[str, Any]:
    """Return the line of a played episode."""
    line = book.episode(row).as_line(phase, mode, 0)
    del line["sha256"]
    tokens = {"prompt_tokens": row.prompt_tokens, "sampled_tokens": row.sampled_tokens}
    return sealed({**line, "sample": sample, **tokens})


def parse_line(line: bytes, where: str) -> EvaluatedEpisode:
    """The episode of a line of `where`, or `RunError`."""
    try:
        check_seal(line)
        return EvaluatedEpisode.model_validate_json(line)
    except (LineError, ValueError) as error:
        raise RunError(f"{where} is not as it was written: {str(error).splitlines()[0]}") from error


@dataclass(frozen=True)
class EvaluationFolder(RunFiles):
    """The files of one evaluation. They may not exist yet."""

    @property
    def batches(self) -> Path:
        return self.path / "batches.jsonl"

    @property
    def result(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Make the folder with these settings, or go on in one that was begun with the same.

        `RunError` names what differs. Only the number of samples may: the episodes of the others
        stay what they are.
        """
        if not self.config.exists():
            if self.path.is_dir() and any(one != self.server_log for one in self.path.iterdir()):
                raise RunError(
                    f"{self.path} is not empty, and holds no evaluation: choose another --out"
                )
            write_json(self.config, settings)
            return
        first = self.settings()
        changed = [
            f"{name} was {first['evaluation'].get(name)!r} and is {value!r}"
            for name, value in settings["evaluation"].items()
            if first["evaluation"].get(name) != value and name not in ALTERABLE
        ]
        if changed:
            raise RunError(
                f"{self.path} holds another evaluation ({'; '.join(changed)}): choose another --out, or repeat its "
                "settings"
            )
        for path in (self.episodes, self.batches):
            _cut_tail(path)

    def settings(self) -> dict[str, Any]:
        """What config.json holds. `RunError` where it is no evaluation's."""
        found = read_json(self.config)
        if not isinstance(found, dict) or not isinstance(found.get("evaluation"), dict):
            raise RunError(f"{self.path} is not an evaluation's folder: choose another --out")
        return found

    def add(self, lines: Iterable[dict[str, Any]], **batch: Any) -> None:
        """Keep a batch's finished episodes, and what it took."""
        append_lines(self.episodes, lines)
        append_lines(self.batches, [batch])

    def played(self) -> dict[Key, EvaluatedEpisode]:
        """The episodes that are kept, by question and sample."""
        return {one.key: one for one in read_episodes(self.episodes)}

    def took(self) -> dict[str, Any]:
        """The sums over all batches of all sessions: wall_s, lost, and a model server's counts."""
        total: Counter[str] = Counter()
        for batch in read_lines(self.batches):
            total.update(
                {name: value for name, value in batch.items() if isinstance(value, int | float)}
            )
        return dict(total)


# Settings of which a folder that is gone on with may have others than it began with
ALTERABLE = frozenset({"samples"})


def read_episodes(path: Path) -> list[EvaluatedEpisode]:
    """Every whole line of an episodes.jsonl, none where there is none; `RunError` names a line that
    was changed."""
    if not path.exists():
        return []
    lines = [(number, line) for number, line in numbered_lines(path) if line.endswith(b"\n")]
    return [parse_line(line, f"{path} line {number}") for number, line in lines]


def _cut_tail(path: Path) -> None:
    """Drop a last line that a crash cut short, so that the next one begins a line."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)


# What a training run's config.json says of its measurement before training
RUN_SETTINGS = (
    *("policy", "mode", "step_budget", "system_prompt", "max_new_tokens", "max_context_tokens"),
    *("data_digest", "server_digest", "model_digest"),
)


@dataclass(frozen=True)
class Measured:
    """Another measurement, to compare with: `name` for people, its data's digest, its settings, and
    of each question the share of its episodes that were right."""

    name: str
    data_digest: str
    settings: Mapping[str, Any]
    success: Mapping[str, float]


def read_measured(path: Path, mode: str) -> Measured:
    """The evaluation in the folder `path`, or of a training run's folder its measurement before
    training in `mode`.

    Also takes the path of an evaluation.json. `RunError` where it is neither, or has no finished
    episode.
    """
    files = EvaluationFolder(path.parent if path.is_file() else path)
    if not files.config.is_file():
        raise RunError(
            f"nothing to compare with at {path}: it has no config.json; name an evaluation's --out or a run"
        )
    settings = read_json(files.config)
    if not isinstance(settings, dict) or "data_digest" not in settings:
        raise RunError(
            f"{files.config} is of no evaluation and no run: name an evaluation's --out or a run"
        )
    name, what = str(path), settings.get("evaluation")
    if what is None:
        name = f"{path}, before training, {mode}"
        known = {**settings, **settings.get("config", {}), "policy": "model", "mode": mode}
        what = {one: known[one] for one in RUN_SETTINGS if one in known}
        try:
            results = [
                (str(row["question_id"]), str(row["outcome"]))
                for row in read_lines(files.episodes)
                if (row["phase"], row["mode"]) == ("before", mode)
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{files.episodes} holds what is no episode: {error}") from error
    else:
        results = [(one.question_id, one.outcome) for one in read_episodes(files.episodes)]
    success = success_rates(results)
    if not success:
        raise RunError(f"{files.episodes} has no finished episode to compare with ({name})")
    return Measured(name, str(settings["data_digest"]), what, success)


def success_rates(results: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Question id -> the share of right ones among its finished episodes, out of (question id,
    outcome)."""
    tries: dict[str, list[bool]] = {}
    for question, outcome in results:
        if outcome != Outcome.INFRA_FAILED:
            tries.setdefault(question, []).append(outcome == Outcome.CORRECT)
    return {question: sum(right) / len(right) for question, right in tries.items()}
