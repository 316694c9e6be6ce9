from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from env_server.settings import Settings


def test_names_end_in_their_units() -> None:
    for name, field in Settings.model_fields.items():
        words = (field.description or "").split()
        assert name.endswith("_s") == (words[0] == "Seconds"), name
        assert name.endswith("_bytes") == (words[0] == "Bytes"), name


def test_the_environment_sets_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLENV_CAPACITY", "5")
    monkeypatch.setenv("SQLENV_DATA_DIR", "/some/where")
    assert (Settings().capacity, Settings().data_dir) == (5, Path("/some/where"))
    assert Settings(capacity=6).capacity == 6, "arguments override the environment"


@pytest.mark.parametrize(
    "bad", [{"capacity": 0}, {"port": 70_000}, {"operator_key": "short"}, {"no": 1}]
)
def test_invalid_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))) as caught:
        Settings(**bad)
    assert "short'" not in str(caught.value)  # a key is in no message


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "AGENT_KEYS", "OPERATOR_KEY", "CAPACITY"):
        monkeypatch.setenv(f"SQLENV_{name}", "")
    assert Settings() == Settings(_env_prefix="UNSET_")
