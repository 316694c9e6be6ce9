"""The files of examples/trainers/, each run by the other trainer's own commands.

The trainers' environments are made in the folder PEER_ENVIRONMENTS, or found there; the tests are
skipped without one. A scripted model plays, and this project's client says what it must earn.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.environments import NotMeasured, make_environment
from shared.client import SQLEnvClient
from shared.server_process import ServerProcess, child_environment, running_server
from tests.chaos.cluster import free_ports
from tests.conftest import TRAIN
from tests.examples.scripted_model import ScriptedIds, StreamingChat
from tests.test_imports import ROOT
from tests.trainer.chat_server import Messages, served, tool_call
from tests.trainer.model_families import tiny_tokenizer

TRAINERS = ROOT / "examples" / "trainers"
PLAYER = ROOT / "tests" / "examples" / "skyrl_player.py"
GYM_SERVERS = (
    "resources_servers/sqlenv",
    "responses_api_agents/simple_agent",
    "responses_api_models/vllm_model",
    "environment_servers/legacy_agent",
)
COLLECT = ["gym", "eval", "run", "--no-serve", "--agent", "sqlenv_agent"]
COLLECT += ["--input", "tasks.jsonl", "--output", "rollouts.jsonl"]
TASKS = 4
UNREACHABLE = "can't reach the environment server at http://127.0.0.1:1 "
ANSWERS = {question["question_text"]: question["gold_answer"] for question in TRAIN}
WRONG = {"shop-2", "shop-5"}  # questions that the model answers wrongly
ANSWERS |= {question["question_text"]: 0 for question in TRAIN if question["question_id"] in WRONG}


def script(question: str) -> list[tuple[str, str]]:
    answer = ANSWERS[question]
    return [
        ("DESCRIBE", "nothing"),
        ("QUERY", "SELECT count(*) FROM orders"),
        ("ANSWER", answer if isinstance(answer, str) else json.dumps(answer)),
    ]


def turn(messages: Messages) -> tuple[str, str] | None:
    question = re.search(r"Question: (.*)", messages[1]["content"])
    assert question, messages
    actions = script(question[1])
    played = sum(message["role"] == "assistant" for message in messages)
    return actions[played] if played < len(actions) else None


def written(action: tuple[str, str]) -> str:
    """Return an action as a text; a QUERY as its SQL alone, which is also played as one."""
    kind, argument = action
    return argument if kind == "QUERY" else f"{kind}: {argument}"


def texts(messages: Messages) -> str:
    action = turn(messages)
    assert action, "the environment asked for a turn after the ANSWER"
    return written(action)


def calls(messages: Messages) -> Any:
    if (action := turn(messages)) is None:
        return "Done."
    kind, argument = action
    names = {"DESCRIBE": "table", "QUERY": "sql", "ANSWER": "answer"}
    return tool_call(kind.lower(), {names[kind]: argument})


@pytest.fixture(scope="module")
def server(tiny_data: Path) -> Iterator[ServerProcess]:
    with running_server(tiny_data, "--workers", "1") as server:
        yield server


@pytest.fixture(scope="module")
def expected(server: ServerProcess) -> list[float]:
    """The rewards of the scripts on the questions of the first seeds."""
    totals = []
    with SQLEnvClient(server.url).sync() as client:
        for seed in range(TASKS):
            first = client.reset(seed=seed, split="train")
            for kind, argument in script(first.observation.question):
                last = client.step(first.episode_id, f"{kind}: {argument}")
            totals.append(last.ledger.total)
    assert min(totals) < 0.2 < 1 < max(totals), "some answers are right and some are wrong"
    return totals


def python_of(name: str) -> Path:
    """Return the Python of a trainer's environment, or skip the test with the reason."""
    folder = os.environ.get("PEER_ENVIRONMENTS")
    if not folder:
        pytest.skip("set PEER_ENVIRONMENTS to a folder for the trainers' environments, of 3 GB")
    requirements = TRAINERS / "requirements" / f"{name}.txt"
    try:
        return make_environment(name, Path(folder), requirements)
    except NotMeasured as error:
        pytest.skip(str(error))


