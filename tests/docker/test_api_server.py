"""docker/k8s applied to a real API server, which validates and admits objects but runs no pods.

Needs `kubectl`, and `etcd` and `kube-apiserver` in the folder KUBEBUILDER_ASSETS (as controller
developers have them) or on the PATH.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.chaos.cluster import free_ports
from tests.conftest import needs_program
from tests.docker.test_kubernetes import ALL_OPTIONS, FOLDER, enable, pods

PATH = os.pathsep.join([os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ.get("PATH", "")])
FOUND = {name: shutil.which(name, path=PATH) for name in ("etcd", "kube-apiserver", "kubectl")}
MISSING = [name for name, path in FOUND.items() if path is None]
pytestmark = [
    needs_program("kube-apiserver", f"no {MISSING[0]} on this machine" if MISSING else None),
    pytest.mark.slow,
]
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("apiserver")
    clients, peers, port = free_ports(3)
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text('secret,admin,1,"system:masters"\n')
    url, peer = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
    etcd = f"""--data-dir {folder}/etcd --listen-client-urls {url} --advertise-client-urls {url}
        --listen-peer-urls {peer} --initial-advertise-peer-urls {peer}
        --initial-cluster default={peer}"""
    api_server = f"""--etcd-servers {url} --cert-dir {folder} --bind-address 127.0.0.1
        --secure-port {port} --service-cluster-ip-range 10.0.0.0/24
        --service-account-key-file {key} --service-account-signing-key-file {key}
        --service-account-issuer https://kubernetes.default.svc
        --token-auth-file {folder}/tokens.csv --authorization-mode RBAC
        --disable-admission-plugins ServiceAccount"""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": os.devnull}
    options = ["--server", f"https://127.0.0.1:{port}", "--token", "secret"]
    options += ["--insecure-skip-tls-verify", "--namespace", "sqlenv"]

    def run(
        *arguments: str | Path, text: str = "", ok: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        command = [str(FOUND["kubectl"]), *options, *map(str, arguments)]
        result = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0 or not ok, result.stderr
        return result

    servers = []
    log = (folder / "log").open("w")
    try:
        for program, arguments in (("etcd", etcd), ("kube-apiserver", api_server)):
            command = [str(FOUND[program]), *arguments.split()]
            servers.append(subprocess.Popen(command, stdout=log, stderr=log))
        for _ in range(240):
            if run("get", "--raw", "/readyz", ok=False).stdout == "ok":
                break
            assert all(server.poll() is None for server in servers), (folder / "log").read_text()
            time.sleep(0.5)
        run("apply", "-f", Path(__file__).parent / "prometheus_operator.yaml")
        yield run
    finally:
        for server in reversed(servers):
            server.terminate()
            server.wait(timeout=60)
        log.close()


def generations(kubectl: Kubectl) -> str:
    """Return how often the specification of each object changed."""
    path = "{range .items[*]}{.kind} {.metadata.name} {.metadata.generation} {end}"
    return kubectl("get", "deployments,cronjobs", "-o", f"jsonpath={path}").stdout


def test_every_object_is_accepted_and_applied_again_without_a_change(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl("wait", "--for=condition=Established", "--all", "crd", "--timeout=60s")
    for name, options in (("none", []), ("all", ALL_OPTIONS), ("claim", ["data-claim"])):
        folder = enable(tmp_path / name, options)
        first = kubectl("apply", "-k", folder)
        assert "Warning" not in first.stderr  # such as a pod that the namespace would refuse
        before = generations(kubectl)
        kubectl("apply", "-k", folder)
        assert generations(kubectl) == before  # no pod is replaced
    assert "created" in kubectl("apply", "-k", FOLDER / "results").stdout


def test_each_training_is_a_job_of_a_new_name(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", FOLDER)
    for name in ("train-1", "train-2"):
        kubectl("create", "job", name, "--from=cronjob/trainer")
        job = yaml.safe_load(kubectl("get", "job", name, "-o", "yaml").stdout)
        assert job["spec"]["ttlSecondsAfterFinished"] > 0
        assert "--resume-or-new" in job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_namespace_admits_the_pods_and_no_privileged_ones(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    folder = enable(tmp_path, ALL_OPTIONS)
    built: list[dict[str, Any]] = list(yaml.safe_load_all(kubectl("kustomize", folder).stdout))
    kubectl("apply", "-k", folder)
    for name, template in pods(built).items():
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": name}
        kubectl("create", "--dry-run=server", "-f", "-", text=yaml.safe_dump(pod))
        pod["spec"]["containers"][0]["securityContext"]["privileged"] = True
        refused = kubectl("create", "-f", "-", text=yaml.safe_dump(pod), ok=False)
        assert refused.returncode != 0
        assert "privileged" in refused.stderr


def test_a_mistake_is_refused(kubectl: Kubectl, tmp_path: Path) -> None:
    folder = enable(tmp_path, ["monitoring"])
    path = folder / "monitoring" / "monitors.yaml"
    path.write_text(path.read_text().replace("endpoints:", "endpoint:", 1))
    refused = kubectl("apply", "-k", folder, ok=False)
    assert refused.returncode != 0
    assert 'unknown field "spec.endpoint"' in refused.stderr
