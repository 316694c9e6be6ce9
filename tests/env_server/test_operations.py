"""Settings, and the pages that list them.

The pages list every setting and variable; pages, alerts and dashboard name existing metrics.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from env_server.app import create_app
from env_server.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]
OPERATE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
ALERTS = ROOT / "docker" / "alerts.yaml"
DASHBOARD = ROOT / "docker" / "grafana" / "sqlenv.json"


@pytest.fixture(scope="module")
def families(tiny_data: Path) -> list[Metric]:
    """The metrics of a server that has played an episode and refused a request."""
    with TestClient(create_app(Settings(data_dir=tiny_data, sql_workers=1))) as client:
        client.post("/reset", json={"episode_id": "e", "seed": 1, "actions": ["ANSWER: 3"]})
        client.post("/step", json={"episode_id": "nobody", "action": "ANSWER: 3"})
        return list(text_string_to_metric_families(client.get("/metrics").text))


def counted(families: list[Metric]) -> set[str]:
    """The names that samples have."""
    return {sample.name for family in families for sample in family.samples}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:sqlenv|process)_\w+", re.sub(r'"[^"]*"', "", expression)))


def test_alerts_use_existing_metrics(families: list[Metric]) -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    read = set().union(*(metrics_in(rule["expr"]) for group in groups for rule in group["rules"]))
    assert len(read) > 8
    assert read <= counted(families)


def test_the_dashboard_uses_existing_metrics(families: list[Metric]) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    read = set().union(*(metrics_in(target["expr"]) for target in targets))
    assert len(read) > 8
    assert read <= counted(families)


# -- the pages


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_has_every_setting_with_its_default(name: str) -> None:
    default = Settings.model_fields[name].default
    shown = "unset" if default is None else str(default)
    if isinstance(default, int) and default >= 10_000:
        shown = f"{default:,}"
    elif isinstance(default, float):
        shown = f"{default:g}"
    assert re.search(
        rf"^\| `{ENV_PREFIX}{name.upper()}` \| {re.escape(shown)} \| \S", SETTINGS, re.MULTILINE
    )


def test_the_pages_have_no_unknown_setting() -> None:
    gateways = set(re.findall(r"\$\{(SQLENV_\w+)-", (ROOT / "docker" / "haproxy.cfg").read_text()))
    settings = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    written = set(re.findall(r"`(SQLENV_[A-Z_]+)`", OPERATE + SETTINGS))
    assert written <= settings | gateways
    assert gateways <= written


def test_the_page_names_existing_metrics(families: list[Metric]) -> None:
    ours = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if family.name.startswith("sqlenv_")
    }
    named = set(re.findall(r"`(sqlenv_\w+)", OPERATE))
    assert len(named) > 8
    assert named <= ours


def test_the_pages_have_every_variable_of_the_example() -> None:
    example = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    missing = [name for name in example if f"`{name}`" not in OPERATE + SETTINGS]
    assert not missing


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
