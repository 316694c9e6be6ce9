"""The conformance suite against a real server, its hostile queries, and equal bytes."""

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

from env_server.app import create_app
from env_server.settings import Settings
from shared.server_process import running_server
from tests.conformance import __main__ as command
from tests.conformance import fairness
from tests.conformance.check import CheckResult, run
from tests.conformance.corpus import DIRECTORY, SHOWN, HostileQuery, join, load
from tests.conformance.episodes import determinism, play
from tests.conformance.jail import checks as jail_checks
from tests.conformance.suite import GROUPS, all_checks
from tests.conformance.wire import Reply, Wire
from tests.conftest import write_data
from tests.test_imports import ROOT

MAX_CPU_S = 2.5
MAX_BYTES = 200_000_000
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")


def invoke(*options: str) -> Result:
    app = typer.Typer()
    app.command()(command.main)
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, options)


class Workers:
    """A server's worker processes and what each action costs them. A killed one is a failure."""

    def __init__(self, server_pid: int) -> None:
        self.server_pid = server_pid
        self.pids = self.find()
        self.cpu_s: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}

    def find(self) -> list[int]:
        children = Path(f"/proc/{self.server_pid}/task/{self.server_pid}/children")
        return sorted(map(int, children.read_text().split()))

    def clocks(self) -> list[float]:
        return [time.clock_gettime(~pid << 3 | 2) for pid in self.pids]

    @contextmanager
    def measured(self, action: str) -> Iterator[None]:
        """Record a try's largest CPU time of a worker and its peak memory, other steps included; of
        several tries, the largest."""
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        began = self.clocks()
        yield
        assert self.find() == self.pids, f"{action} cost a worker its life"
        spent = max(after - before for before, after in zip(began, self.clocks(), strict=True))
        peak = max(
            1024 * int(line.split()[1])
            for pid in self.pids
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmHWM:")
        )
        self.cpu_s[action] = max(spent, self.cpu_s.get(action, 0.0))
        self.peak_bytes[action] = max(peak, self.peak_bytes.get(action, 0))


class Measured(Wire):
    """Measures each step that a check takes, and not those of its bystander."""

    def __init__(self, client: httpx.AsyncClient, workers: Workers) -> None:
        super().__init__(client)
        self.workers = workers

    async def step(self, episode: Any, action: Any, step: int = 0) -> Reply:
        with self.workers.measured(str(action)[:200]):
            return await super().step(episode, action, step)


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@linux
def test_hostile_queries_cost_little_and_harm_nobody(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    before = digests(tmp_path)

    async def attack(url: str, workers: Workers) -> list[CheckResult]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return await run(Measured(client, workers), jail_checks(load()))

    with running_server(data, "--workers", "2") as server:
        assert server.pid is not None
        workers = Workers(server.pid)
        findings = asyncio.run(attack(server.url, workers))
        assert "Traceback" not in server.log()
    assert [finding for finding in findings if finding.status != "ok"] == []
    assert len(findings) == len(load()) + 1
    assert len(workers.cpu_s) > 100
    assert {name: cpu for name, cpu in workers.cpu_s.items() if cpu > MAX_CPU_S} == {}
    assert {name: peak for name, peak in workers.peak_bytes.items() if peak > MAX_BYTES} == {}
    assert max(workers.cpu_s.values()) > 0.1, "nothing was measured"
    assert digests(tmp_path) == before


@pytest.mark.parametrize(
    "groups",
    [
        ["play"],
        pytest.param([group for group in GROUPS if group != "hostile"], marks=pytest.mark.slow),
    ],
    ids=["play", "all"],
)
def test_the_command_passes_and_prints_each_check(
    tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch, groups: list[str]
) -> None:
    monkeypatch.setattr(fairness, "ATTACK_S", 1.0)
    report = tmp_path / "report.json"
    with running_server(tiny_data, "--workers", "2", head_timeout_s=2) as server:
        to = ("--url", server.url, "--data", str(tiny_data), "--json", str(report))
        done = invoke(*to, "--only", ", ".join(groups))
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text())
    assert found["ok"] is True
    names = [check.name for check in all_checks([]) if check.group in groups]
    assert [finding["name"] for finding in found["findings"]] == names
    assert all(f": {name} (" in done.stdout for name in names)
    assert "0 failed" in done.stdout