def environment(python: Path, *folders: Path) -> dict[str, str]:
    """Return the environment variables of a trainer that imports from `folders`, too."""
    inherited = child_environment()
    return inherited | {
        "PATH": f"{python.parent}:{inherited['PATH']}",
        "PYTHONPATH": ":".join([*map(str, folders), inherited["PYTHONPATH"]]),
        "HOME": str(python.parents[1] / "home"),
    }


def run(python: Path, folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env=environment(python, folder), cwd=folder, capture_output=True, text=True,
        timeout=240,
    )  # fmt: skip


def traces(folder: Path) -> list[dict[str, Any]]:
    """Return what verifiers recorded of each model's part in the episodes of its only run."""
    [file] = folder.glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    return [trace for episode in episodes for trace in episode["traces"]]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_verifiers_evaluates(server, expected, tmp_path):
    python = python_of("verifiers")
    shutil.copy(TRAINERS / "sqlenv_verifiers.py", tmp_path)
    command = ["vf-eval", "sqlenv-verifiers", "-n", str(TASKS), "--no-push", "--no-rich"]
    with served(StreamingChat(texts)) as model:
        command += ["--client.base-url", model.url, "--env.taskset.url"]
        done = run(python, tmp_path, *command, server.url, "-m", "fake", "-o", "done")
        failed = run(python, tmp_path, *command, server.url, "-m", "another", "-o", "failed")
        lost = run(python, tmp_path, *command, "http://127.0.0.1:1", "-m", "fake")
    assert done.returncode == 0, done.stderr[-3000:]
    played = traces(tmp_path / "done")
    rewards = {one["task"]["data"]["idx"]: one["rewards"]["sqlenv"]["score"] for one in played}
    assert [rewards[seed] for seed in range(TASKS)] == pytest.approx(expected)
    assert {one["metrics"]["steps"] for one in played} == {3}
    assert failed.returncode == 0, failed.stderr[-3000:]
    without_model = traces(tmp_path / "failed")
    assert [one["rewards"] for one in without_model] == [{}] * TASKS
    assert {one["errors"][0]["type"] for one in without_model} == {"ProviderError"}
    assert lost.returncode != 0
    assert UNREACHABLE in lost.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_skyrl_gym_plays_and_a_server_that_restarts_loses_no_episode(tiny_data, expected, tmp_path):
    python = python_of("skyrl-gym")
    turns = {question: [written(action) for action in script(question)] for question in ANSWERS}
    shutil.copy(TRAINERS / "sqlenv_skyrl.py", tmp_path)
    command = [str(python), str(PLAYER), json.dumps(turns), str(TASKS)]
    with running_server(tiny_data, "--workers", "1", capacity=2) as server:
        player = subprocess.Popen(
            [*command, server.url], env=environment(python, tmp_path), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        said = player.stdout.readline()
        server.stop(signal.SIGKILL)
        server.start()
        server.wait_ready()
        output, errors = player.communicate("go on\n", timeout=120)
    assert said == "in the middle of an episode\n", errors[-3000:]
    assert player.returncode == 0, errors[-3000:]
    played = [json.loads(line) for line in output.splitlines()]
    assert [one["reward"] for one in played] == pytest.approx(expected)
    assert [one["correct"] for one in played] == [float(reward > 0.5) for reward in expected]
    lost = run(python, tmp_path, "python", "sqlenv_skyrl.py", "http://127.0.0.1:1")
    assert lost.returncode != 0
    assert UNREACHABLE in lost.stderr


@contextmanager
def gym_servers(python: Path, folder: Path, url: str, model_url: str, head: str) -> Iterator[Path]:
    """Run `gym env start` with SQLEnv at `url`; yield its log once it is ready or has ended.

    uv would make an environment for each of its servers; here all have this one.
    """
    venvs, log = folder / "venvs", folder / "servers.log"
    for server in GYM_SERVERS:
        (venvs / server).mkdir(parents=True)
        (venvs / server / ".venv").symlink_to(python.parents[1].resolve())
    command = ["gym", "env", "start", "--config", "resources_servers/sqlenv/sqlenv.yaml"]
    command += ["--model-type", "vllm_model", "--model-url", model_url, "--model", "fake"]
    command += ["--model-api-key", "none", head]
    command += [f"+uv_venv_dir={venvs}", "+skip_venv_if_present=true"]
    with log.open("w") as output:
        started = subprocess.Popen(
            command, env=environment(python, folder) | {"SQLENV_URL": url}, cwd=folder,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=allow_interrupts,
        )  # fmt: skip
    try:
        for _ in range(240):
            if "servers ready!" in log.read_text() or started.poll() is not None:
                break
            time.sleep(1)
        yield log
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGINT)
            started.wait(60)


