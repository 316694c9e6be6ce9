"""`python -m env_server` as a user runs it: a process, a port, signals, exit statuses."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from shared.models import ServerMetadata
from shared.server_process import ServerProcess, running_server
from tests.conftest import alive

SLOW = (  # well under the limits on SQL
    "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500000) "
    "SELECT count(*) FROM n"
)


@pytest.fixture
def server(tiny_data: Path) -> Iterator[ServerProcess]:
    with running_server(tiny_data, "--workers", "1") as server:
        yield server


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def children(pid: int | None) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def stopped_workers(server: ServerProcess) -> Iterator[None]:
    """Stop the server's SQL workers for the block, so that a step stays in flight for as long."""
    workers = children(server.pid)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def until_in_flight(http: httpx.Client, step: threading.Thread) -> None:
    while "sqlenv_sql_queue_depth 1.0" not in http.get("/metrics").text:
        assert step.is_alive()


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-m", "env_server", *options],
        cwd=root,
        env=os.environ | {"PYTHONPATH": root, "COLUMNS": "200"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_announces_its_url_and_data(server, tiny_data):
    metadata = ServerMetadata.model_validate_json(httpx.get(server.url + "/metadata").content)
    questions = sum(metadata.questions.values())
    assert (
        f"SQLEnv serves {server.url} data={tiny_data} databases={metadata.databases} "
        f"questions={questions} standard=strict digest={metadata.digest[:12]}\n"
    ) in server.log()


def test_a_signal_finishes_the_step_in_flight_refuses_others_and_exits_with_0(server, http):
    workers = children(server.pid)
    http.post("/reset", json={"episode_id": "e"})
    replies: list[httpx.Response] = []
    body = {"episode_id": "e", "action": SLOW, "step": 0}
    step = threading.Thread(
        target=lambda: replies.append(httpx.post(server.url + "/step", json=body, timeout=60))
    )
    with stopped_workers(server):
        step.start()
        until_in_flight(http, step)
        server.send_signal(signal.SIGTERM)
        with suppress(httpx.TransportError):
            while http.get("/health").status_code == 200:
                assert step.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.post(server.url + "/reset")
        assert step.is_alive()
    step.join()
    assert "1500000" in replies[0].json()["observation"]["result"]
    assert server.wait(30) == 0, server.log()
    assert not [pid for pid in workers if alive(pid)]
    assert "Traceback" not in server.log()


def test_draining_continues_episodes_but_is_not_ready(tiny_data):
    with running_server(tiny_data, drain_s=30) as server, httpx.Client(base_url=server.url) as http:
        http.post("/reset", json={"episode_id": "e"})
        server.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while http.get("/ready").status_code == 200:
            assert time.monotonic() < deadline
        assert http.post("/reset").status_code == 503
        step = {"episode_id": "e", "action": "QUERY: SELECT 1"}
        assert http.post("/step", json=step).status_code == 200
        began = time.monotonic()
        assert server.stop() == 0, "a second signal ends the draining"
        assert time.monotonic() - began < 15
        line = "stopping: episodes continue for 30 s, and none starts; unfinished: 1"
        assert server.log().count(line) == 1


def test_json_log(tiny_data):
    with running_server(
        tiny_data, "--workers", "1", log_format="json", log_level="debug"
    ) as server:
        body = {"episode_id": "one", "seed": 1, "actions": ["QUERY: SELECT 1"]}
        assert httpx.post(server.url + "/reset", json=body).status_code == 200
        server.stop()
        lines = [json.loads(line) for line in server.log().splitlines()]
    messages = [line["message"] for line in lines]
    assert any(one.startswith(f"SQLEnv serves {server.url} ") for one in messages)
    assert any("episodes ended" in one for one in messages)
    rebuilt = next(line for line in lines if line.get("episode_id") == "one")
    # of the level that is not shown by default: many episodes may move at once
    assert (rebuilt["message"], rebuilt["level"]) == ("rebuilt from 1 actions", "debug")


def test_starts_that_fail_print_one_clear_line(server, tiny_data, tmp_path):
    data, port = str(tiny_data), str(server.port)
    for options, environment, named in (
        (("--data", str(tmp_path / "gone")), {}, (str(tmp_path / "gone"), "--data")),
        (("--data", data, "--port", port), {}, (port, "--port")),
        (("--data", data), {"SQLENV_CAPACITY": "many"}, ("capacity", "--settings")),
    ):
        result = run("--port", "0", *options, **environment)
        assert result.returncode not in (0, None)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1, result.stderr
        assert all(text in result.stderr for text in named)


def test_settings_are_listed():
    assert "SQLENV_LEASE_S" in run("--settings").stdout
