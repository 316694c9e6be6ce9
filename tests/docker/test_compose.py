"""The compose files and the images, checked as text and with Docker's own client if installed."""

import itertools
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import needs_program

ROOT = Path(__file__).parents[2]
FILES = [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml"),
         ("compose.yaml", "compose.vllm.yaml"),
         ("compose.yaml", "compose.gpu.yaml", "compose.vllm.yaml")]  # fmt: skip
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
# What Docker's client needs to find its plugins, and no other variable of this machine.
CLIENT = {
    name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_CONFIG") if name in os.environ
}
VARIABLE = re.compile(r"\$\{(\w+)(?::?[-+?]([^{}]*))?\}")


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    command = ["docker", "compose", "version"]
    return subprocess.run(command, env=CLIENT, capture_output=True, timeout=60).returncode == 0


MISSING = None if has_compose() else "no docker compose on this machine"
needs_compose = needs_program("compose", MISSING)


def config(
    files: tuple[str, ...], *options: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    names = [word for name in files for word in ("-f", name)]
    project = ["--env-file", "/dev/null", *names, "--profile", "train"]
    command = ["docker", "compose", *project, "config", *options]
    return subprocess.run(
        command, cwd=ROOT, env=CLIENT | environment, capture_output=True, text=True, timeout=60
    )


def services(name: str = "compose.yaml") -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text())["services"])


# -- with Docker's client
# --------------------------------------------------------------------------------------


def test_every_compose_file_is_among_those_checked() -> None:
    assert {path.name for path in ROOT.glob("compose*.yaml")} == {
        name for files in FILES for name in files
    }


@needs_compose
@pytest.mark.parametrize("files", FILES, ids=lambda files: "+".join(files))
def test_docker_accepts_the_files(files: tuple[str, ...]) -> None:
    result = config(files, "-q")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), (
        "without a warning either"
    )


@needs_compose
def test_the_settings_reach_the_containers() -> None:
    given = {
        "SEED": "3", "STEPS": "7", "MODEL": "runs/a model", "DATA": "/some/import",
        "TRAIN_OPTIONS": "--set a=1",
        "GPUS": "2", "PRESET": "offline", "SQLENV_API_KEY": "k" * 20, "ENV_SERVERS": "4",
        "GATEWAY_PORT": "8081", "SQLENV_STANDARD": "spider", "OPENAI_API_KEY": "k1",
    }  # fmt: skip
    result = config(("compose.yaml", "compose.gpu.yaml"), **given)
    assert result.returncode == 0, result.stderr
    found = yaml.safe_load(result.stdout)["services"]
    trainer, server = found["trainer"], found["env-server"]
    assert trainer["command"][4:] == [
        "--resume-or-new", "--preset", "offline", "--model", "runs/a model",
        "--seed", "3", "--steps", "7", "--standard", "spider", "--processes", "2", "--set", "a=1",
    ]  # fmt: skip
    assert trainer["environment"]["SQLENV_SERVER_URL"] == "http://env-server:8000"
    assert trainer["environment"]["SQLENV_DATA_DIR"] == "/data"
    assert trainer["environment"]["OPENAI_API_KEY"] == "k1"
    assert server["environment"]["SQLENV_STANDARD"] == "spider"
    assert trainer["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    ]
    assert {
        one["source"] for one in trainer["volumes"] + server["volumes"] if one["target"] == "/data"
    } == {"/some/import"}
    assert (
        trainer["environment"]["SQLENV_API_KEY"]
        == server["environment"]["SQLENV_API_KEY"]
        == "k" * 20
    )
    assert server["deploy"]["replicas"] == 4
    assert found["gateway"]["ports"][0]["published"] == "8081"


@needs_compose
def test_the_trainer_generates_on_the_vllm_service() -> None:
    given = {"MODEL": "runs/a model", "VLLM_API_KEY": "k" * 20, "VLLM_LORA_RANK": "32"}
    result = config(("compose.yaml", "compose.gpu.yaml", "compose.vllm.yaml"), **given)
    assert result.returncode == 0, result.stderr
    found = yaml.safe_load(result.stdout)["services"]
    trainer, server = found["trainer"], found["vllm"]
    options = dict(itertools.pairwise(trainer["command"]))
    assert options["--generation-url"] == "http://vllm:8000/v1"
    assert options["--model"] == "runs/a model"
    assert trainer["environment"]["OPENAI_API_KEY"] == server["environment"]["VLLM_API_KEY"]
    assert trainer["depends_on"].keys() == {"vllm"}
    options = dict(itertools.pairwise(server["command"]))
    assert (options["--model"], options["--max-lora-rank"]) == ("runs/a model", "32")
    assert "--enable-lora" in server["command"]
    assert server["environment"]["VLLM_SERVER_DEV_MODE"] == "1"
    assert server["environment"]["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    # the weights and a model in ./runs have the same paths in both
    shared = [one for one in server["volumes"] if one["target"] == "/app/runs"]
    assert [one["read_only"] for one in shared] == [True]
    assert {one["source"] for one in trainer["volumes"] if one["target"] == "/app/runs"} == {
        one["source"] for one in shared
    }
    assert set(trainer["networks"]) & set(server["networks"])


@needs_compose
def test_without_settings_the_offline_model_trains() -> None:
    found = yaml.safe_load(config(("compose.yaml",)).stdout)["services"]
    assert found["trainer"]["command"] == ["python", "-m", "trainer", "train", "--resume-or-new"]
    assert found["gateway"]["ports"][0]["published"] == "8000"


@needs_compose
@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, ["--preset", "auto", "--model", "Qwen/Qwen3-0.6B"]),
        ({"MODEL": "a/b"}, ["--preset", "auto", "--model", "a/b"]),
        ({"PRESET": "qwen3-1.7b"}, ["--preset", "qwen3-1.7b"]),
        ({"PRESET": "qwen3-1.7b", "MODEL": "a/b"}, ["--preset", "qwen3-1.7b", "--model", "a/b"]),
    ],
)
def test_a_preset_names_the_model_on_gpus(given: dict[str, str], options: list[str]) -> None:
    found = yaml.safe_load(config(("compose.yaml", "compose.gpu.yaml"), **given).stdout)["services"]
    words = found["trainer"]["command"]
    assert words[5 : words.index("--processes")] == options


