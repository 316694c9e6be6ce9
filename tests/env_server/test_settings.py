from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from env_server.commands import settings_error
from env_server.settings import Settings


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_description(name: str) -> None:
    description = Settings.model_fields[name].description
    assert description
    assert description.endswith(".")


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
    "bad", [{"capacity": 0}, {"port": 70_000}, {"lease_s": 0}, {"step_budget": 0}, {"no": 1}]
)
def test_invalid_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**bad)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"operator_key": "short"}, "operator_key: a key has at least 16 characters"),
        ({"capacity": 0}, "capacity is 0: it should be at least 1"),
    ],
)
def test_an_error_names_the_setting_and_never_a_key(bad: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(**bad)
    assert settings_error(caught.value) == f"{text}; see --settings"
    assert "short" not in str(caught.value)  # the traceback of `uvicorn env_server.asgi:app`


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "AGENT_KEYS", "CORS_ORIGINS", "CAPACITY"):
        monkeypatch.setenv(f"SQLENV_{name}", "")
    assert Settings() == Settings(_env_prefix="UNSET_")
