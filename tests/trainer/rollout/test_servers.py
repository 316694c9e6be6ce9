"""The wait for the first environment server."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from shared.errors import ServerUnreachable
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.rollout import servers


@pytest.mark.parametrize("away", [0, 2])
def test_the_first_server_is_waited_for(
    away: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each round has a client of its own, so that names are looked up again."""
    rounds: list[float] = []
    there = SimpleNamespace(data_digest="digest", standard="strict")

    class Client:
        def __init__(self, urls: list[str]) -> None:
            assert urls == ["http://env-server:8000"]

        def sync(self) -> "Client":
            return self

        def __enter__(self) -> "Client":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def wait_ready(self, timeout_s: float) -> None:
            rounds.append(timeout_s)
            if len(rounds) <= away:
                raise ServerUnreachable("nobody answers", url="http://env-server:8000")

        def metadata(self) -> Any:
            return there

    monkeypatch.setattr(servers, "SQLEnvClient", Client)
    config = GRPOConfig().override(server_urls="http://env-server:8000")
    with caplog.at_level(logging.WARNING):
        assert servers.check_servers(config, "digest") is there
    assert rounds == [servers.ROUND_S] * (away + 1)
    said = [line for line in caplog.messages if "waiting up to 600 s" in line]
    assert len(said) == away
    with pytest.raises(ConfigError, match="--standard spider"):
        servers.check_servers(config.override(standard="spider"), "digest")
