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

SLOW = (  # well under the limits on SQL
    "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500000) "
    "SELECT count(*) FROM n"
)


@pytest.fixture(scope="module")
def server(tiny_data: Path) -> Iterator[ServerProcess]:
    with running_server(tiny_data, "--workers", "1", max_body_bytes=4096) as server:
        yield server


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
    """Wait until the SQL of the step that this thread sent is queued or with a worker."""
    while "sqlenv_sql_queue_depth 1.0" not in http.get("/metrics").text:
        assert step.is_alive()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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


def test_it_announces_its_url_and_data(server: ServerProcess, tiny_data: Path) -> None:
    metadata = ServerMetadata.model_validate_json(httpx.get(server.url + "/metadata").content)
    questions = sum(metadata.questions.values())
    assert (
        f"SQLEnv serves {server.url} data={tiny_data} databases={metadata.databases} "
        f"questions={questions} standard=strict digest={metadata.digest[:12]}\n"
    ) in server.log()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_step_in_flight_and_exits_with_0(tiny_data: Path, sig: int) -> None:
    with (
        running_server(tiny_data, "--workers", "1") as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        workers = children(server.pid)
        assert workers
        http.post("/reset", json={"episode_id": "e"})
        replies: list[httpx.Response] = []
        step = threading.Thread(
            target=lambda: replies.append(
                http.post("/step", json={"episode_id": "e", "action": SLOW})
            )
        )
        with stopped_workers(server):
            step.start()
            until_in_flight(http, step)
            server.send_signal(signal.Signals(sig))
        assert server.wait(30) == 0, server.log()
        step.join()
        assert replies[0].status_code == 200
        assert "1500000" in replies[0].json()["observation"]["result"]
        assert not [pid for pid in workers if alive(pid)]
        assert "Traceback" not in server.log()


def test_draining_continues_episodes_but_is_not_ready(tiny_data: Path) -> None:
    with running_server(tiny_data, drain_s=30) as server, httpx.Client(base_url=server.url) as http:
        http.post("/reset", json={"episode_id": "e"})
        server.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while http.get("/ready").status_code == 200:
            assert time.monotonic() < deadline
        assert http.post("/reset").status_code == 503
        assert (
            http.post("/step", json={"episode_id": "e", "action": "QUERY: SELECT 1"}).status_code
            == 200
        )
        began = time.monotonic()
        assert server.stop() == 0, "a second signal ends the draining"
        assert time.monotonic() - began < 15


def test_closing_finishes_requests_in_flight_and_refuses_others(tiny_data: Path) -> None:
    # exceeds the limit on VM steps, which is an ordinary reply
    longer = SLOW.replace("1500000", "9000000")
    with (
        running_server(tiny_data, "--workers", "1") as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        http.post("/reset", json={"episode_id": "e"})
        replies: list[httpx.Response] = []
        body = {"episode_id": "e", "action": longer, "step": 0}
        step = threading.Thread(
            target=lambda: replies.append(httpx.post(server.url + "/step", json=body, timeout=60))
        )
        with stopped_workers(server):
            step.start()
            until_in_flight(http, step)
            server.send_signal(signal.SIGTERM)
            while http.get("/ready").status_code == 200:
                assert step.is_alive()
            refused = [
                http.post("/reset", json={"episode_id": "f"}),
                http.post(
                    "/step", json={"episode_id": "e", "action": "QUERY: SELECT 1", "step": 1}
                ),
                http.post("/step_batch", json={"steps": [body]}),
            ]
            assert step.is_alive()
        assert [reply.status_code for reply in refused] == [503, 503, 200]
        errors = [refused[0].json(), refused[1].json(), refused[2].json()["results"][0]]
        assert [(one["error"]["code"], one["error"]["retryable"]) for one in errors] == [
            ("not_ready", True)
        ] * 3
        step.join()
        assert replies[0].json()["info"]["error_code"] == "sql_budget"
        assert server.wait(30) == 0, server.log()


def test_json_log(tiny_data: Path) -> None:
    with running_server(tiny_data, "--workers", "1", log_format="json") as server:
        body = {"episode_id": "one", "seed": 1, "actions": ["QUERY: SELECT 1"]}
        assert httpx.post(server.url + "/reset", json=body).status_code == 200
        server.stop()
        lines = [json.loads(line) for line in server.log().splitlines()]
    assert lines[0]["message"].startswith("SQL workers: processes ")
    assert lines[1]["message"].startswith(f"SQLEnv serves {server.url} "), (
        "the announcement is JSON too"
    )
    assert {
        "episode_id": "one",
        "message": "rebuilt from 1 actions",
        "level": "info",
    }.items() <= lines[2].items()
    assert any("episodes ended" in line["message"] for line in lines)


# -- starts that fail: one clear line, no traceback


def assert_fails(result: "subprocess.CompletedProcess[str]", *named: str) -> None:
    assert result.returncode not in (0, None)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    for text in named:
        assert text in result.stderr


def test_a_missing_data_directory(tmp_path: Path) -> None:
    assert_fails(
        run("--data", str(tmp_path / "gone"), "--port", "0"), str(tmp_path / "gone"), "--data"
    )


def test_a_port_in_use(server: ServerProcess, tiny_data: Path) -> None:
    assert_fails(
        run("--data", str(tiny_data), "--port", str(server.port)), str(server.port), "--port"
    )


def test_a_bad_setting(tiny_data: Path) -> None:
    assert_fails(run("--data", str(tiny_data), SQLENV_CAPACITY="many"), "capacity", "many")
