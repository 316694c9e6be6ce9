"""docker/k8s: each object against the schema of the Kubernetes API, and against the others."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from env_server.settings import ENV_PREFIX, Settings
from trainer.config.presets import NEEDS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "k8s"
VERSIONS = ["1.31", "1.33", "1.37"]
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS = [
    one
    for name in KUSTOMIZATION["resources"]
    for one in yaml.safe_load_all((FOLDER / name).read_text())
]
NAMES = [f"{one['kind']}/{one['metadata']['name']}" for one in OBJECTS]
OPTIONS = re.findall(r"^  # - ([\w-]+)", (FOLDER / "kustomization.yaml").read_text(), re.MULTILINE)
ALL_OPTIONS = [name for name in OPTIONS if name != "data-claim"]  # of the two, one can be used
SETS = {"none": [], **{name: [name] for name in OPTIONS}, "all": ALL_OPTIONS}
CUSTOM = {
    one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for one in yaml.safe_load((ROOT / "tests" / "docker" / "prometheus_operator.yaml").read_text())[
        "items"
    ]
}
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="no kubectl on this machine"
)


def the(kind: str, name: str, objects: list[dict[str, Any]] = OBJECTS) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name)
    return dict(found)


def pods(objects: list[dict[str, Any]] = OBJECTS) -> dict[str, dict[str, Any]]:
    found = {}
    for one in objects:
        spec = one.get("spec", {})
        if one["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if one["kind"] in ("Deployment", "CronJob"):
            found[one["metadata"]["name"]] = spec["template"]
        if one["kind"] == "Pod":
            found[one["metadata"]["name"]] = one
    return found


def selected(labels: dict[str, str]) -> list[str]:
    return [
        name for name, pod in pods().items() if labels.items() <= pod["metadata"]["labels"].items()
    ]


def enable(folder: Path, options: list[str], **settings: str) -> Path:
    """Return a copy of docker/k8s in `folder` with these components and settings."""
    copied = shutil.copytree(FOLDER, folder / "k8s")
    path = copied / "kustomization.yaml"
    text = path.read_text()
    for name in options:
        text = text.replace(f"  # - {name} #", f"  - {name} #")  # as an operator does
    path.write_text(text)
    path = copied / "settings" / "settings.env"
    text = path.read_text()
    for name, value in settings.items():
        text = re.sub(rf"^{name}=.*", f"{name}={value}", text, flags=re.MULTILINE)
    path.write_text(text)
    return copied


def build(folder: Path) -> list[dict[str, Any]]:
    result = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without unknown fields, as the API server validates."""
    found = {key: strict(one) if isinstance(one, dict) else one for key, one in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found["additionalProperties"] = False
    return found


def validate(one: dict[str, Any], version: str) -> None:
    _validate(json.dumps(one, sort_keys=True), version)


@cache  # most objects are the same with all options
def _validate(text: str, version: str) -> None:
    one = json.loads(text)
    if one["kind"] in CUSTOM:
        body = {key: one[key] for key in one if key not in ("apiVersion", "kind", "metadata")}
        jsonschema.validate(body, strict(CUSTOM[one["kind"]]))
    else:
        kubernetes_validate.validate(one, version, strict=True)


def test_every_file_is_a_resource_once():
    found = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(KUSTOMIZATION["resources"]) == sorted(found)
    assert len(set(NAMES)) == len(NAMES)
    folders = {path.parent.name for path in FOLDER.glob("*/kustomization.yaml")}
    assert folders == {*OPTIONS, *KUSTOMIZATION["components"], "results"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("index", range(len(OBJECTS)), ids=NAMES)
def test_an_object_matches_the_schema_of_the_api(index, version):
    validate(OBJECTS[index], version)


@needs_kubectl
@pytest.mark.parametrize("options", SETS.values(), ids=SETS)
def test_kustomize_builds_valid_objects(tmp_path, options):
    settings = {"REGISTRY": "localhost:5000/me", "TAG": "v2", "CLUSTER_DOMAIN": "example.org"}
    built = build(enable(tmp_path, options, **settings))
    names = [f"{one['kind']}/{one['metadata']['name']}" for one in built]
    added = {"autoscale": 1, "monitoring": 3}
    assert len(names) == len(NAMES) + sum(added.get(name, 0) for name in options)
    assert set(names) >= set(NAMES)
    for one in built:
        for version in VERSIONS:
            validate(one, version)
        assert one["metadata"].get("namespace", "sqlenv") == "sqlenv"
    for name, pod in pods(built).items():
        (container,) = pod["spec"]["containers"]
        assert container["image"] == f"localhost:5000/me/sqlenv-{name}:v2"
        assert_confined(pod["spec"])
    (gateway,) = pods(built)["gateway"]["spec"]["containers"]
    assert {"name": "CLUSTER_DOMAIN", "value": "example.org"} in gateway["env"]


@needs_kubectl
def test_the_pod_for_results_reads_the_claim_of_the_runs():
    (pod,) = build(FOLDER / "results")
    for version in VERSIONS:
        validate(pod, version)
    assert_confined(pod["spec"])
    (container,) = pod["spec"]["containers"]
    (trainer,) = pods()["trainer"]["spec"]["containers"]
    assert container["image"] == "docker.io/library/sqlenv-trainer:0.1.0"
    (mount,) = container["volumeMounts"]
    assert mount["readOnly"]
    assert {"name": "runs", "mountPath": mount["mountPath"]} in trainer["volumeMounts"]


@needs_kubectl
def test_options_change_what_they_say(tmp_path):
    built = build(enable(tmp_path, ALL_OPTIONS))
    assert "replicas" not in the("Deployment", "env-server", built)["spec"]
    scaled = the("HorizontalPodAutoscaler", "env-server", built)["spec"]["scaleTargetRef"]
    assert (scaled["kind"], scaled["name"]) == ("Deployment", "env-server")
    callers = the("NetworkPolicy", "env-server", built)["spec"]["ingress"][0]["from"]
    assert "monitoring" in callers[-1]["namespaceSelector"]["matchLabels"].values()
    for name in ("env-server", "trainer"):
        spec = pods(built)[name]["spec"]
        assert {"name": "SQLENV_DATA_DIR", "value": "/data"} in spec["containers"][0]["env"]
        (copying,) = spec["initContainers"]
        assert copying["image"] == "registry/sqlenv-data:1"
        assert copying["volumeMounts"] == [{"name": "data", "mountPath": "/copy"}]
    trainer = pods(built)["trainer"]["spec"]
    (container,) = trainer["containers"]
    preset, gpus = container["args"][-3], container["args"][-1]
    assert container["args"][-4::2] == ["--preset", "--processes"]
    assert NEEDS[preset].gpu
    assert container["resources"]["limits"]["nvidia.com/gpu"] == gpus
    assert trainer["tolerations"][0]["key"] == "nvidia.com/gpu"
    memory = [one["name"] for one in trainer["volumes"] if one.get("emptyDir", {}).get("medium")]
    mounted = [one["mountPath"] for one in container["volumeMounts"] if one["name"] in memory]
    assert mounted == ["/dev/shm"]


def test_the_documented_metric_is_one_of_the_autoscaler():
    text = (FOLDER / "autoscale" / "autoscaler.yaml").read_text()
    scaler = yaml.safe_load(re.sub(r"^    # (- |  )", r"    \1", text, flags=re.MULTILINE))
    assert [one["type"] for one in scaler["spec"]["metrics"]] == ["Resource", "Pods"]
    for version in VERSIONS:
        validate(scaler, version)


def test_monitors_scrape_ports_that_are_there_under_the_jobs_of_the_alerts():
    service, pod = yaml.safe_load_all((FOLDER / "monitoring" / "monitors.yaml").read_text())
    (endpoint,) = service["spec"]["endpoints"]
    labels = service["spec"]["selector"]["matchLabels"].items()
    (of,) = (
        one
        for one in OBJECTS
        if one["kind"] == "Service" and labels <= one["metadata"]["labels"].items()
    )
    assert endpoint["port"] in [port["name"] for port in of["spec"]["ports"]]
    alerts = (ROOT / "docker" / "alerts.yaml").read_text()
    assert f'job="{endpoint["relabelings"][0]["replacement"]}"' in alerts
    assert selected(pod["spec"]["selector"]["matchLabels"]) == ["gateway"]
    (container,) = pods()["gateway"]["spec"]["containers"]
    ports = [port["name"] for port in container["ports"]]
    assert pod["spec"]["podMetricsEndpoints"][0]["port"] in ports
    rule = yaml.safe_load((FOLDER / "monitoring" / "alerts.yaml").read_text())
    assert rule["spec"] == yaml.safe_load(alerts)


def test_selectors_find_their_pods():
    for one in OBJECTS:
        name, spec = one["metadata"]["name"], one.get("spec", {})
        if one["kind"] == "Service":
            assert selected(spec["selector"]) == [name]
            ports = {port["name"] for port in pods()[name]["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in spec["ports"]} <= ports
        elif one["kind"] == "NetworkPolicy":
            assert selected(spec["podSelector"]["matchLabels"]) == [name]
            values = spec["ingress"][0]["from"][0]["podSelector"]["matchExpressions"][0]["values"]
            assert sorted(values) == ["gateway", "trainer"]
            assert all(selected({"app.kubernetes.io/name": value}) == [value] for value in values)
        elif one["kind"] in ("Deployment", "PodDisruptionBudget"):
            assert selected(spec["selector"]["matchLabels"]) == [name]


def test_the_servers_name_resolves_to_each_of_them():
    assert the("Service", "env-server")["spec"]["clusterIP"] == "None"
    settings = {
        one["name"]: one.get("value", "")
        for one in pods()["gateway"]["spec"]["containers"][0]["env"]
    }
    assert settings["SQLENV_SERVERS"] == "env-server.$(POD_NAMESPACE).svc.$(CLUSTER_DOMAIN):8000"
    (trainer,) = pods()["trainer"]["spec"]["containers"]
    assert {"name": "SQLENV_SERVER_URL", "value": "http://env-server:8000"} in trainer["env"]
    assert trainer["args"][-1] == "--resume-or-new"  # a new pod resumes its own run


def assert_confined(spec: dict[str, Any]) -> None:
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    mounted = set()
    for container in spec["containers"] + spec.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        mounted |= {mount["name"] for mount in container.get("volumeMounts", [])}
    assert mounted == {volume["name"] for volume in spec.get("volumes", [])}


@pytest.mark.parametrize("name", pods())
def test_pods_are_confined(name):
    assert_confined(pods()[name]["spec"])


def test_the_servers_settings_exist_and_leave_time_to_drain():
    spec = pods()["env-server"]["spec"]
    (container,) = spec["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert given.keys() <= {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    drain_s, probe = float(given["SQLENV_DRAIN_S"]), container["readinessProbe"]
    assert drain_s > probe["periodSeconds"] * probe["failureThreshold"]
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    assert spec["terminationGracePeriodSeconds"] > drain_s + grace_s
