"""The comparison with peers: who plays when, what it adds up to, and two of them on a server."""

import json
import sys
from pathlib import Path

import pytest
import typer

from benchmarks.measuring import Timing
from benchmarks.peers import environments, measure
from benchmarks.peers.__main__ import main
from benchmarks.peers.environments import NotMeasured, make_environment
from benchmarks.peers.measure import Measurement, workload_of
from benchmarks.peers.player import Episode, read_workload, write_workload
from benchmarks.peers.processes import Worker
from benchmarks.peers.report import PEERS, Wave, order, summary
from benchmarks.peers.worker import find

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

OWN = [peer for peer in PEERS if peer.environment is None]


def wave(client_s: float, server_s: float, wall_s: float, steps: int = 100) -> Wave:
    return Wave(Timing("", steps, wall_s, client_s), Timing("", steps, wall_s, server_s))


def test_every_second_wave_plays_backwards() -> None:
    assert order(["a", "b", "c"], 3) == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]


def test_ratios_are_of_waves_of_the_same_number() -> None:
    base = [wave(0.1, 0.1, 1.0), wave(0.2, 0.2, 4.0), wave(0.1, 0.1, 1.0)]
    peer = [wave(0.1, 0.3, 2.0), wave(1.0, 0.2, 8.0), wave(0.1, 0.7, 3.0)]
    found = summary(peer, base)
    assert found["cpu_ratio"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert found["time_ratio"] == {"median": 2.0, "min": 2.0, "max": 3.0}
    assert (found["client_cpu_us"], found["server_cpu_us"]) == (4_000.0, 4_000.0)
    assert found["cpu_us"] == 8_000.0
    assert found["steps_per_s"] == 23.1  # 300 in 13 s


def test_waves_shorter_than_a_tick_of_the_cpus_clock_are_not_measured() -> None:
    with pytest.raises(typer.Exit):
        summary([wave(0.1, 0.1, 1.0)], [wave(0.0, 0.0, 1.0, steps=8)])


def test_peers_name_players_and_requirements_that_exist() -> None:
    names = {peer.name for peer in PEERS}
    for peer in PEERS:
        assert peer.base in names
        assert peer in OWN or (environments.REQUIREMENTS / f"{peer.environment}.txt").exists()
    for peer in OWN:
        if peer.player.startswith("players.sqlenv:"):
            assert callable(find(peer.player))


def test_a_player_reads_the_workload_that_was_written(tiny_data: Path, tmp_path: Path) -> None:
    workload = workload_of(tiny_data, episodes=3, steps=4)
    write_workload(tmp_path / "workload.json", workload)
    assert read_workload(str(tmp_path / "workload.json")) == workload
    first = workload.episodes[0]
    assert [kind for kind, _ in first.turns] == ["DESCRIBE", "SAMPLE", "QUERY", "ANSWER"]
    assert first.turns[-1] == ("ANSWER", "42")


def test_an_environment_is_made_once_per_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_two_peers_play_and_one_that_is_not_there_is_named(
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(name: str, cache: Path) -> Path:
        raise NotMeasured(f"its environment {name} can't be made: no index")

    monkeypatch.setattr(measure, "make_environment", fail)
    result = tmp_path / "peers.json"
    main(
        peer=["httpx", "openenv"],
        data=tiny_data,
        episodes=50,  # fewer steps take less than a tick of the clock
        steps=10,
        waves=1,
        json_path=result,
    )
    found = {one["name"]: one for one in json.loads(result.read_text())["peers"]}
    assert [*found] == ["sqlenv", "httpx", "openenv"]
    assert [found[name]["steps"] for name in ("sqlenv", "httpx")] == [500, 500]
    assert found["sqlenv"]["time_ratio"]["median"] == 1.0 > 0.0 < found["httpx"]["steps_per_s"]
    assert "httpx" in found["httpx"]["versions"]
    assert found["openenv"]["not_measured"] == "its environment openenv can't be made: no index"
    assert "not measured: OpenEnv: client and server: its environment" in capsys.readouterr().out


class Fake:
    """A player whose waves earn given rewards."""

    def __init__(self, *rewards: float) -> None:
        self._rewards = [*rewards]

    def cpu_s(self) -> float:
        return 0.0

    def ask(self, request: None) -> float:
        return self._rewards.pop(0)


def test_waves_that_earn_something_else_end_the_benchmark(
    tiny_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Measurement(workload_of(tiny_data, episodes=1, steps=3), Path())
    players = {"a": Fake(1.0, 1.0), "b": Fake(1.0 + 1e-9, 1.5)}
    for name, player in players.items():
        run.players[name] = player, None  # type: ignore[assignment]
    for name in order(["a", "b"], 1):
        run.play(name)
    with pytest.raises(typer.Exit):
        run.play("b")
    assert "a wave of b earned 1.5" in capsys.readouterr().err


def test_a_worker_that_ends_says_why(tmp_path: Path) -> None:
    with (
        Worker(Path(sys.executable), "player:nobody", (), log=tmp_path / "log") as worker,
        pytest.raises(NotMeasured, match=r"it ended: AttributeError: .*'nobody'"),
    ):
        worker.ask(None)


@pytest.mark.slow
def test_trls_loop_plays_a_turn_of_every_episode_before_the_next() -> None:
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
