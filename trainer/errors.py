"""What the trainer raises on purpose. All are `SQLEnvError`s, so that the CLI prints one line and
exits non-zero.

    SQLEnvError
    ├── ConfigError            a setting that can't work: names the field and the remedy (also a ValueError)
    ├── PromptError            a prompt that names no question, or a chat template that the rollout can't use
    ├── ModelLoadError         a model or tokenizer that can't be loaded: names the path and the remedy
    ├── OutOfMemory            memory ran out: the numbers in force, and settings that take less
    ├── ModelServerError       an OpenAI-compatible server that can't be reached, refuses, or has no such model
    ├── PlayError              a question or a setting of `play` that can't be played: names it and the remedy
    ├── RankLost               another process of a run of several is gone: the others stop
    ├── RolloutError           too many episodes of a batch were lost to infrastructure: the run stops
    ├── RunError               a run's folder that can't be made, read or resumed
    └── TrainingDiverged       the loss or the gradient is no longer a number: the run stops before the update

Errors of data and of servers are in shared.errors.
"""

from shared.errors import SQLEnvError


class ConfigError(SQLEnvError, ValueError):
    code = "config"


class PromptError(SQLEnvError, ValueError):
    code = "prompt"


class ModelLoadError(SQLEnvError):
    code = "model_load"


class OutOfMemory(SQLEnvError):
    """`details`: doing, what was under way."""

    code = "out_of_memory"


class ModelServerError(SQLEnvError):
    code = "model_server"


class PlayError(SQLEnvError):
    code = "play"


class RankLost(SQLEnvError):
    code = "rank_lost"


class RolloutError(SQLEnvError):
    """`details`: lost, episodes, and the first error's text."""

    code = "rollout"


class RunError(SQLEnvError):
    code = "run"


class TrainingDiverged(SQLEnvError):
    code = "training_diverged"
