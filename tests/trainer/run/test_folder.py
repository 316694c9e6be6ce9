import gzip
import json
import math
import os
from pathlib import Path

import pytest

from shared.errors import DataError
from shared.run_files import check_seal, read_episode
from tests.trainer.conftest import record
from tests.trainer.played_run import record_run
from trainer.errors import RunError
from trainer.run.folder import (
    Run,
    append_lines,
    check_writable,
    create_run,
    keep_lines,
    open_run,
    point_latest,
    read_json,
    read_lines,
    to_json,
    write_json,
    write_text,
)
from trainer.run.records import append_records, keep_records, read_observations, read_records


def test_latest_is_a_relative_link_to_the_newest_run(tmp_path):
    first = create_run(tmp_path / "runs", "offline")
    point_latest(first)
    second = create_run(tmp_path / "runs", "offline")
    # until the second can be resumed
    assert (tmp_path / "runs" / "latest").resolve() == first.path.resolve()
    point_latest(second)
    link = tmp_path / "runs" / "latest"
    assert first.id != second.id
    assert link.resolve() == second.path.resolve()
    assert os.readlink(link) == second.id  # relative: the folder can be moved or mounted elsewhere
    link.unlink()
    link.mkdir()
    point_latest(first)
    assert not link.is_symlink()  # a folder of that name is left alone


def test_write_json_replaces_atomically_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "a" / "summary.json"
    write_json(path, {"rate": math.nan, "high": math.inf, "path": Path("x"), "text": "Zürich"})
    written = {"rate": None, "high": None, "path": "x", "text": "Zürich"}
    assert json.loads(path.read_text()) == written
    with pytest.raises(ValueError, match="serialize"):
        write_json(path, {"bad": object()})
    assert json.loads(path.read_text())["text"] == "Zürich"
    assert [entry.name for entry in path.parent.iterdir()] == ["summary.json"]


def test_a_line_cut_by_a_crash_is_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append_lines(path, [{"step": 1, "loss": math.nan}, {"step": 2}])
    with path.open("a") as file:
        file.write('{"step": 3, "lo')
    assert list(read_lines(path)) == [{"step": 1, "loss": None}, {"step": 2}]
    with path.open("ab") as binary:
        binary.write("ä".encode()[:1])  # half of a character
    assert list(read_lines(path)) == [{"step": 1, "loss": None}, {"step": 2}]
    keep_lines(path, lambda row: row["step"] > 1)
    append_lines(path, [{"step": 3}])
    assert list(read_lines(path)) == [{"step": 2}, {"step": 3}]
    assert list(read_lines(tmp_path / "nothing.jsonl")) == []


def test_an_unwritable_file_is_reported_before_the_work(tmp_path):
    check_writable(tmp_path / "new" / "result.json")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("kept")
    check_writable(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"
    for path in (tmp_path, tmp_path / "file" / "result.json"):
        with pytest.raises(RunError, match=f"can't write {path}: .*choose another --out"):
            check_writable(path)


def test_last_checkpoint_is_the_highest_complete_one(tmp_path):
    run = create_run(tmp_path, "offline")
    assert run.last_checkpoint() is None
    for step, whole in ((2, True), (10, True), (12, False)):
        folder = run.checkpoints / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        if whole:  # transformers writes this file last
            (folder / "trainer_state.json").write_text("{}")
    assert run.last_checkpoint().name == "checkpoint-10"


def test_open_run_follows_latest_and_names_what_is_missing(tmp_path):
    run = create_run(tmp_path, "offline")
    point_latest(run)
    with pytest.raises(RunError, match=r"config\.json"):
        open_run(tmp_path / "latest")
    write_json(run.config, {})
    assert open_run(tmp_path / "latest").path == run.path.resolve()
    write_text(run.config, "{")
    with pytest.raises(RunError, match=r"config\.json is not JSON"):
        read_json(run.config)
    with pytest.raises(RunError, match="no run at"):
        open_run(tmp_path / "nowhere")


RECORD = record(
    phase="train",
    mode="sampled",
    step=3,
    operational=0.01,
    reward=1.01,
    turns=(("describe orders", "id, price"), ("ANSWER: 1", "")),
    actions=("DESCRIBE: orders", "ANSWER: 1"),
    rewards=(0.01, 1.0),
    observations=("0" * 16, "1" * 16, "2" * 16),
    parts=({"step_cost": -0.02, "exec_ok": 0.02, "new_info": 0.01}, {"correctness": 1.0}),
)


def test_a_line_has_what_an_audit_compares():
    line = to_json(RECORD.sealed()).encode() + b"\n"
    check_seal(line)
    episode = read_episode(line)
    assert (episode.phase, episode.mode, episode.step) == ("train", "sampled", 3)
    assert episode.texts == ["describe orders", None]  # only where it is not the canonical text
    assert episode.parts == RECORD.parts
    assert [round(sum(parts.values()), 6) for parts in RECORD.parts] == episode.rewards
    assert (episode.correct, episode.finished) == (True, True)


def test_records_are_read_back(tmp_path):
    run, lost = Run(tmp_path / "run"), record(sample=1, outcome="infra_failed")
    append_records(run, [RECORD])
    append_records(run, [lost])
    assert list(read_records(run)) == [RECORD, lost]
    assert RECORD.turns == (("describe orders", "id, price"), ("ANSWER: 1", ""))
    assert lost.turns == ()
    assert list(read_records(run, lambda phase, step: step == 3)) == [RECORD]
    (without,) = read_records(run, lambda phase, step: step == 3, seen=False)
    assert [observation for _, observation in without.turns] == ["", ""]


def test_observations_of_an_older_version_are_refused(tmp_path):
    path = tmp_path / "old.gz"
    path.write_bytes(gzip.compress(b'{"step": 1, "question_id": "q", "observations": []}\n'))
    with pytest.raises(RunError, match=r"is of an older version .* play the episodes again"):
        list(read_observations(path))


def test_a_line_of_observations_has_a_limit(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "bomb.gz", "wb") as file:
        file.write(b" " * 20_000)
    monkeypatch.setattr("shared.run_files.MAX_LINE_BYTES", 10_000)
    with pytest.raises(DataError, match=r"bomb\.gz has a line of over 10,000 bytes"):
        list(read_observations(tmp_path / "bomb.gz"))


def test_observations_belong_to_the_training_lines(tmp_path):
    run = Run(record_run(tmp_path, until="train", steps=2))
    lines = [line for line in read_lines(run.episodes) if line["phase"] == "train"]
    kept = [one for one in read_observations(run.observations) if one["phase"] == "train"]
    assert [(one["step"], one["question_id"]) for one in kept] == [
        (line["step"], line["question_id"]) for line in lines
    ]
    for one, line in zip(kept, lines, strict=True):
        assert one["observations"][0].startswith("Question: ")
        # the last action of an answered episode has no reply
        answered = line["outcome"] in ("correct", "wrong")
        assert len(one["observations"]) == len(line["actions"]) + (not answered)


def test_a_cut_file_keeps_its_whole_members(tmp_path):
    run = Run(record_run(tmp_path, until="train", steps=2))
    first = [one for one in read_observations(run.observations) if one["step"] <= 1]
    path = run.observations
    path.write_bytes(path.read_bytes()[:-40])
    assert list(read_observations(path))[: len(first)] == first
    keep_records(run, lambda row: row["step"] <= 1)
    assert list(read_observations(path)) == first
    keep_records(run, lambda row: False)
    assert run.episodes.read_bytes() == b""
    assert list(read_observations(path)) == []
    assert list(read_observations(tmp_path / "missing.gz")) == []
