"""docs/scaling-ops.md lists every setting, variable and metric; alerts and dashboard use existing
metrics."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from env_server.app import create_app
from env_server.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling-ops.md").read_text(encoding="utf-8")
ALERTS = ROOT / "docker" / "alerts.yaml"
DASHBOARD = ROOT / "docker" / "grafana" / "sqlenv.json"
PROMTOOL = shutil.which("promtool")
# not among Prometheus's base units
UNITS = ("milliseconds", "minutes", "kilobytes", "mebibytes", "percent")


async def played(data_dir: Path) -> str:
    """`/metrics` of a server that has played an episode and refused a request."""
    app = create_app(Settings(data_dir=data_dir, sql_workers=1))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://env") as http,
    ):
        await http.post(
            "/reset", json={"episode_id": "e", "seed": 1, "actions": ["QUERY: SELECT 1"]}
        )
        for action in ("QUERY: SELECT 2", "ANSWER: 3"):
            assert (
                await http.post("/step", json={"episode_id": "e", "action": action})
            ).status_code == 200
        await http.post("/step", json={"episode_id": "nobody", "action": "ANSWER: 3"})
        return (await http.get("/metrics")).text


@pytest.fixture(scope="module")
def text(tiny_data: Path) -> str:
    return asyncio.run(played(tiny_data))


@pytest.fixture
def families(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))


def counted(families: list[Metric]) -> set[str]:
    """The names that samples have."""
    return {sample.name for family in families for sample in family.samples}


# -- Prometheus


def test_the_text_follows_prometheus_conventions(text: str, families: list[Metric]) -> None:
    assert text.endswith("\n")
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    samples = [
        (one.name, tuple(sorted(one.labels.items())))
        for family in families
        for one in family.samples
    ]
    assert len(samples) == len(set(samples)), "Prometheus refuses duplicate samples"
    for family in families:
        assert re.fullmatch(r"(sqlenv|process)_[a-z_]*[a-z]", family.name)
        assert family.documentation
        assert not any(unit in family.name for unit in UNITS)
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert all(re.fullmatch(r"[a-z_]+", label) for label in sample.labels)


def test_histogram_buckets_are_cumulative(families: list[Metric]) -> None:
    histograms = [family for family in families if family.type == "histogram"]
    assert {family.name for family in histograms} == {
        "sqlenv_step_seconds",
        "sqlenv_request_seconds",
    }
    for family in histograms:
        series: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        counts = {}
        for sample in family.samples:
            key = tuple(value for name, value in sorted(sample.labels.items()) if name != "le")
            if sample.name.endswith("_bucket"):
                series.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
            elif sample.name.endswith("_count"):
                counts[key] = sample.value
        assert any(counts.values())
        for key, buckets in series.items():
            assert buckets == sorted(buckets)
            assert [value for _, value in buckets] == sorted(value for _, value in buckets)
            assert buckets[-1] == (float("inf"), counts[key])


def test_the_buckets_exceed_the_request_timeout(families: list[Metric]) -> None:
    bounds = {
        float(sample.labels["le"])
        for family in families
        if family.name == "sqlenv_request_seconds"
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    assert max(bounds - {float("inf")}) > Settings().request_timeout_s


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine")
def test_promtool_finds_no_problem(text: str) -> None:
    assert PROMTOOL is not None
    metrics = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (metrics.returncode, metrics.stdout, metrics.stderr) == (0, "", "")
    rules = subprocess.run(
        [PROMTOOL, "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60
    )
    assert rules.returncode == 0, rules.stderr


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:sqlenv|process)_\w+", re.sub(r'"[^"]*"', "", expression)))


def test_alerts_use_existing_metrics(families: list[Metric]) -> None:
    rules = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    read: set[str] = set()
    for rule in rules:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        read |= metrics_in(rule["expr"])
    assert len(read) > 8
    assert read <= counted(families)


def test_the_dashboard_uses_existing_metrics(families: list[Metric]) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    read = set().union(*(metrics_in(target["expr"]) for target in targets))
    assert read <= counted(families)
    # episodes, outcomes, latency, queue, SQL kills
    assert read >= {
        "sqlenv_leases", "sqlenv_episodes_ended_total", "sqlenv_step_seconds_bucket",
        "sqlenv_sql_queue_depth", "sqlenv_sql_kills_total",
    }  # fmt: skip


# -- the page


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_has_every_setting_with_its_default(name: str) -> None:
    default = Settings.model_fields[name].default
    shown = "unset" if default is None else str(default)
    if isinstance(default, int) and default >= 10_000:
        shown = f"{default:,}"
    elif isinstance(default, float):
        shown = f"{default:g}"
    assert re.search(
        rf"^\| `{ENV_PREFIX}{name.upper()}` \| {re.escape(shown)} \| \S", PAGE, re.MULTILINE
    )


def test_the_page_has_no_unknown_setting() -> None:
    gateways = set(re.findall(r"\$\{(SQLENV_\w+)-", (ROOT / "docker" / "haproxy.cfg").read_text()))
    settings = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    trainers = {"SQLENV_SERVER_URL"}
    assert set(re.findall(r"`(SQLENV_[A-Z_]+)`", PAGE)) == settings | gateways | trainers


def test_the_page_has_every_metric_and_no_other(families: list[Metric]) -> None:
    ours = {
        family.name
        + ("_total" if family.type == "counter" else "_info" if family.type == "info" else "")
        for family in families
        if family.name.startswith("sqlenv_") and not family.name.endswith("_created")
    }
    assert set(re.findall(r"^\| `(sqlenv_\w+)", PAGE, re.MULTILINE)) == ours


def test_the_page_has_every_variable_of_the_example() -> None:
    example = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    missing = [name for name in example if f"`{name}`" not in PAGE]
    assert not missing
