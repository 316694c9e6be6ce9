"""The training tests' tiny model and its settings."""

from tests.trainer.conftest import config, model, tokenizer

__all__ = ["config", "model", "tokenizer"]
