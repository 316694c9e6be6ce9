"""`python -m env_server rescore`: the same episodes by other rewards or another standard."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from env_server.audit import rescore as module
from env_server.audit.rescore import Rescored, Source, rescore
from env_server.audit.verify import verify_run
from env_server.commands import command
from env_server.verifier import Gold, Standard
from env_server.verifier.reading import IsResult, no_result
from shared.dataset import load_splits
from shared.errors import DataError
from tests.env_server.audit.run_folder import forge, read, record, write
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.policies import RandomPolicy


@pytest.fixture(scope="module")
def run_folder(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tiny_data, tmp_path_factory.mktemp("runs") / "run")


def score(path: Path, **options: Any) -> Rescored:
    return asyncio.run(rescore(Source.open(path), workers=1, **options))


def test_by_its_own_rewards_and_standard_nothing_changes(run_folder: Path) -> None:
    found = score(run_folder)
    lines = read(run_folder / "episodes.jsonl")
    assert found.changes == []
    assert found.skipped == 0
    assert sum(tally.episodes for tally in found.tallies.values()) == len(lines)
    for (phase, mode), tally in found.tallies.items():
        rewards = [
            line["reward"] for line in lines if (line["phase"], line["mode"]) == (phase, mode)
        ]
        assert tally.as_json()["mean_reward"] == [round(sum(rewards) / len(rewards), 6)] * 2


def test_sparse_rewards_are_the_verdict_alone(run_folder: Path) -> None:
    found = score(run_folder / "episodes.jsonl", rewards="sparse")
    lines = dict(enumerate(read(run_folder / "episodes.jsonl"), start=1))
    assert {change.line for change in found.changes} == {
        number for number, line in lines.items() if line["reward"] != line["correctness"]
    }
    for change in found.changes:
        assert change.new_reward == lines[change.line]["correctness"]
        assert change.old_reward == lines[change.line]["reward"]
        assert not change.flipped


def test_another_standard_flips_the_verdicts_that_it_must(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One standard accepts every answer, the other what ours accepts, except numbers."""

    class Generous(Standard):
        def answer(self, text: str, gold: Gold, is_result: IsResult = no_result) -> bool:
            return True

    class NoNumbers(Standard):
        def answer(self, text: str, gold: Gold, is_result: IsResult = no_result) -> bool:
            number = gold.answer_type in ("integer", "float")
            return Standard.answer(self, text, gold, is_result) and not number

    ours = module.STANDARDS["strict"]
    makers = {"generous": Generous, "no numbers": NoNumbers}
    others = {name: make(name, "", ours.accepts, ours.result) for name, make in makers.items()}
    monkeypatch.setattr(module, "STANDARDS", others)
    lines = dict(enumerate(read(run_folder / "episodes.jsonl"), start=1))
    found = score(run_folder, standard="generous")
    flipped = {change.line for change in found.changes if change.flipped}
    assert flipped == {number for number, line in lines.items() if line["outcome"] == "wrong"}
    assert all(
        change.new_reward == pytest.approx(change.old_reward + 1.0) for change in found.changes
    )
    assert sum(tally.gained for tally in found.tallies.values()) == len(flipped) > 0
    assert sum(tally.lost for tally in found.tallies.values()) == 0
    lost = [change for change in score(run_folder, standard="no numbers").changes if change.flipped]
    assert all(
        lines[change.line]["outcome"] == "correct" and not change.is_correct for change in lost
    )


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
    lost = {change.line for change in score(run, standard="strict").changes}
    assert 0 < len(lost) < len(lines)
    # recorded before the standard was: it is strict, and the replay shows that it was not
    config = json.loads((run / "config.json").read_text())
    del config["config"]["standard"]
    write(run / "config.json", config)
    found = {problem.line for problem in asyncio.run(verify_run(run, workers=1)).problems}
    assert lost <= found


def test_what_can_not_be_scored_is_named(run_folder: Path, tmp_path: Path, tiny_data: Path) -> None:
    with pytest.raises(DataError, match="no reward version '7'; expected one of 2, sparse"):
        score(run_folder, rewards="7")
    with pytest.raises(DataError, match="no standard 'lax'"):
        score(run_folder, standard="lax")
    with pytest.raises(DataError, match="no file at"):
        Source.open(tmp_path / "nothing.jsonl")
    alone = tmp_path / "alone.jsonl"
    shutil.copy(run_folder / "episodes.jsonl", alone)
    with pytest.raises(
        DataError, match=r"no config\.json beside it: pass --data and --step-budget"
    ):
        Source.open(alone)
    found = asyncio.run(rescore(Source.open(alone, tiny_data, 5), workers=1))
    assert found.changes == []
    forge(alone, 4, lambda row: row.update(question_id="nobody's"))
    with pytest.raises(DataError, match=r"alone\.jsonl line 4 can't be replayed: no question"):
        asyncio.run(rescore(Source.open(alone, tiny_data, 5), workers=1))
    alone.write_bytes(alone.read_bytes().replace(b"nobody", b"somebo"))
    with pytest.raises(DataError, match=r"alone\.jsonl line 4: the line does not match its sha256"):
        Source.open(alone, tiny_data, 5).lines()


def test_the_command_lists_what_changed(run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "rescored.json"
    arguments = [
        "rescore",
        str(run_folder),
        "--rewards",
        "sparse",
        "--workers",
        "1",
        "--json",
        str(out),
    ]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    # its lines are wrapped
    assert "by rewards sparse, standard strict" in " ".join(result.output.split())
    assert json.loads(out.read_text())["rewards"] == "sparse"
    assert {phase["phase"] for phase in json.loads(out.read_text())["phases"]} == {
        "random", "before", "train", "eval", "after",
    }  # fmt: skip
    result = CliRunner().invoke(command, ["rescore", str(run_folder), "--standard", "lax"])
    assert result.exit_code == 1
    assert "error: no standard 'lax'; expected one of " in result.output