def test_the_command_names_what_failed(tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = HostileQuery("jail", "wrongly expected", "w", "SELECT 1 AS one", ("sql_denied",))
    monkeypatch.setattr(command, "load", lambda: [query])
    with running_server(tiny_data, "--workers", "1") as server:
        done = invoke("--url", server.url, "--only", "hostile")
    assert done.exit_code == 1
    assert "FAIL hostile: wrongly expected" in done.stdout
    assert "must be sql_denied, not shown" in done.stdout


def test_a_url_of_something_else_is_one_clear_line(tiny_data: Path) -> None:
    with running_server(tiny_data, "--workers", "1") as server:
        done = invoke("--url", f"{server.url}/somewhere", "--only", "play")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert "somewhere" in done.stderr
        done = invoke("--url", server.url, "--only", "play", "--json", "/dev/null/a.json")
        assert done.exit_code == 1
        assert "0 failed" in done.stdout
        assert "error: can't write" in done.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--url", "http://127.0.0.1:9"], "is a server running?"),
        (["--url", "http://127.0.0.1:9", "--only", "nonsense"], "nonsense"),
        (["--url", "http://127.0.0.1:9", "--data", "/no/such/place"], "/no/such/place"),
        (["--url", "http://host:port"], "no URL"),
    ],
)
def test_what_cannot_be_checked_is_one_clear_line(options: list[str], named: str) -> None:
    done = invoke(*options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert named in done.stderr


OUTCOMES = {"no_such_table", "sql_error", "sql_denied", "sql_budget", "sql_killed", SHOWN}


def test_every_query_is_complete_and_fits_an_action() -> None:
    queries = load()
    assert len({query.name for query in queries}) == len(queries) == 149
    table = (DIRECTORY / "README.md").read_text().partition("| defence | |")[2]
    described = set(re.findall(r"^\| ([a-zA-Z -]+?) \| ", table, re.MULTILINE))
    for query in queries:
        sql = query.statement('odd "name"', "it's", "/tmp/it's")
        assert not re.search(r"@\w+@", sql), query.name
        assert len(sql) <= 20_000, query.name
        assert query.what
        assert query.defence in described
        assert set() < set(query.expect) <= OUTCOMES, query.name
        assert (SHOWN in query.expect) == (query.shows is not None), query.name


def test_parts_are_repeated_and_numbered() -> None:
    assert join("as it is, with @i@") == "as it is, with @i@"
    assert join(["a", ["b@i@", 3], "c", [["x", 2], "@h@ ", 2]]) == "ab1b2b3cxx0 xx1 "


# -- equal bytes in any process

DATA = ROOT / "data"
SEEDS = range(10)


async def played(wire: Wire) -> list[list[bytes]]:
    return [await play(wire, seed) for seed in SEEDS]


async def in_process() -> list[list[bytes]]:
    app = create_app(Settings(data_dir=DATA, sql_workers=1))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        return await played(Wire(http))


async def over_http(url: str) -> list[list[bytes]]:
    """Also in other orders, concurrently and under load: the checks of determinism."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        results = await run(Wire(http), determinism.checks)
        assert {result.status for result in results} == {"ok"}, results
        return await played(Wire(http))


@pytest.mark.slow
def test_every_process_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asyncio.run(in_process())
    replies = b"".join(reply for episode in expected for reply in episode)
    for text in (b'"sql_budget"', b'"sql_denied"', b"there are more", b'"outcome":"wrong"'):
        assert text in replies, "the script covers errors and budgets"
    for hash_seed, workers in (("0", "1"), ("1", "2"), ("4242", "3")):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        with running_server(DATA, "--workers", workers) as server:
            assert asyncio.run(over_http(server.url)) == expected
