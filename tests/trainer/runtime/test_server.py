"""The run's own server process, with a stand-in for the server that starts in milliseconds."""

import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import alive, eventually
from trainer.runtime.server import SupervisedServer

STAND_IN = """
import http.server, subprocess, sys
worker = subprocess.Popen(["sleep", "600"])
print("worker", worker.pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
port = int(sys.argv[sys.argv.index("--port") + 1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(f"SQLEnv serves http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


def server(tmp_path: Path, code: str = STAND_IN) -> SupervisedServer:
    script = tmp_path / "server.py"
    script.write_text(code)
    command = [sys.executable, str(script)]
    return SupervisedServer(tmp_path, tmp_path / "logs" / "server.log", command=command)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def worker_of(running: SupervisedServer) -> int:
    return int(running.log_path.read_text().split("worker ")[-1].split()[0])


def test_it_answers_inside_the_block_and_nothing_is_left_after(tmp_path):
    with server(tmp_path) as running:
        assert answers(running.url)
        pid, worker = running.pid, worker_of(running)
    assert not answers(running.url)
    assert not alive(pid)
    eventually(lambda: not alive(worker))


def test_a_server_that_dies_comes_back_at_the_same_url(tmp_path, caplog):
    with server(tmp_path) as running:
        worker, pid = worker_of(running), running.pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: running.restarts == 1 and answers(running.url))
        eventually(lambda: not alive(worker))
        assert "restart 1" in caplog.text


def test_a_restart_that_fails_is_tried_again(tmp_path, caplog, monkeypatch):
    start, failures = SupervisedServer.start, [OSError("cannot fork")]

    def flaky(running: SupervisedServer) -> None:
        if failures:
            raise failures.pop()
        start(running)

    with server(tmp_path) as running:
        monkeypatch.setattr(SupervisedServer, "start", flaky)
        os.kill(running.pid, signal.SIGKILL)
        eventually(lambda: running.restarts == 2 and answers(running.url))
        assert "restart 1 failed: cannot fork" in caplog.text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a Linux facility")
def test_a_killed_trainer_leaves_no_server_behind(tmp_path):
    (tmp_path / "server.py").write_text(STAND_IN)
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from trainer.runtime.server import SupervisedServer\n"
        f"s = SupervisedServer(Path('.'), Path({str(tmp_path / 'log')!r}), "
        f"command=[sys.executable, {str(tmp_path / 'server.py')!r}]).__enter__()\n"
        "print(s.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    import subprocess

    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False
    )
    assert found.returncode == -signal.SIGKILL, found.stderr
    eventually(lambda: not alive(int(found.stdout)))
