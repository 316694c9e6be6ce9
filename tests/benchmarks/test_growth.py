"""The benchmark of growth measures real servers, keeps earlier parts and draws what it has."""

import json
import sys
from pathlib import Path

import pytest
import typer
from matplotlib.image import imread

from benchmarks.growth import measure
from benchmarks.growth.__main__ import main
from benchmarks.growth.figure import draw

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

WAITS = {"steps": 9, "steps_per_s": 900.0, "p50_ms": 2.0, "p99_ms": 30.0}
REPORT = {
    "latency": [{"episodes": 1, **WAITS}, {"episodes": 64, **WAITS}],
    "runaway": {"episodes": 64, "alone": WAITS, "beside": WAITS, "p99_more_ms": 0.0},
    "rows": [{"rows": rows, "key": WAITS, "scan": WAITS} for rows in (100, 10_000)],
    "questions": [
        {"questions": count, "start_s": 1.0, "cpu_s": 0.5, "mib": 80.0, "peak_mib": 90.0}
        for count in (1_000, 1_000_000)
    ],
    "open": {"memory": [{"open": count, "mib": 80.0 + count} for count in (0, 100)]},
    "steps": {"memory": [{"steps": count, "mib": 80.0} for count in (0, 100)]},
}


def test_the_median_and_p99_of_the_steps() -> None:
    found = measure.Steps.of([n / 1000 for n in range(100, 0, -1)], wall_s=4.0)
    assert found == measure.Steps(steps=100, steps_per_s=25.0, p50_ms=50.0, p99_ms=99.0)


def test_more_episodes_than_scripts_play_at_once(tiny_data: Path) -> None:
    found = measure.latency(tiny_data, [1, 70], seconds=1.0)
    assert [row["episodes"] for row in found] == [1, 70]
    assert found[1]["steps"] >= 70


def test_a_runaway_query_runs_beside_every_second_round(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    step = measure.SQLEnvClient.step

    async def noted(client: object, episode_id: str, action: str) -> object:
        sent.append(action)
        return await step(client, episode_id, action)  # type: ignore[arg-type]

    monkeypatch.setattr(measure.SQLEnvClient, "step", noted)
    found = measure.beside_runaway(tiny_data, episodes=4, seconds=0.3, rounds=2)
    assert sent.count(measure.ENDLESS) >= 2
    assert found["alone"]["steps"] > 0 < found["beside"]["steps"]
    assert found["p99_more_ms"] == found["beside"]["p99_ms"] - found["alone"]["p99_ms"]


def test_rows_and_questions_are_made_in_the_numbers_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "growth.json"
    path.write_text(json.dumps({"open": REPORT["open"]}))
    main(part=["rows", "questions"], seconds=0.05, rows=[30], questions=[3], json_path=path)
    found = json.loads(path.read_text())
    assert found["rows"][0]["rows"] == 30
    assert {found["rows"][0][way]["steps"] > 0 for way in ("key", "scan")} == {True}
    assert found["questions"][0]["questions"] == 3
    assert found["questions"][0]["mib"] > 1
    assert found["open"] == REPORT["open"], "a part that is not measured stays"


def test_every_episode_opened_is_still_there(tiny_data: Path) -> None:
    found = measure.open_memory(tiny_data, 500)
    assert found["open"] == 500 + measure.BATCH, "with the batch before the first"
    assert found["history_bytes_each"] > 500
    assert [one["open"] for one in found["memory"]] == [0, 250, 500]
    parts = found["history_bytes_each"] + found["beyond_history_bytes_each"]
    assert parts == pytest.approx(found["bytes_each"])


def test_memory_is_sampled_over_the_steps(tiny_data: Path) -> None:
    found = measure.memory_over_steps(tiny_data, 3_000)
    assert [one["steps"] for one in found["memory"]] == [960, 1920, 2880, 3840]
    assert found["steps"] == 3840
    assert found["bytes_per_step"] < 10_000


def test_the_figure_has_a_panel_or_two_per_part(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.png", tmp_path / "part.png"
    draw(REPORT, whole)
    draw({"rows": REPORT["rows"], "cpus": 2}, part)
    assert imread(whole).shape[0] == 3 * imread(part).shape[0], "rows of three panels"


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        main(part=["waits"])
    assert "no part 'waits'; the parts are latency, " in capsys.readouterr().err
