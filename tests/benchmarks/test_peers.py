"""The comparison with peers: who plays when, what it adds up to, and two of them on a server."""

import json
import sys
from pathlib import Path

import pytest
import typer

from benchmarks.measuring import make_scripts
from benchmarks.peers import __main__ as step_cost
from benchmarks.peers import environments
from benchmarks.peers.__main__ import PEERS, Wave, check_same, main, order, summary
from benchmarks.peers.environments import NotMeasured, Worker, make_environment
from benchmarks.peers.figure import FOLDER, draw
from benchmarks.peers.worker import Episode, Workload, find, read_workload, write_workload
from env_server.questions import QuestionBank
from tests.test_imports import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_every_second_wave_plays_backwards():
    assert order(["a", "b", "c"], 3) == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]


def test_ratios_are_of_waves_of_the_same_number():
    base = [Wave(100, 0.1, 0.1), Wave(100, 0.2, 0.2), Wave(100, 0.1, 0.1)]
    peer = [Wave(100, 0.1, 0.3), Wave(100, 1.0, 0.2), Wave(100, 0.1, 0.7)]
    found = summary(peer, base)
    assert found["cpu_ratio"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert (found["client_cpu_us"], found["server_cpu_us"]) == (4_000.0, 4_000.0)
    assert found["cpu_us"] == 8_000.0


def test_waves_shorter_than_a_tick_of_the_cpus_clock_are_not_measured():
    with pytest.raises(typer.Exit):
        summary([Wave(100, 0.1, 0.1)], [Wave(8, 0.0, 0.0)])


def test_peers_name_players_and_bases_that_exist():
    names = {peer.name for peer in PEERS}
    for peer in PEERS:
        assert peer.base in names
        if peer.player.startswith("players.sqlenv:"):
            assert callable(find(peer.player))


def test_a_player_reads_the_workload_that_was_written(tiny_data, tmp_path):
    scripts = make_scripts(QuestionBank.load(tiny_data), count=3, steps=4)
    workload = Workload(tiny_data, scripts)
    write_workload(tmp_path / "workload.json", workload)
    assert read_workload(str(tmp_path / "workload.json")) == workload
    first = workload.episodes[0]
    assert [kind for kind, _ in first.turns] == ["DESCRIBE", "SAMPLE", "QUERY", "ANSWER"]
    assert first.turns[-1] == ("ANSWER", "42")


def test_an_environment_is_made_once_per_requirements(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    (tmp_path / "peer.txt").write_text("one==1\n")
    runs: list[str] = []

    def noted(name: str, *command: str) -> None:
        runs.append(command[2])
        python = tmp_path / "cache" / "peer" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    monkeypatch.setattr(environments, "_run", noted)
    for _ in range(2):
        make_environment("peer", tmp_path / "cache")
    assert runs == ["venv", "pip"]
    (tmp_path / "peer.txt").write_text("one==2\n")
    make_environment("peer", tmp_path / "cache")
    assert runs == ["venv", "pip"] * 2, "other versions are another environment"


@pytest.mark.slow
def test_a_peer_plays_and_one_that_is_not_there_is_named(tiny_data, tmp_path, monkeypatch, capsys):
    def fail(name: str) -> Path:
        raise NotMeasured(f"its environment {name} can't be made: no index")

    monkeypatch.setattr(step_cost, "make_environment", fail)
    result = tmp_path / "peers.json"
    main(
        peer=["openenv"],
        data=tiny_data,
        episodes=50,  # fewer steps take less than a tick of the clock
        steps=10,
        waves=1,
        json_path=result,
    )
    found = {one["name"]: one for one in json.loads(result.read_text())["peers"]}
    assert [*found] == ["sqlenv", "openenv"]
    assert found["sqlenv"]["steps"] == 500
    assert found["sqlenv"]["cpu_ratio"]["median"] == 1.0
    assert found["openenv"]["not_measured"] == "its environment openenv can't be made: no index"
    assert "not measured: OpenEnv: client and server: its environment" in capsys.readouterr().out


def test_a_wave_that_earns_something_else_ends_the_benchmark(capsys):
    first = Wave(1, 1.0, 1.0, reward=1.0)
    check_same("a", first._replace(reward=1.0 + 1e-9), first)
    with pytest.raises(typer.Exit):
        check_same("b", first._replace(reward=1.5), first)
    assert "a wave of b earned 1.5" in capsys.readouterr().err


def test_the_picture_is_made_of_the_published_results(tmp_path):
    draw(tmp_path / "peers.png", ROOT / FOLDER)
    assert (tmp_path / "peers.png").read_bytes()[:4] == b"\x89PNG"


def test_a_worker_that_ends_says_why(tmp_path):
    with (
        Worker(Path(sys.executable), "worker:nobody", (), log=tmp_path / "log") as worker,
        pytest.raises(NotMeasured, match=r"it ended: AttributeError: .*'nobody'"),
    ):
        worker.ask(None)


@pytest.mark.slow
def test_trls_loop_plays_a_turn_of_every_episode_before_the_next():
    trl_loop = pytest.importorskip("benchmarks.peers.players.trl_loop")
    played: list[str] = []

    class Tools:
        def describe(self, table: str) -> str:
            played.append(f"describe {table}")
            return "columns"

        sample = query = describe

        def answer(self, answer: str) -> str:
            played.append(f"answer {answer}")
            return "over"

    episodes = [Episode(name, [f"DESCRIBE: {name}", "ANSWER: 42"]) for name in ("a", "b")]
    trl_loop.ScriptedTrainer([Tools(), Tools()]).play(episodes)
    assert played == ["describe a", "describe b", "answer 42", "answer 42"]
    failing = [Episode(one.question_id, ["QUERY: x", "SAMPLE: y"]) for one in episodes]
    assert trl_loop.ScriptedTrainer([Tools(), Tools()]).play(failing) == (4, 2)
