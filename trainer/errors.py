"""Errors that the trainer raises on purpose; the command line prints them as one line.

Messages name the value and the remedy. `ConfigError` is in `trainer.config.settings`, those of data
and of servers are in `shared.errors`; so is `ActionParseError`, which a strict parse of a text
raises.
"""

import errno
from pathlib import Path

from shared.errors import ActionParseError as ActionParseError
from shared.errors import SQLEnvError


class PromptError(SQLEnvError, ValueError, code="prompt"):
    """A prompt has no question, or a chat template cannot be used."""


class ModelLoadError(SQLEnvError, code="model_load"):
    """A model or tokenizer cannot be loaded."""


class OOMError(SQLEnvError, code="out_of_memory"):
    """Memory ran out."""


class ModelServerError(SQLEnvError, code="model_server"):
    """An OpenAI-compatible server cannot be reached, refuses, or lacks the model."""


class PlayError(SQLEnvError, code="play"):
    """A question or setting of `play` cannot be played."""


class RankLost(SQLEnvError, code="rank_lost"):
    """Another process of the run ended; the others stop."""


class RolloutError(SQLEnvError, code="rollout"):
    """Infrastructure lost too many episodes. `details`: lost and episodes, their numbers."""


class RunError(SQLEnvError, code="run"):
    """A run's folder cannot be created, read or resumed."""


class TrainingDiverged(SQLEnvError, code="training_diverged"):
    """The loss or the gradient is not finite; the run stops before the update."""


def storage_problem(error: BaseException, folder: Path | None = None) -> str | None:
    """Return one line about a disk that ended a command, with its remedy; None for other errors.
    Not all libraries raise an `OSError` for a full disk."""
    where = folder or getattr(error, "filename", None) or "the output folder"
    number, text = getattr(error, "errno", None), str(error)
    full = ("No space left", "os error 28", "PytorchStreamWriter", "unexpected pos")
    if number in (errno.ENOSPC, errno.EDQUOT) or any(part in text for part in full):
        return f"the disk of {where} is full: free some space there"
    if number == errno.EROFS:
        return f"{where} is on a read-only file system: mount it for writing"
    if number in (errno.ESTALE, errno.EIO):
        return f"the disk of {where} fails ({error}): check its mount or volume"
    if folder is not None and number == errno.ENOENT and not (folder / "config.json").exists():
        return f"{folder} was removed during the run: restore it, or begin a new run"
    return None
