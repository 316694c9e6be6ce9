"""The compose files and the images, checked as text and with Docker's own client if installed.

The trainer image's entry point runs its command as the owner of the mounted directory.
"""

import errno
import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from env_server.settings import Settings
from tests.conftest import needs_program

ROOT = Path(__file__).parents[2]
FILES = [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml"),
         ("compose.yaml", "compose.vllm.yaml"), ("compose.yaml", "compose.monitoring.yaml"),
         ("compose.yaml", "compose.gpu.yaml", "compose.vllm.yaml"),
         ("compose.yaml", "compose.selinux.yaml")]  # fmt: skip
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
# What Docker's client needs to find its plugins, and no other variable of this machine.
CLIENT = {
    name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_CONFIG") if name in os.environ
}
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::?[-+?]([^{}]*))?\}")
SETTING = re.compile(r"\$\$\{?([A-Z_]+)")  # which the container's shell expands
OVERLAYS = {"DEFAULT_MODEL", "GPUS", "GENERATION_URL"}  # set by those files, not by train.env


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
    project = ["--env-file", "/dev/null", *names]
    command = ["docker", "compose", *project, "config", *options]
    return subprocess.run(
        command, cwd=ROOT, env=CLIENT | environment, capture_output=True, text=True, timeout=60
    )


def configured(files: tuple[str, ...], **environment: str) -> dict[str, Any]:
    result = config(files, **environment)
    assert result.returncode == 0, result.stderr
    return dict(yaml.safe_load(result.stdout)["services"])


def services(name: str = "compose.yaml") -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text())["services"])


def job(folder: Path, *overlays: str, **settings: str) -> list[str]:
    """Return the words that the trainer's container runs with these settings in train.env."""
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"} | settings
    for name in ("compose.yaml", *overlays):
        trainer = services(name)["trainer"]
        found = trainer.get("environment", {})
        environment |= {one: found[one] for one in OVERLAYS & found.keys()}
        assert name == "compose.yaml" or "command" not in trainer
    environment = {name: VARIABLE.sub(r"\2", value) for name, value in environment.items()}
    python = folder / "python"
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    python.chmod(0o755)
    shell, option, script = services()["trainer"]["command"]
    command = [shell, option, script.replace("$$", "$")]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.splitlines()


# -- with Docker's client


@needs_compose
@pytest.mark.parametrize("files", FILES, ids=lambda files: "+".join(files))
def test_docker_accepts_the_files_without_a_warning(files):
    result = config(files, "-q")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@needs_compose
@pytest.mark.parametrize("files", FILES)
def test_mounts_are_labelled_for_selinux_if_it_is_set(files):
    files = tuple(dict.fromkeys((*files, "compose.selinux.yaml")))
    mounts = {}
    for value in ("", "1"):
        found = configured(files, SELINUX=value).values()
        volumes = [volume for one in found for volume in one.get("volumes", [])]
        binds = [volume for volume in volumes if volume["type"] == "bind"]
        labels = [one.get("bind", {}).get("selinux") for one in binds if one["target"] != "/data"]
        assert set(labels) == {"z" if value else None}
        mounts[value] = [(one["source"], one["target"], one.get("read_only")) for one in binds]
    assert mounts[""] == mounts["1"]
    assert [one for one in mounts["1"] if one[1] == "/data"]


