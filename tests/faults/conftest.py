"""The training tests' tiny model and its settings."""

from tests.training.conftest import config, model, tokenizer

__all__ = ["config", "model", "tokenizer"]
