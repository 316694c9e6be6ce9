"""What `ServerProcess` measures and reports; tests/env_server/test_server_process.py runs the real
server through it."""

import math
import sys
import time
from pathlib import Path

import psutil
import pytest

from shared.errors import ServerStartError
from shared.server_process import ServerProcess

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def stand_in(tmp_path: Path, code: str, **options: object) -> ServerProcess:
    log_path = tmp_path / "logs" / "server.log"
    return ServerProcess(tmp_path, log_path, command=[sys.executable, "-c", code], **options)


@NEEDS_PROC
def test_the_servers_cpu_time_includes_its_workers(tmp_path):
    """A stand-in whose worker uses a CPU until the end, under a name with brackets."""
    burn = "import ctypes\nctypes.CDLL(None).prctl(15, b'a ) S 1 (b', 0, 0, 0)\nwhile True: pass"
    server = stand_in(
        tmp_path, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    )
    assert math.isnan(server.cpu_s())
    try:
        started = time.monotonic()
        server.start()
        while not server.cpu_s() >= 0.3:
            assert time.monotonic() < started + 30, server.log()
            time.sleep(0.05)
        # two processes, of which one waits
        assert server.cpu_s() <= 2 * (time.monotonic() - started)
        assert len(psutil.Process(server.pid).children(recursive=True)) == 1
    finally:
        server.stop()
    assert math.isnan(server.cpu_s())


def test_an_announcement_of_an_earlier_start_is_not_this_ones(tmp_path):
    server = stand_in(tmp_path, "import time; print('loading', flush=True); time.sleep(60)")
    server.log_path.parent.mkdir()
    server.log_path.write_text("SQLEnv serves http://127.0.0.1:1 data=x\n")
    server.start()
    while "loading" not in server.log():
        time.sleep(0.01)
    with pytest.raises(ServerStartError, match=r"(?s)not ready within 1 s.*loading"):
        server.wait_ready(1)
    assert server.url == ""
    assert server.stop() == -15
    assert server.stop() is None


def test_settings_replace_those_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SQLENV_CAPACITY", "7")
    code = "import os; print({k: v for k, v in os.environ.items() if k.startswith('SQLENV_')})"
    for settings, expected in (
        (None, "'SQLENV_CAPACITY': '7'"),
        ({"lease_s": 3}, "{'SQLENV_LEASE_S': '3'}"),
    ):
        server = stand_in(tmp_path, code, settings=settings)
        server.start()
        assert server.wait() == 0
        server.stop()
        assert expected in server.log().splitlines()[-1]