def allow_interrupts() -> None:
    """Undo that a shell's background jobs, and their children, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def prepare_tasks(python: Path, folder: Path, url: str, number: int) -> None:
    shutil.copytree(TRAINERS / "resources_servers", folder / "resources_servers")
    drawn = run(python, folder, "python", "resources_servers/sqlenv/tasks.py", url, str(number))
    assert drawn.returncode == 0, drawn.stderr[-3000:]
    (folder / "tasks.jsonl").write_text(drawn.stdout)


def gym_head() -> str:
    """Return the option that puts NeMo Gym's head server on a free port."""
    [port] = free_ports(1)
    return f"+head_server={{host:127.0.0.1,port:{port}}}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nemo_gym_collects_rollouts(server, expected, tmp_path):
    python, head = python_of("nemo-gym"), gym_head()
    prepare_tasks(python, tmp_path, server.url, TASKS)
    with (
        served(StreamingChat(calls)) as model,
        gym_servers(python, tmp_path, server.url, model.url, head) as log,
    ):
        done = run(python, tmp_path, *COLLECT, head)
    assert done.returncode == 0, f"{done.stderr[-3000:]}{log.read_text()[-3000:]}"
    rows = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    rewards = {row["_ng_task_index"]: row["reward"] for row in rows}
    assert [rewards[seed] for seed in range(TASKS)] == pytest.approx(expected)
    assert {row["mask_sample"] for row in rows} == {False}
    assert {row["steps"] for row in rows} == {3}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nemo_gym_masks_a_lost_episode(tiny_data, tmp_path):
    python, head = python_of("nemo-gym"), gym_head()
    with running_server(tiny_data, "--workers", "1") as server:

        def lost(messages: Messages) -> Any:
            server.stop()
            return calls(messages)

        prepare_tasks(python, tmp_path, server.url, 1)
        with (
            served(StreamingChat(lost)) as model,
            gym_servers(python, tmp_path, server.url, model.url, head) as log,
        ):
            done = run(python, tmp_path, *COLLECT, head)
    assert done.returncode == 0, f"{done.stderr[-3000:]}{log.read_text()[-3000:]}"
    row = json.loads((tmp_path / "rollouts.jsonl").read_text())
    assert row["mask_sample"]
    assert row["failure_kind"] == "session_lost"
    assert "can't reach the environment server at " in row["failure_reason"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_trls_asynchronous_rollouts(server, expected, tmp_path):
    """The process that makes TRL's rollouts, against a server that speaks as vLLM does."""
    aiohttp = python_of("trl-async").parents[1]
    [packages] = aiohttp.resolve().glob("lib/python*/site-packages")
    shutil.copy(TRAINERS.parent / "trl_tools.py", tmp_path)
    tokenizer = tiny_tokenizer("qwen3")
    tokenizer.save_pretrained(tmp_path / "model")
    python, worker = Path(sys.executable), str(ROOT / "tests" / "examples" / "trl_worker.py")
    with served(ScriptedIds(tokenizer, calls)) as model:
        command = [str(python), worker, server.url, str(tmp_path / "model")]
        command += [model.url.removesuffix("/v1")]
        done = subprocess.run(
            command, env=environment(python, tmp_path, packages), cwd=tmp_path,
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["rewards/SQLEnvTools"] for one in metrics] == pytest.approx([expected[0]] * 4)
    assert {one["tools/call_frequency"] for one in metrics} == {3.0}
