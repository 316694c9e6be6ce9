"""`python -m env_server rescore`: the same episodes by other rewards or another standard."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from env_server.audit.rescore import Rescored, rescore, tally
from env_server.audit.verify import verify_run
from env_server.commands import command
from shared.dataset import load_splits
from shared.errors import DataError
from tests.env_server.audit.conftest import forge, read, record
from trainer.rollout.episode import Episode
from trainer.rollout.generators.policies import RandomPolicy


def score(path: Path, **options: Any) -> Rescored:
    return asyncio.run(rescore(path, **options))


@pytest.mark.parametrize(("rewards", "paid"), [("2", "reward"), ("sparse", "correctness")])
def test_rewards_are_those_of_the_version(run_folder, rewards, paid):
    """By its own rewards and standard nothing changes; sparse rewards are the verdict alone."""
    found = score(run_folder, rewards=rewards)
    lines = dict(enumerate(read(run_folder / "episodes.jsonl"), start=1))
    assert (found.flipped, found.skipped) == ([], 0)
    scores = [one for scores in found.scores.values() for one in scores]
    assert [one.line for one in scores] == list(lines)
    for one in scores:
        line = lines[one.line]
        assert (one.old_reward, one.new_reward) == (line["reward"], line[paid])


class Doubled(RandomPolicy):
    """Answers every question with the gold's rows twice, which only bird accepts of a list."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__()
        splits = load_splits(data_dir).values()
        self.golds = {one.question_id: one.gold_answer for split in splits for one in split}

    def act(self, episodes: Sequence[Episode]) -> list[str | None]:
        golds = (self.golds[one.row.question_id] for one in episodes)
        return [f"ANSWER: {json.dumps(g * 2 if isinstance(g, list) else g)}" for g in golds]


def test_a_run_is_verified_and_rescored_by_the_standard_it_was_played_with(tiny_data, tmp_path):
    run = record(tiny_data, tmp_path / "run", Doubled(tiny_data), standard="bird")
    lines = read(run / "episodes.jsonl")
    assert {line["outcome"] for line in lines} == {"correct"}
    report = asyncio.run(verify_run(run))
    assert (report.problems, report.notes) == ([], [])
    assert score(run).flipped == []
    strict = score(run, standard="strict")
    lost = [one for one in strict.flipped if one.was_correct > one.is_correct]
    assert 0 < len(lost) < len(lines)
    assert sum(tally(scores)["lost"] for scores in strict.scores.values()) == len(lost)
    assert not any(tally(scores)["gained"] for scores in strict.scores.values())


def test_what_can_not_be_scored_is_named(run_folder, tmp_path):
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


def test_the_command_prints_a_row_per_phase(run_folder):
    result = CliRunner().invoke(command, ["rescore", str(run_folder), "--rewards", "sparse"])
    assert result.exit_code == 0, result.output
    for phase in ("random", "before", "train", "eval", "after"):
        assert phase in result.output
    assert "episodes, 0 verdicts changed" in result.output
