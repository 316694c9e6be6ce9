"""docker/k8s: each object against the schema of the Kubernetes API, and against the others."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from env_server.settings import ENV_PREFIX, Settings

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


def the(kind: str, name: str) -> dict[str, Any]:
    return dict(OBJECTS[NAMES.index(f"{kind}/{name}")])


def pods() -> dict[str, dict[str, Any]]:
    """Return pod templates by the name of the object that creates them."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in OBJECTS
        if one["kind"] in ("Deployment", "Job")
    }


def selected(labels: dict[str, str]) -> list[str]:
    """Return the objects whose pods carry these labels."""
    return [
        name for name, pod in pods().items() if labels.items() <= pod["metadata"]["labels"].items()
    ]


def test_every_file_is_a_resource_once() -> None:
    found = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(KUSTOMIZATION["resources"]) == sorted(found)
    assert len(set(NAMES)) == len(NAMES)
    assert {"Deployment/env-server", "PodDisruptionBudget/env-server", "Service/env-server",
            "Deployment/gateway",
            "Job/trainer"} <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("index", range(len(OBJECTS)), ids=NAMES)
def test_an_object_matches_the_schema_of_the_api(index: int, version: str) -> None:
    kubernetes_validate.validate(OBJECTS[index], version, strict=True)


def test_the_schemas_notice_a_mistake() -> None:
    wrong = yaml.safe_load(yaml.safe_dump(the("Deployment", "env-server")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
def test_kustomize_builds_valid_objects() -> None:
    result = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    built = list(yaml.safe_load_all(result.stdout))
    assert sorted(f"{one['kind']}/{one['metadata']['name']}" for one in built) == sorted(NAMES)
    for one in built:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
        assert one["metadata"].get("namespace", "sqlenv") == "sqlenv"
        for container in (
            one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        ):
            assert container["image"].endswith(":0.1.0")


def test_selectors_find_their_pods() -> None:
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


def test_the_servers_name_resolves_to_each_of_them() -> None:
    assert the("Service", "env-server")["spec"]["clusterIP"] == "None"
    settings = {
        one["name"]: one.get("value", "")
        for one in pods()["gateway"]["spec"]["containers"][0]["env"]
    }
    assert settings["SQLENV_SERVERS"] == "env-server.$(POD_NAMESPACE).svc.cluster.local:8000"
    (trainer,) = pods()["trainer"]["spec"]["containers"]
    assert {"name": "SQLENV_SERVER_URL", "value": "http://env-server:8000"} in trainer["env"]
    assert trainer["args"][-1] == "--resume-or-new"  # a new pod resumes its own run


@pytest.mark.parametrize("name", pods())
def test_pods_are_confined(name: str) -> None:
    spec = pods()[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])}


def test_the_servers_settings_exist_and_leave_time_to_drain() -> None:
    spec = pods()["env-server"]["spec"]
    given = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert set(given) <= known
    drain_s = float(given["SQLENV_DRAIN_S"])
    probe = spec["containers"][0]["readinessProbe"]
    assert drain_s > probe["periodSeconds"] * probe["failureThreshold"]
    assert (
        spec["terminationGracePeriodSeconds"]
        > drain_s + Settings.model_fields["shutdown_grace_s"].default
    )


def test_the_users_are_those_of_the_images() -> None:
    for name, image in (("env-server", "env_server"), ("trainer", "trainer")):
        uid = pods()[name]["spec"]["securityContext"]["runAsUser"]
        assert f"--uid {uid} " in (ROOT / "docker" / f"{image}.Dockerfile").read_text()
