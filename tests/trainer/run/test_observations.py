"""observations.jsonl.gz: written batch by batch, cut by a crash, trimmed by a resumed run."""

from pathlib import Path

from tests.trainer.played_run import record_run
from trainer.run.folder import Run, read_lines
from trainer.run.observations import drop_observations, read_observations


def test_observations_belong_to_the_training_lines(tmp_path: Path) -> None:
    run = Run(record_run(tmp_path, until="train", steps=2))
    lines = [line for line in read_lines(run.episodes) if line["phase"] == "train"]
    kept = list(read_observations(run.observations))
    assert [(one["step"], one["question_id"]) for one in kept] == [
        (line["step"], line["question_id"]) for line in lines
    ]
    for one, line in zip(kept, lines, strict=True):
        assert one["observations"][0].startswith("Question: ")
        # the last action of an answered episode has no reply
        answered = line["outcome"] in ("correct", "wrong")
        assert len(one["observations"]) == len(line["actions"]) + (not answered)


def test_a_cut_file_keeps_its_whole_members(tmp_path: Path) -> None:
    run = Run(record_run(tmp_path, until="train", steps=2))
    first = [one for one in read_observations(run.observations) if one["step"] == 1]
    path = run.observations
    path.write_bytes(path.read_bytes()[:-40])
    assert list(read_observations(path))[: len(first)] == first
    drop_observations(path, 1)
    assert list(read_observations(path)) == first
    drop_observations(path, 0)
    assert list(read_observations(path)) == []
    assert list(read_observations(tmp_path / "missing.gz")) == []
