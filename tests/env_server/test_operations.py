"""Settings and metrics, and the pages, alerts and dashboard that name them."""

import json
import re
from pathlib import Path

import httpx
import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from env_server.app import create_app
from env_server.settings import ENV_PREFIX, Settings
from tests.env_server.http.conftest import AGENT, OPERATOR, TRAINER, bearer, serving

ROOT = Path(__file__).parents[2]
OPERATE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "server-settings.md").read_text(encoding="utf-8")
ALERTS = ROOT / "docker" / "alerts.yaml"
DASHBOARD = ROOT / "docker" / "grafana" / "sqlenv.json"


@pytest.fixture(scope="module")
def families(tiny_data: Path) -> list[Metric]:
    with TestClient(create_app(Settings(data_dir=tiny_data, sql_workers=1))) as client:
        client.post("/reset", json={"episode_id": "e", "seed": 1, "actions": ["ANSWER: 3"]})
        client.post("/step", json={"episode_id": "nobody", "action": "ANSWER: 3"})
        return list(text_string_to_metric_families(client.get("/metrics").text))


def counted(families: list[Metric]) -> set[str]:
    return {sample.name for family in families for sample in family.samples}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:sqlenv|process)_\w+", re.sub(r'"[^"]*"', "", expression)))


def test_alerts_use_existing_metrics(families):
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    read = set().union(*(metrics_in(rule["expr"]) for group in groups for rule in group["rules"]))
    assert len(read) > 8
    assert read <= counted(families)


def test_the_dashboard_uses_existing_metrics(families):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    read = set().union(*(metrics_in(target["expr"]) for target in targets))
    assert len(read) > 8
    assert read <= counted(families)


# -- the pages


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_has_every_setting_with_its_default(name):
    default = Settings.model_fields[name].default
    shown = "unset" if default is None else str(default)
    if isinstance(default, int) and default >= 10_000:
        shown = f"{default:,}"
    elif isinstance(default, float):
        shown = f"{default:g}"
    assert re.search(
        rf"^- `{ENV_PREFIX}{name.upper()}` \({re.escape(shown)}\): \S", SETTINGS, re.MULTILINE
    )


def test_the_pages_have_no_unknown_setting():
    files = [(ROOT / "docker" / f"{name}.cfg").read_text() for name in ("haproxy", "servers")]
    gateways = set(re.findall(r"\$\{(SQLENV_\w+)(?:\[\*\])?-", "".join(files)))
    settings = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    written = set(re.findall(r"`(SQLENV_[A-Z_]+)`", OPERATE + SETTINGS))
    assert written <= settings | gateways
    assert gateways <= written


def test_the_page_names_existing_metrics(families):
    ours = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if family.name.startswith("sqlenv_")
    }
    named = set(re.findall(r"`(sqlenv_\w+)", OPERATE))
    assert len(named) > 8
    assert named <= ours


def test_the_pages_have_every_variable_of_the_example():
    example = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    missing = [name for name in example if f"`{name}`" not in OPERATE + SETTINGS]
    assert not missing


def test_the_environment_sets_settings(monkeypatch):
    monkeypatch.setenv("SQLENV_CAPACITY", "5")
    monkeypatch.setenv("SQLENV_DATA_DIR", "/some/where")
    assert (Settings().capacity, Settings().data_dir) == (5, Path("/some/where"))
    assert Settings(capacity=6).capacity == 6, "arguments override the environment"


@pytest.mark.parametrize(
    "bad", [{"capacity": 0}, {"port": 70_000}, {"operator_key": "short"}, {"no": 1}]
)
def test_invalid_settings_are_refused(bad):
    with pytest.raises(ValidationError, match=next(iter(bad))) as caught:
        Settings(**bad)
    assert "short'" not in str(caught.value)  # a key is in no message


def test_an_empty_variable_counts_as_unset(monkeypatch):
    for name in ("API_KEY", "AGENT_KEYS", "OPERATOR_KEY", "CAPACITY"):
        monkeypatch.setenv(f"SQLENV_{name}", "")
    assert Settings() == Settings(_env_prefix="UNSET_")


# -- /metrics after a known history

small = pytest.mark.parametrize("settings", [{"capacity": 3}])


async def read(http: httpx.AsyncClient) -> dict[str, float]:
    """Samples by `name{label=value}`."""
    reply = await http.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(reply.text):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


