"""Errors that the trainer raises on purpose; the command line prints them as one line.

Messages name the value and the remedy. Errors of data and of servers are in `shared.errors`;
`ActionParseError`, which a strict parse of a model's text raises too, is one of them.
"""

from shared.errors import ActionParseError as ActionParseError
from shared.errors import SQLEnvError


class ConfigError(SQLEnvError, ValueError, code="config"):
    """A setting cannot work. `details`: field, the name of the setting."""


class PromptError(SQLEnvError, ValueError, code="prompt"):
    """A prompt has no question, or a chat template cannot be used."""


class ModelLoadError(SQLEnvError, code="model_load"):
    """A model or tokenizer cannot be loaded."""


class OOMError(SQLEnvError, code="out_of_memory"):
    """Memory ran out. `details`: doing, the work that ran out of memory."""


class ModelServerError(SQLEnvError, code="model_server"):
    """An OpenAI-compatible server cannot be reached, refuses, or lacks the model."""


class PlayError(SQLEnvError, code="play"):
    """A question or setting of `play` cannot be played."""


class RankLost(SQLEnvError, code="rank_lost"):
    """Another process of the run ended; the others stop."""


class RolloutError(SQLEnvError, code="rollout"):
    """Infrastructure lost too many episodes of a batch; the run stops.

    `details`: lost and episodes, their numbers.
    """


class RunError(SQLEnvError, code="run"):
    """A run's folder cannot be created, read or resumed."""


class TrainingDiverged(SQLEnvError, code="training_diverged"):
    """The loss or the gradient is not finite; the run stops before the update."""
