"""compose.monitoring.yaml and its dashboard, with a real Prometheus where there is one."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from shared.server_process import running_server
from tests.chaos.cluster import free_ports
from tests.conftest import needs_program

ROOT = Path(__file__).parents[2]
OVERLAY = yaml.safe_load((ROOT / "compose.monitoring.yaml").read_text())
DASHBOARD = json.loads((ROOT / "docker" / "grafana" / "sqlenv.json").read_text())
EXPRESSIONS = [
    target["expr"].replace("$__rate_interval", "10s").replace("$__range", "1m")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
KEY = "k" * 24
MISSING = None if shutil.which("prometheus") else "no prometheus on this machine"


def configuration(port: int) -> dict[str, Any]:
    """Return the overlay's configuration of Prometheus, for one server without a name server."""
    text = OVERLAY["configs"]["prometheus"]["content"]
    found: dict[str, Any] = yaml.safe_load(text.replace("${SQLENV_OPERATOR_KEY:-none}", KEY))
    jobs = found["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["sqlenv-env-server", "sqlenv-gateway"]
    del jobs[1], jobs[0]["dns_sd_configs"]
    jobs[0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    found["global"]["scrape_interval"] = "500ms"
    return found


@needs_program("prometheus", MISSING)
@pytest.mark.slow
def test_every_panel_has_data_and_the_alerts_are_loaded(tiny_data, tmp_path):
    (port,) = free_ports(1)
    shutil.copy(ROOT / "docker" / "alerts.yaml", tmp_path)
    config, log = tmp_path / "prometheus.yaml", (tmp_path / "log").open("w")
    options = [f"--storage.tsdb.path={tmp_path}/db", f"--web.listen-address=127.0.0.1:{port}"]
    with running_server(tiny_data, operator_key=KEY) as server:
        config.write_text(yaml.safe_dump(configuration(server.port)))
        command = ["prometheus", f"--config.file={config}", *options]
        with subprocess.Popen(command, stderr=log) as process, log:
            key = {"Authorization": f"Bearer {KEY}"}
            env = httpx.Client(base_url=server.url, headers=key, timeout=30)
            api = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30)

            def empty() -> list[str]:
                try:
                    found = {
                        one: api.get("/query", params={"query": one}).json() for one in EXPRESSIONS
                    }
                except httpx.TransportError:
                    return EXPRESSIONS  # it starts
                assert {reply["status"] for reply in found.values()} == {"success"}
                return [one for one, reply in found.items() if not reply["data"]["result"]]

            try:
                for round_ in range(120):
                    episode = f"e{round_}"
                    env.post("/reset", json={"episode_id": episode, "seed": 1})
                    for action in ("QUERY: SELECT 1", "ANSWER: 3", "ANSWER: 3"):
                        env.post("/step", json={"episode_id": episode, "action": action})
                    missing = empty()
                    if not missing:
                        break
                    time.sleep(0.5)
                # that share is of questions answered rightly, of which there are none
                assert [one for one in missing if '"correct"' not in one] == []
                (group,) = api.get("/rules").json()["data"]["groups"]
                assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
                assert len(group["rules"]) > 8
            finally:
                process.terminate()


def test_grafana_finds_the_data_source_and_the_dashboard():
    (source,) = yaml.safe_load(OVERLAY["configs"]["datasource"]["content"])["datasources"]
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
    (provider,) = yaml.safe_load(OVERLAY["configs"]["dashboards"]["content"])["providers"]
    grafana = OVERLAY["services"]["grafana"]
    folder = provider["options"]["path"]
    assert any(one.startswith(f"./docker/grafana:{folder}:ro") for one in grafana["volumes"])
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/sqlenv.json"
    host = re.findall(r"//(\w+):", source["url"])
    assert host == ["prometheus"]
    assert set(host) <= set(OVERLAY["services"])