@needs_compose
def test_the_settings_reach_the_containers():
    given = {
        "DATA": "/some/import", "GPUS": "2", "SQLENV_API_KEY": "k" * 20, "ENV_SERVERS": "4",
        "GATEWAY_PORT": "8081", "SQLENV_STANDARD": "spider",
    }  # fmt: skip
    found = configured(("compose.yaml", "compose.gpu.yaml"), **given)
    trainer, server = found["trainer"], found["env-server"]
    own = {"SQLENV_SERVER_URL": "http://env-server:8000", "SQLENV_DATA_DIR": "/data", "GPUS": "2"}
    assert trainer["environment"].items() >= own.items()
    for one in (trainer, server):
        assert one["environment"]["SQLENV_STANDARD"] == "spider"
        assert one["environment"]["SQLENV_API_KEY"] == "k" * 20
        assert [volume["source"] for volume in one["volumes"] if volume["target"] == "/data"] == [
            "/some/import"
        ]
    assert trainer["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    ]
    assert server["deploy"]["replicas"] == 4
    assert found["gateway"]["ports"][0]["published"] == "8081"


@needs_compose
def test_the_file_train_env_and_no_shell_sets_the_training(tmp_path):
    shutil.copy(ROOT / "compose.yaml", tmp_path)

    def trainer(**shell: str) -> dict[str, Any]:
        result = subprocess.run(
            ["docker", "compose", "config"], cwd=tmp_path, env=CLIENT | shell,
            timeout=60, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return dict(yaml.safe_load(result.stdout)["services"]["trainer"])

    without = trainer()
    (tmp_path / "train.env").write_text("MODEL=runs/a model\nTRAIN_OPTIONS=--set a='b c'  # x\n")
    found = trainer(HF_TOKEN="of this shell", OPENAI_API_KEY="of this shell")
    assert found.pop("environment") == without.pop("environment") | {
        "MODEL": "runs/a model",
        "TRAIN_OPTIONS": "--set a='b c'",
    }
    assert found == without


@needs_compose
@pytest.mark.parametrize("name", ["SEED", "STEPS", "PRESET", "MODEL", "PROCESSES", "TRAIN_OPTIONS"])
def test_a_setting_of_the_training_in_the_shell_is_refused(name):
    result = config(("compose.yaml",), "-q", **{name: "2"})
    assert result.returncode != 0
    assert f"move {name} to train.env; true" in result.stderr
    assert result.stderr.count("move") == 1


@needs_compose
def test_the_trainer_generates_on_the_vllm_service():
    files = ("compose.yaml", "compose.gpu.yaml", "compose.vllm.yaml")
    found = configured(files, VLLM_API_KEY="k" * 20, VLLM_LORA_RANK="32")
    trainer, server = found["trainer"], found["vllm"]
    assert trainer["environment"]["OPENAI_API_KEY"] == server["environment"]["VLLM_API_KEY"]
    assert trainer["depends_on"].keys() == {"vllm"}
    assert server["entrypoint"] == ["sh", "-c"]
    (command,) = server["command"]
    assert command.startswith('exec vllm serve "$${MODEL:-Qwen/Qwen3-0.6B}" --seed "$${SEED:-0}"')
    assert command.endswith("--enable-lora --max-lora-rank 32")
    assert server["environment"].keys() >= {"VLLM_API_KEY", "HF_HOME"}
    assert services("compose.vllm.yaml")["vllm"]["env_file"] == services()["trainer"]["env_file"]
    # the weights and a model in ./runs have the same paths in both
    shared = [one for one in server["volumes"] if one["target"] == "/app/runs"]
    assert [one["read_only"] for one in shared] == [True]
    assert {one["source"] for one in trainer["volumes"] if one["target"] == "/app/runs"} == {
        one["source"] for one in shared
    }
    assert set(trainer["networks"]) & set(server["networks"])


# -- in the container


JOB = ["-m", "trainer", "train", "--resume-or-new"]


def test_settings_are_words_whatever_they_hold(tmp_path):
    assert job(tmp_path) == JOB, "the offline model"
    settings = {
        "SEED": "3", "STEPS": "7", "PRESET": "offline", "MODEL": "runs/a 'model' $(false) *",
        "SQLENV_STANDARD": "spider", "PROCESSES": "2",
        "TRAIN_OPTIONS": "--set a=1 --set 'b=c  d' --set \"e=\\$f\"",
    }  # fmt: skip
    assert job(tmp_path, **settings) == [
        *JOB, "--preset", "offline", "--model", "runs/a 'model' $(false) *", "--seed", "3",
        "--steps", "7", "--standard", "spider", "--processes", "2",
        "--set", "a=1", "--set", "b=c  d", "--set", "e=$f",
    ]  # fmt: skip


SERVED = "--generation-url http://vllm:8000/v1"


@pytest.mark.parametrize(
    ("overlays", "settings", "options"),
    [
        ("gpu", {}, "--model Qwen/Qwen3-0.6B --processes 1"),
        ("gpu", {"MODEL": "a/b"}, "--model a/b --processes 1"),
        ("gpu", {"PRESET": "qwen3-1.7b"}, "--preset qwen3-1.7b --processes 1"),
        ("gpu", {"PRESET": "p", "MODEL": "a/b"}, "--preset p --model a/b --processes 1"),
        ("vllm", {}, f"--model Qwen/Qwen3-0.6B {SERVED}"),
        ("gpu vllm", {"PRESET": "p", "PROCESSES": "2"},
         f"--preset p --model Qwen/Qwen3-0.6B --processes 2 {SERVED}"),
        ("gpu vllm", {"MODEL": "a/b"}, f"--model a/b --processes 1 {SERVED}"),
    ],
)  # fmt: skip
def test_the_overlays_choose_a_model(tmp_path, overlays, settings, options):
    files = [f"compose.{name}.yaml" for name in overlays.split()]
    assert job(tmp_path, *files, **settings) == [*JOB, *options.split()]


# -- as text


def test_the_examples_name_every_variable_with_its_default():
    used: dict[str, set[str]] = {}
    settings: set[str] = set()
    for path in ROOT.glob("compose*.yaml"):
        text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE)
        settings |= set(SETTING.findall(text)) - OVERLAYS
        for name, default in VARIABLE.findall(text):
            if not default.startswith("move"):  # refused
                used.setdefault(name, set()).update({default} if "$" not in default else set())
    for_commands = {"HF_TOKEN", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"}
    examples = [
        dict(re.findall(r"^#([A-Z_]+)=(.*)$", (ROOT / name).read_text(), flags=re.MULTILINE))
        for name in (".env.example", "train.env.example")
    ]
    assert set(examples[0]) == set(used)
    for name, value in examples[0].items():
        assert not value or value in used[name], f"{name}: {used[name]}"
    assert set(examples[1]) == settings - {"SQLENV_STANDARD"} | for_commands


@pytest.mark.parametrize("service", ["env-server", "gateway", "trainer"])
def test_our_services_are_confined_and_limited(service):
    one = services()[service]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert {"memory", "pids", "cpus"} <= set(one["deploy"]["resources"]["limits"])
    assert "stop_grace_period" in one
    assert ("healthcheck" in one) == (service != "trainer")


def test_ports_are_published_on_this_machine_only():
    for path in ROOT.glob("compose*.yaml"):
        for service in services(path.name).values():
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_every_mounted_folder_has_a_label_for_selinux():
    overlay = services("compose.selinux.yaml")
    for path in ROOT.glob("compose*.yaml"):
        for name, service in services(path.name).items():
            for volume in service.get("volumes", []):
                if isinstance(volume, dict):
                    (labelled,) = overlay[name]["volumes"]
                    same = ("type", "source", "target", "read_only")
                    assert [labelled[key] for key in same] == [volume[key] for key in same]
                    # with False, Compose uses an interface that has no labels
                    assert labelled["bind"] == {"create_host_path": True, "selinux": "z"}
                elif volume[0] in "./$":
                    assert re.search(r":/[^:]+(:ro)?\$\{SELINUX:\+[,:]z\}$", volume), volume


def test_the_servers_scale_inside_and_have_time_to_drain():
    server, trainer = services()["env-server"], services()["trainer"]
    assert not {"profiles", "depends_on"} & trainer.keys()  # `up` trains; `run` does not scale
    assert not {"ports", "container_name"} & server.keys()  # it has several replicas
    assert server["networks"] == ["inside"]
    networks = yaml.safe_load((ROOT / "compose.yaml").read_text())["networks"]
    assert networks["inside"] == {"internal": True}
    drain_s = int(VARIABLE.findall(server["environment"]["SQLENV_DRAIN_S"])[0][1])
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    assert int(server["stop_grace_period"].removesuffix("s")) > drain_s + grace_s


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_pinned_and_does_not_run_as_root_and_its_files_are_sent(path):
    lines = [line.split() for line in path.read_text().splitlines()]
    bases = [line[1] for line in lines if line[:1] == ["FROM"]]
    assert all(re.search(r":\d+\.\d+", base) for base in bases), bases
    users = [line[1] for line in lines if line[:1] == ["USER"]]
    assert users
    assert users[-1] not in ("root", "0")
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sent = tuple(line[1:] for line in ignored if line.startswith("!"))
    for line in lines:
        if line[:1] == ["COPY"] and "--from" not in line[1]:
            for source in line[1:-1]:
                assert (ROOT / source).exists(), source
                assert source.startswith(sent), source


def test_the_servers_image_has_no_torch():
    """Neither by the extras that it installs nor by what these require."""
    text = (ROOT / "docker" / "env_server.Dockerfile").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = (project["optional-dependencies"][extra] for extra in extras.split(","))
    required = [*project["dependencies"], *itertools.chain.from_iterable(optional)]
    names = {re.split(r"[^\w-]", one)[0] for one in required}
    assert not names & {"torch", "transformers", "trl", "accelerate", "datasets"}
    assert "COPY trainer/" not in text


SCRIPT = Path(__file__).parents[2] / "docker" / "as_owner.py"
AS_OWNER = runpy.run_path(str(SCRIPT))
WRITE = 'touch "$0/made"; id -u; id -G'
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can hand a directory over")


@as_root
def test_root_runs_the_command_as_the_owner_of_the_directory(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    os.chown(runs, 4321, 4322)
    # pytest's folders are readable only by their owner
    for parent in (tmp_path, *tmp_path.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    command = [sys.executable, str(SCRIPT), str(runs), "/bin/sh", "-c", WRITE, str(runs)]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
    assert result.stdout.split() == ["4321", "4322"], result.stderr
    assert ((runs / "made").stat().st_uid, (runs / "made").stat().st_gid) == (4321, 4322)


@as_root
def test_a_directory_of_root_is_given_to_the_owner_of_the_checkout_or_the_image_user(tmp_path):
    checkout, owner_of = tmp_path / "compose.yaml", AS_OWNER["owner_of"]
    assert owner_of(tmp_path, checkout, (10001, 10001)) == (10001, 10001)
    checkout.touch()
    assert owner_of(tmp_path, checkout, (10001, 10001)) == (10001, 10001)
    os.chown(checkout, 1000, 1001)
    assert owner_of(tmp_path, checkout, (10001, 10001)) == (1000, 1001)


def test_a_folder_that_cannot_be_written_is_named_with_a_remedy(tmp_path, monkeypatch):
    def refused(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    monkeypatch.setattr(os, "getuid", lambda: 10001)
    with pytest.raises(SystemExit, match="Read-only file system; mount it for writing"):
        AS_OWNER["main"]([str(tmp_path), "true"])
