"""The fixtures of `tests.trainer`, which these tests use."""

from tests.trainer.conftest import *  # noqa: F403