@pytest.mark.anyio
@small
async def test_counts_after_a_known_history(http, app, question):
    reset = {"question_id": question.question_id, "step_budget": 3}
    table = question.tables_involved[0]
    await http.post("/reset", json=reset | {"episode_id": "a"})
    played = [f"DESCRIBE: {table}", f"QUERY: {question.gold_sql}", "ANSWER: no"]
    for step, action in enumerate(played):
        for _ in range(2):  # the second is a repeat
            body = {"episode_id": "a", "action": action, "step": step}
            assert (await http.post("/step", json=body)).status_code == 200
    replayed = {"episode_id": "b", "actions": [f"SAMPLE: {table}", "QUERY: SELECT 1"]}
    await http.post("/reset", json=reset | replayed)
    # the last step of its budget
    await http.post("/step", json={"episode_id": "b", "action": "QUERY: SELECT 2"})
    await http.post("/reset", json=reset | {"episode_id": "c"})
    await http.delete("/episodes/c")
    await http.post("/reset", json=reset | {"episode_id": "d"})

    seen = await read(http)
    outcomes = {"correct": 0, "wrong": 1, "budget": 1, "abandoned": 1, "answered": 0}
    for outcome, count in (outcomes | {"sql_killed": 0}).items():
        assert seen[f"sqlenv_episodes_ended_total{{outcome={outcome}}}"] == count
    actions = ("describe", "sample", "query", "answer")
    taken = [seen[f"sqlenv_steps_total{{action={name},key=none}}"] for name in actions]
    assert taken == [1, 0, 2, 1]
    assert seen["sqlenv_step_seconds_count{action=query}"] == 2
    assert seen["sqlenv_step_seconds_sum{action=query}"] > 0
    assert seen["sqlenv_steps_repeated_total"] == 3
    assert seen["sqlenv_episodes_started_total"] == 4
    assert seen["sqlenv_episodes_rebuilt_total"] == 1
    assert seen["sqlenv_steps_replayed_total"] == 2
    gauges = {"leases": 1, "key_leases{key=none}": 1, "capacity": 3, "in_flight": 0}
    for name, value in (gauges | {"sql_queue_depth": 0, "sql_workers_up": 1}).items():
        assert seen[f"sqlenv_{name}"] == value
    assert seen["sqlenv_sql_jobs_total"] > 4
    assert seen["sqlenv_request_seconds_count{path=/step}"] == 7
    assert seen["sqlenv_request_seconds_count{path=/episodes/{episode_id}}"] == 1


@pytest.mark.anyio
async def test_each_key_has_its_counts_and_none_is_shown(tiny_data):
    keys = {"trainer-1": TRAINER, "trainer-2": f"new-{TRAINER}", "agent-1": AGENT}
    settings = {"api_key": f"{TRAINER},new-{TRAINER}", "agent_keys": AGENT}
    async with serving(tiny_data, **settings, operator_key=OPERATOR) as http:
        for name, key in keys.items():
            body = {"episode_id": name, "question_id": "shop-1"}
            await http.post("/reset", json=body, headers=bearer(key))
        for key in (AGENT, f"new-{TRAINER}", f"new-{TRAINER}", f"wrong-{TRAINER}"):
            step = {"episode_id": "trainer-1", "action": "QUERY: SELECT 1"}
            await http.post("/step", json=step, headers=bearer(key))
        http.headers.update(bearer(OPERATOR))
        seen = await read(http)
        text = (await http.get("/metrics")).text
    requests = {"trainer-1": 1, "trainer-2": 3, "agent-1": 2, "operator": 1}
    for name, count in requests.items():
        assert seen[f"sqlenv_requests_total{{key={name}}}"] == count
    assert seen["sqlenv_key_leases{key=trainer}"] == 2
    assert seen["sqlenv_key_leases{key=agent-1}"] == 1
    assert seen["sqlenv_steps_total{action=query,key=trainer}"] == 2
    assert seen["sqlenv_errors_total{code=unauthorized}"] == 1
    assert TRAINER not in text
    assert AGENT not in text


@pytest.mark.anyio
@small
async def test_a_copy_of_an_episode_that_ended_elsewhere_is_not_an_abandoned_one(http, question):
    reset = {"question_id": question.question_id, "step_budget": 1}
    for name in ("copy", "ended", "closed"):
        await http.post("/reset", json=reset | {"episode_id": name})
    await http.post("/step", json={"episode_id": "ended", "action": "QUERY: SELECT 1"})
    for name in ("copy", "ended"):
        assert (await http.delete(f"/episodes/{name}?moved=1")).status_code == 200
    await http.delete("/episodes/closed")
    seen = await read(http)
    assert seen["sqlenv_leases"] == 0
    assert seen["sqlenv_episodes_moved_total"] == 1
    assert seen["sqlenv_episodes_ended_total{outcome=abandoned}"] == 1
    assert (await http.get("/state?episode_id=ended")).status_code == 200, "its reply is kept"
    assert (await http.get("/state?episode_id=copy")).status_code == 404


@pytest.mark.anyio
@small
async def test_errors_are_counted_by_code_including_batch_items(http):
    # an alert on an increase needs the number before the first error
    assert (await read(http))["sqlenv_errors_total{code=internal}"] == 0
    for name in "abcd":  # the fourth is over the capacity
        await http.post("/reset", json={"episode_id": name})
    steps = [{"episode_id": "x", "action": "QUERY: SELECT 1"}, {}, 7]
    await http.post("/step_batch", json={"steps": steps})
    for path in ("/no/such/path", "/step/three"):
        await http.get(path)
    seen = await read(http)
    counts = {"capacity": 1, "unknown_episode": 1, "invalid_request": 2, "not_found": 2}
    for code, count in counts.items():
        assert seen[f"sqlenv_errors_total{{code={code}}}"] == count
    assert seen["sqlenv_request_seconds_count{path=other}"] == 2, "clients create no labels"
