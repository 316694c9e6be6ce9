"""Every file of examples/ runs against a server, and says what to do without one."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.server_process import ServerProcess, child_environment, running_server
from tests.test_imports import ROOT
from tests.trainer.model_families import tiny_model, tiny_tokenizer

FILES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh"))
# file -> the package or program that it needs, and what its output contains
EXPECTED = {
    "async_client.py": ("httpx", "64 episodes: {'"),
    "curl.sh": ("curl", '"outcome":"wrong"'),
    "grpo_min.py": ("torch", "step  1  right "),
    "gymnasium_agent.py": ("gymnasium", "terminated: True truncated: False outcome: wrong"),
    "httpx_agent.py": ("httpx", "outcome: wrong reward: 0.0"),
    "mcp_agent.py": ("mcp", "outcome: wrong reward: 0.0"),
    "openenv_agent.py": ("openenv", "done: True outcome: wrong"),
    "sync_client.py": ("httpx", "outcome: wrong"),
    "trl_tools.py": ("trl", "reward: 0.0 tool calls: 0.0"),
}


@pytest.fixture(scope="module")
def server(tiny_data: Path) -> Iterator[ServerProcess]:
    with running_server(tiny_data, "--workers", "1") as server:
        yield server


def test_each_has_its_expected_output():
    assert {file.name for file in FILES} == EXPECTED.keys()


def run(name: str, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run an example, or skip the test if its package is not installed."""
    package, _ = EXPECTED[name]
    if not shutil.which(package):
        pytest.importorskip(package)
    command = ["bash" if name.endswith(".sh") else sys.executable, ROOT / "examples" / name]
    return subprocess.run(
        [*command, *arguments],
        env=child_environment(), cwd=folder, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_it_runs(server, tmp_path, name):
    arguments = [server.url]
    if name == "trl_tools.py":
        tiny_model("qwen3").save_pretrained(tmp_path / "model")
        tiny_tokenizer("qwen3").save_pretrained(tmp_path / "model")
        arguments += [str(tmp_path / "model"), "1"]
    if name == "grpo_min.py":  # it has a server of its own
        arguments = ["--steps", "1", "--questions", "2", "--groups", "1", "--group", "2"]
    done = run(name, tmp_path, *arguments)
    assert (name == "grpo_min.py") == (tmp_path / "grpo_min.png").exists()
    assert done.returncode == 0, done.stderr[-3000:]
    assert EXPECTED[name][1] in done.stdout


@pytest.mark.slow
def test_without_a_key_or_a_server_it_says_what_to_do_in_one_line(tiny_data, tmp_path):
    names = [name for name in EXPECTED if name.endswith("_client.py") or "_agent" in name]
    with running_server(tiny_data, "--workers", "1", api_key="k" * 16) as server:
        ended = [run(name, tmp_path, server.url) for name in names if name != "openenv_agent.py"]
    ended.append(run("httpx_agent.py", tmp_path, "http://127.0.0.1:1"))
    for done in ended:
        assert done.returncode == 1
        assert re.fullmatch(r"error: .*SQLENV_API_KEY.*\n", done.stderr)
    assert "python -m env_server" in ended[-1].stderr