# -- as text
# ------------------------------------------------------------------------------------------------


def test_the_example_names_every_variable_with_its_default() -> None:
    used: dict[str, set[str]] = {}
    for path in ROOT.glob("compose*.yaml"):
        text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE)
        for name, default in VARIABLE.findall(text):
            used.setdefault(name, set()).update({default} if "$" not in default else set())
        # passed on as it is
        for name in re.findall(r"^\s+([A-Z_]+): *#", path.read_text(), flags=re.MULTILINE):
            used.setdefault(name, set())
    example = dict(
        re.findall(r"^#([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), flags=re.MULTILINE)
    )
    assert set(example) == set(used)
    for name, value in example.items():
        assert not value or value in used[name], f"{name}: {used[name]}"


@pytest.mark.parametrize("service", ["env-server", "gateway", "trainer"])
def test_our_services_are_confined_and_limited(service: str) -> None:
    one = services()[service]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert {"memory", "pids", "cpus"} <= set(one["deploy"]["resources"]["limits"])
    assert "stop_grace_period" in one
    assert ("healthcheck" in one) == (service != "trainer")


def test_scaling_and_commands_leave_the_training_and_the_servers_alone() -> None:
    """docker/prove.sh shows it on an engine."""
    trainer = services()["trainer"]
    assert trainer["profiles"] == ["train"]  # `up` does not touch it
    assert "depends_on" not in trainer  # `run` does not scale the servers
    assert trainer["restart"].startswith("on-failure")
    assert "--resume-or-new" in trainer["command"]


def test_the_trainers_image_has_what_its_commands_need() -> None:
    text = (ROOT / "docker" / "trainer.Dockerfile").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    # play and `python -m data` need the server's packages and its sources
    assert set(extras.split(",")) == {"server", "trainer", "lora", "tensorboard", "api"}
    assert "COPY env_server/" in text


def test_a_scaled_service_has_no_fixed_name_or_port() -> None:
    server = services()["env-server"]
    assert "ports" not in server
    assert "container_name" not in server
    assert server["networks"] == ["inside"]
    assert yaml.safe_load((ROOT / "compose.yaml").read_text())["networks"]["inside"] == {
        "internal": True
    }


def test_ports_are_published_on_this_machine_only() -> None:
    for name in ("compose.yaml", "compose.vllm.yaml"):
        for service in services(name).values():
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_servers_have_time_to_drain() -> None:
    server = services()["env-server"]
    drain_s = int(VARIABLE.findall(server["environment"]["SQLENV_DRAIN_S"])[0][1])
    from env_server.settings import Settings

    grace_s = Settings.model_fields["shutdown_grace_s"].default
    assert int(server["stop_grace_period"].removesuffix("s")) > drain_s + grace_s


def test_the_images_carry_the_projects_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ours = [one["image"] for one in services().values()]
    assert len(ours) == 3
    assert all(image.endswith(f":{version}") for image in ours)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_pinned_and_does_not_run_as_root(path: Path) -> None:
    lines = path.read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(re.search(r":\d+\.\d+", base) for base in bases), bases
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    assert (ROOT / ".dockerignore").read_text().startswith("# Only what an image needs")


def test_the_servers_image_has_no_torch() -> None:
    """Neither by the extras that it installs nor by what these require."""
    text = (ROOT / "docker" / "env_server.Dockerfile").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert extras == "server,docs,mcp"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = (project["optional-dependencies"][extra] for extra in extras.split(","))
    required = [*project["dependencies"], *itertools.chain.from_iterable(optional)]
    names = {re.split(r"[^\w-]", one)[0] for one in required}
    assert not names & {"torch", "transformers", "trl", "accelerate", "datasets"}
    assert "COPY trainer/" not in text


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_files_that_an_image_copies_are_in_the_build_context(path: Path) -> None:
    sent = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for line in path.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == one or source.startswith(one) for one in sent), source
