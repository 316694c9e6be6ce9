"""`python -m env_server rescore`: the same episodes by other rewards or another standard."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from env_server.audit.rescore import Rescored, rescore
from env_server.audit.verify import verify_run
from env_server.commands import command
from shared.dataset import load_splits
from shared.errors import DataError
from tests.env_server.audit.run_folder import forge, read, record
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.policies import RandomPolicy


def score(path: Path, **options: Any) -> Rescored:
    return asyncio.run(rescore(path, workers=1, **options))


def test_by_its_own_rewards_and_standard_nothing_changes(run_folder: Path) -> None:
    found = score(run_folder).as_json()
    lines = read(run_folder / "episodes.jsonl")
    assert (found["changes"], found["skipped"]) == ([], 0)
    assert sum(phase["episodes"] for phase in found["phases"]) == len(lines)
    for phase in found["phases"]:
        key = phase["phase"], phase["mode"]
        rewards = [line["reward"] for line in lines if (line["phase"], line["mode"]) == key]
        assert phase["mean_reward"] == [round(sum(rewards) / len(rewards), 6)] * 2


def test_sparse_rewards_are_the_verdict_alone(run_folder: Path) -> None:
    found = score(run_folder, rewards="sparse")
    lines = dict(enumerate(read(run_folder / "episodes.jsonl"), start=1))
    assert [change.line for change in found.changes] == [
        number for number, line in lines.items() if line["reward"] != line["correctness"]
    ]
    for change in found.changes:
        line = lines[change.line]
        assert (change.new_reward, change.old_reward) == (line["correctness"], line["reward"])
        assert not change.flipped


class Doubled(RandomPolicy):
    """Answers every question with the gold's rows twice, which only bird accepts of a list."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__()
        splits = load_splits(data_dir).values()
        self.golds = {one.question_id: one.gold_answer for split in splits for one in split}

    def act(self, views: Sequence[EpisodeView]) -> list[str | None]:
        golds = (self.golds[view.question_id] for view in views)
        return [f"ANSWER: {json.dumps(g * 2 if isinstance(g, list) else g)}" for g in golds]


def test_a_run_is_verified_and_rescored_by_the_standard_it_was_played_with(
    tiny_data: Path, tmp_path: Path
) -> None:
    run = record(tiny_data, tmp_path / "run", Doubled(tiny_data), standard="bird")
    lines = read(run / "episodes.jsonl")
    assert {line["outcome"] for line in lines} == {"correct"}
    report = asyncio.run(verify_run(run, workers=1))
    assert (report.problems, report.notes) == ([], [])
    assert score(run).changes == []
    strict = score(run, standard="strict")
    lost = {change.line for change in strict.changes if change.was_correct > change.is_correct}
    assert 0 < len(lost) == sum(phase["lost"] for phase in strict.as_json()["phases"]) < len(lines)


def test_what_can_not_be_scored_is_named(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no reward version '7'; expected one of 2, sparse"):
        score(run_folder, rewards="7")
    with pytest.raises(DataError, match="no standard 'lax'"):
        score(run_folder, standard="lax")
    with pytest.raises(DataError, match="no run at"):
        score(tmp_path / "nothing")
    run = Path(shutil.copytree(run_folder, tmp_path / "run"))
    forge(run / "episodes.jsonl", 4, lambda row: row.update(question_id="nobody's"))
    with pytest.raises(DataError, match=r"line 4 can't be replayed: no question"):
        score(run)
    damaged = (run / "episodes.jsonl").read_bytes().replace(b"nobody", b"somebo")
    (run / "episodes.jsonl").write_bytes(damaged)
    with pytest.raises(DataError, match=r"line 4: the line does not match its sha256"):
        score(run)


def test_the_command_reports_what_changed(run_folder: Path, tmp_path: Path) -> None:
    arguments = ["rescore", str(run_folder), "--rewards", "sparse", "--json"]
    result = CliRunner().invoke(command, [*arguments, str(tmp_path / "rescored.json")])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "rescored.json").read_text())
    assert found["rewards"] == "sparse"
    assert {one["phase"] for one in found["phases"]} == {
        "random", "before", "train", "eval", "after",
    }  # fmt: skip
    result = CliRunner().invoke(command, ["rescore", str(run_folder), "--standard", "lax"])
    assert result.exit_code == 1
    assert "error: no standard 'lax'; expected one of " in result.output
