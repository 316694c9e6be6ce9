"""Errors that the trainer raises on purpose; the command line prints them as one line.

    SQLEnvError
    ├── ConfigError        a setting that can't work; also a ValueError
    ├── PromptError        a prompt without a question, or a chat template that can't be used
    ├── ModelLoadError     a model or tokenizer that can't be loaded
    ├── OutOfMemory        memory ran out
    ├── ModelServerError   an OpenAI-compatible server can't be reached, refuses, or lacks the model
    ├── PlayError          a question or setting of `play` that can't be played
    ├── RankLost           another process of the run ended; the others stop
    ├── RolloutError       infrastructure lost too many episodes of a batch; the run stops
    ├── RunError           a run's folder that can't be made, read or resumed
    ├── ServerStartError   the environment server that a run started did not become ready
    └── TrainingDiverged   the loss or the gradient is not finite; the run stops before the update

Messages name the value and the remedy. Errors of data and of servers are in `shared.errors`.
"""

from shared.errors import SQLEnvError


class ConfigError(SQLEnvError, ValueError):
    """`details`: field, the name of the setting."""

    code = "config"


class PromptError(SQLEnvError, ValueError):
    code = "prompt"


class ModelLoadError(SQLEnvError):
    code = "model_load"


class OutOfMemory(SQLEnvError):
    """`details`: doing, the work that ran out of memory."""

    code = "out_of_memory"


class ModelServerError(SQLEnvError):
    code = "model_server"


class PlayError(SQLEnvError):
    code = "play"


class RankLost(SQLEnvError):
    code = "rank_lost"


class RolloutError(SQLEnvError):
    """`details`: lost and episodes, their numbers."""

    code = "rollout"


class RunError(SQLEnvError):
    code = "run"


class ServerStartError(SQLEnvError):
    """The message includes the end of the server's log."""

    code = "server_start"


class TrainingDiverged(SQLEnvError):
    code = "training_diverged"
