"""`python -m env_server verify`: a run passes as written, and fails with anything changed."""

import asyncio
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from env_server.audit.verify import Problem, Report, verify_run
from env_server.commands import command
from shared.errors import DataError, DigestMismatch
from shared.run_files import CHECKSUMS, checksums, render_checksums, sealed
from tests.env_server.audit.conftest import forge, read, write, write_lines, write_results
from tests.env_server.pool_driver import LocalSql
from trainer.__main__ import app as trainer

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def run(run_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


def verify(run: Path, data_dir: Path | None = None) -> Report:
    sql = LocalSql()
    try:
        return asyncio.run(verify_run(run, data_dir=data_dir, sql=sql))
    finally:
        sql.runner.close()


def line_problems(run: Path, name: str = "episodes.jsonl") -> list[Problem]:
    return [problem for problem in verify(run).problems if problem.file == name and problem.line]


def number_of(run: Path, wanted: Callable[[dict[str, Any]], object]) -> int:
    return next(
        number for number, row in enumerate(read(run / "episodes.jsonl"), start=1) if wanted(row)
    )


def test_a_run_passes_as_it_was_written(run, monkeypatch):
    monkeypatch.setenv("SQLENV_STEP_BUDGET", "20")  # the auditor's own settings do not matter
    monkeypatch.setenv("SQLENV_CAPACITY", "abc")
    report = verify(run)
    lines = read(run / "episodes.jsonl")
    assert (report.problems, report.notes) == ([], [])
    counts = sum(report.phases.values(), Counter[str]())
    assert report.episodes == len(lines)
    assert counts["observations"] == sum(len(one["observations"]) for one in lines)
    assert counts["rewards"] == sum(line["steps"] for line in lines) > 100
    assert report.metrics_rows == len(read(run / "metrics.jsonl"))
    assert report.files == 5
    assert {"wrong", "budget", "abandoned"} <= {line["outcome"] for line in lines}
    assert any(text is not None for line in lines for text in line["texts"])


def test_one_byte_anywhere_in_the_episodes_is_found_and_its_line_named(run):
    path = run / "episodes.jsonl"
    whole, rng = path.read_bytes(), random.Random(4)
    for place in [0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(4))]:
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        number = whole[:place].count(b"\n") + 1
        problems = verify(run).problems
        assert (path.name, number) in {(problem.file, problem.line) for problem in problems}, place


@pytest.mark.parametrize(
    "name", ["summary.json", "metrics.jsonl", "config.json", "model/model.safetensors", CHECKSUMS]
)
def test_one_byte_in_another_file_is_found(run, name):
    path = run / name
    content = bytearray(path.read_bytes())
    # the server's digest, or anywhere
    place = content.rindex(b'"') - 1 if name == "config.json" else len(content) // 2
    content[place] ^= 1
    path.write_bytes(content)
    reported = {problem.file for problem in verify(run).problems}
    # a wrong digest is reported for its file
    assert reported if name == CHECKSUMS else name in reported


def forged(name: str, value: Any) -> Change:
    return lambda row: row.update({name: value(row[name]) if callable(value) else value})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (forged("rewards", lambda old: [old[0] + 1e-9, *old[1:]]), "step 1: rewards: recorded"),
        (forged("observations", lambda old: [*old[:-1], "f" * 16]), "observations: recorded 'fff"),
        (forged("observations", lambda old: old[:-1]), "observations"),
        (forged("rewards", lambda old: old[:-1]), "rewards"),
        (forged("reward", lambda old: old + 1.0), "reward: recorded"),
        (forged("correctness", lambda old: 1.0 - old), "correctness: recorded"),
        (forged("progress", lambda old: old + 0.25), "progress: recorded"),
        (forged("operational", lambda old: old - 0.01), "operational: recorded"),
        (forged("outcome", "correct"), "outcome: recorded"),
        (forged("steps", lambda old: old + 1), "steps: recorded"),
        (forged("env_errors", lambda old: old + 1), "env_errors: recorded"),
        (forged("database", "zoo2"), "database: recorded"),
        (forged("difficulty", "other"), "difficulty: recorded"),
        (forged("part", "unknown"), "part: recorded"),
        (forged("parse_failures", 99), "parse_failures is 99"),
        (forged("context_overflow", True), "context_overflow"),
        (forged("too_large", True), "too_large"),
        (forged("texts", lambda old: old[:-1]), "texts"),
        (forged("question_id", "nobody's"), "can't be replayed: no question"),
        (forged("actions", lambda old: [*old[:-1], "ANSWER: other"]), "observations: recorded"),
        (forged("actions", lambda old: [*old, "ANSWER: 1"]), "can't be replayed: the episode is"),
    ],
)
def test_a_forged_line_that_is_sealed_again_is_found_by_its_replay(run, change, expected):
    number = number_of(run, lambda row: row["outcome"] == "wrong" and row["steps"] > 1)
    forge(run / "episodes.jsonl", number, change)
    write_results(run)
    problems = verify(run).problems
    # another question is also one that was not to be asked
    lines = {(problem.file, problem.line) for problem in problems} - {("episodes.jsonl", 0)}
    assert lines == {("episodes.jsonl", number)}
    assert expected in " ".join(map(str, problems))


def test_an_episode_that_was_too_large_has_a_text_that_was_not_played(run):
    number = number_of(run, lambda row: row["outcome"] == "abandoned" and row["steps"] > 0)
    forge(run / "episodes.jsonl", number, forged("too_large", True))
    assert "texts" in next(one.message for one in verify(run).problems if one.line == number)
    forge(run / "episodes.jsonl", number, forged("texts", lambda old: [*old, "QUERY: long"]))
    assert line_problems(run) == []


def test_an_episode_that_the_driver_left_may_be_unfinished_and_a_lost_one_has_no_reward(run):
    number = number_of(run, lambda row: row["outcome"] == "wrong" and row["steps"] > 2)
    path, whole = run / "episodes.jsonl", (run / "episodes.jsonl").read_bytes()

    def leave(row: dict[str, Any], outcome: str, kept: int) -> None:
        for name in ("actions", "texts", "rewards", "parts"):
            row[name] = row[name][:kept]
        row["observations"] = row["observations"][: kept + 1] if kept >= 0 else []
        row.update(outcome=outcome, steps=kept)

    for reward in (None, 0.0):
        path.write_bytes(whole)
        forge(path, number, lambda row: leave(row, "infra_failed", 1))
        parts = dict.fromkeys(("correctness", "progress", "operational"))
        forge(path, number, lambda row: row.update(parts, reward=reward, env_errors=0))  # noqa: B023
        found = [problem.line for problem in line_problems(run)]
        assert found == ([] if reward is None else [number])
    empty = {key: [] for key in ("actions", "rewards", "parts", "observations")}
    lost = {**empty, "texts": ["nothing"], "steps": 0, "reward": None}
    forge(path, number, lambda row: row.update(lost))
    assert line_problems(run) == []  # lost at its reset


def test_a_line_that_is_gone_or_there_twice_is_missed_in_the_metrics(run):
    lines = read(run / "episodes.jsonl")
    number = number_of(run, lambda row: row["phase"] == "train") - 1
    for changed in ([*lines[:number], *lines[number + 1 :]], [*lines, lines[number]]):
        write_lines(run / "episodes.jsonl", changed)
        files = {problem.file for problem in verify(run).problems}
        assert {"metrics.jsonl", "summary.json", "episodes.jsonl"} <= files


def left_out(lines: list[dict[str, Any]], wrong: int) -> list[dict[str, Any]]:
    return [*lines[:wrong], *lines[wrong + 1 :]]


def repeated(lines: list[dict[str, Any]], wrong: int) -> list[dict[str, Any]]:
    right = next(one for one in lines[wrong + 1 :] if one["phase"] == "random")
    return [*lines[:wrong], right, *lines[wrong + 1 :]]


def of_training(lines: list[dict[str, Any]], wrong: int) -> list[dict[str, Any]]:
    trained = next(one for one in lines if one["phase"] == "train")
    moved = sealed({**unsealed(trained), "phase": "random", "step": 0})
    return [*lines[:wrong], moved, *lines[wrong + 1 :]]


def without_a_phase(lines: list[dict[str, Any]], wrong: int) -> list[dict[str, Any]]:
    return [one for one in lines if (one["phase"], one["mode"]) != ("before", "sampled")]


def unsealed(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "sha256"}


@pytest.mark.parametrize(
    ("forge_phase", "problem"),
    [
        (left_out, "random (sampled), step 0: missing: shop-7"),
        (repeated, "recorded more than once"),
        (of_training, "not to be asked"),
        (without_a_phase, "before (sampled) is missing"),
    ],
)
def test_a_measurement_of_other_questions_is_found(run, forge_phase, problem):
    """All other files are made again, as a forger would."""
    path = run / "episodes.jsonl"
    asked = [one["question_id"] for one in read(path) if one["phase"] == "random"]
    wrong = next(n for n, one in enumerate(read(path)) if one["phase"] == "random")
    write_lines(path, forge_phase(read(path), wrong))
    write_results(run)
    problem = problem.replace("shop-7", asked[0])
    assert any(problem in str(one) for one in verify(run).problems)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", "1"), ("success", 0.9), ("steps_per_episode", 1.0), ("env_errors", -1),
        ("episodes", 5),
        ("reward", 0.9), ("reward_progress", 0.9), ("eval_greedy_success", 0.9),
        ("eval_greedy_reward", 0.9), ("eval_n", 9),
    ],
)  # fmt: skip
def test_metrics_that_do_not_follow_from_the_episodes_are_found(run, key, value):
    rows = read(run / "metrics.jsonl")
    number = next(number for number, row in enumerate(rows, start=1) if key in row)
    rows[number - 1][key] = value
    write_lines(run / "metrics.jsonl", rows)
    problems = line_problems(run, "metrics.jsonl")
    assert {problem.line for problem in problems} == {number}
    assert f"{key} is {value!r}" in problems[0].message


def test_what_metrics_leave_out_is_found(run):
    rows = read(run / "metrics.jsonl")
    trained = max(number for number, row in enumerate(rows, start=1) if "episodes" in row)
    del rows[trained - 1]["success"]
    write_lines(run / "metrics.jsonl", rows)
    expected = f"metrics.jsonl line {trained}: success is missing"
    assert any(str(problem).startswith(expected) for problem in verify(run).problems)
    del rows[trained - 1]
    write_lines(run / "metrics.jsonl", rows)
    expected = "metrics.jsonl: no row covers the training episodes after step 1"
    assert expected in map(str, verify(run).problems)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("eval_success_after.greedy.unseen.rate", 0.99, "is 0.99; recomputed"),
        ("eval_success_after.greedy.overall.ci95", [0.9, 1.0], "is [0.9, 1.0]; recomputed"),
        ("eval_success_after.best.overall", 1, "no episode gives"),
        ("cost.train_episodes", -1, "is -1; recomputed"),
        ("env_errors", -1, "is -1; recomputed"),
        ("by_phase.train.parse_failures", -1, "is -1; recomputed"),
        ("evaluations.after.greedy.behaviour.seen.repeats", -1.0, "is -1.0; recomputed"),
        ("evaluations.random.sampled.mean_reward", 9.0, "is 9.0; recomputed"),
    ],
)
def test_a_result_that_does_not_follow_from_the_episodes_is_found(run, path, value, problem):
    summary = place = json.loads((run / "summary.json").read_text())
    *parents, name = path.split(".")
    for key in parents:
        place = place.setdefault(key, {})
    place[name] = value
    write(run / "summary.json", summary)
    (run / CHECKSUMS).write_text(render_checksums(checksums(run)))
    (found,) = map(str, verify(run).problems)
    assert found.startswith(f"summary.json: {path}")
    assert problem in found


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl"])
def test_results_of_nothing_are_found(run, name):
    (run / name).write_text("{}\n")
    (run / CHECKSUMS).write_text(render_checksums(checksums(run)))
    assert {problem.file for problem in verify(run).problems} == {name}


def test_an_unfinished_run_is_audited_as_far_as_it_got(run):
    (run / CHECKSUMS).unlink()
    missing = f"{CHECKSUMS}: missing, though the run is finished"
    assert list(map(str, verify(run).problems)) == [missing]
    (run / CHECKSUMS).touch()
    for name in ("summary.json", "metrics.jsonl", CHECKSUMS):
        (run / name).unlink()
    report = verify(run)
    assert not report.problems
    assert len(report.notes) == 2
    assert all(name in " ".join(report.notes) for name in ("summary.json", CHECKSUMS))
    lines = read(run / "episodes.jsonl")
    write_lines(run / "episodes.jsonl", lines[:-1])  # stopped in its last measurement
    report = verify(run)
    assert not report.problems
    assert "after (sampled), step 2 is not finished: missing episodes: 1 of" in report.notes[0]
    write_lines(run / "episodes.jsonl", lines[1:])  # of the first one
    assert "random (sampled), step 0: missing" in str(verify(run).problems[0])
    (run / "episodes.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match="has no episodes yet"):
        verify(run)


def test_other_data_are_refused_and_the_remedy_named(run, tiny_data, tmp_path):
    other = Path(shutil.copytree(tiny_data, tmp_path / "other"))
    questions = other / "questions" / "questions_eval.json"
    questions.write_text(questions.read_text().replace("28500", "28501"))
    with pytest.raises(DigestMismatch, match="--data"):
        verify(run, other)
    # no remedy: --data was given
    with pytest.raises(DataError, match=r"no data at \S*nowhere$"):
        verify(run, tmp_path / "nowhere")
    config = json.loads((run / "config.json").read_text())
    config["config"]["db_dir"] = str(tmp_path / "gone" / "databases")
    write(run / "config.json", config)
    with pytest.raises(DataError, match=r"no data at \S*gone, which .*--data"):
        verify(run)
    with pytest.raises(DataError, match="no run at"):
        verify(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is not a run"):
        verify(other)


def test_data_inside_the_run_are_not_trusted(run, tiny_data):
    shutil.copytree(tiny_data, run / "data")
    config = json.loads((run / "config.json").read_text())
    config["config"]["db_dir"] = str(run / "data" / "databases")
    write(run / "config.json", config)
    with pytest.raises(DataError, match=r"inside it: .* name data that you trust with --data"):
        verify(run)
    report = verify(run, tiny_data)
    assert report.judged_by.startswith(f"the data in {tiny_data} (digest ")


@pytest.mark.parametrize("name", ["config.json", "episodes.jsonl", "metrics.jsonl", "summary.json"])
def test_a_file_that_is_a_link_or_a_pipe_is_not_read(run, name):
    (run / name).rename(run / "moved")
    (run / name).symlink_to("/dev/zero")
    with pytest.raises(DataError, match=rf"{name} is a link, or no file|has no {name}"):
        verify(run)
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(DataError, match=rf"{name} is a link, or no file|has no {name}"):
        verify(run)


def test_other_rules_are_named_and_another_reward_version_is_refused(run):
    config = json.loads((run / "config.json").read_text())
    other = {"server_digest": "other", "server_rules": {"rewards": "edited", "limits": "few"}}
    write(run / "config.json", {**config, **other})
    (run / CHECKSUMS).write_text(render_checksums(checksums(run)))
    report = verify(run)
    assert not report.problems
    assert report.cause == "the run's server had other rewards, limits than this code"
    result = CliRunner().invoke(command, ["verify", str(run)])
    assert "rewards, limits than this code, which changed no reply" in flat(result.output)
    for line in range(1, 21):
        forge(run / "episodes.jsonl", line, forged("reward", 9.0))
    result = CliRunner().invoke(command, ["verify", str(run)])
    assert "rewards, limits than this code, so replies differ" in flat(result.output)
    assert "more" in result.output
    assert result.output.count("recorded 9.0") < 20
    write(run / "config.json", {**config, "reward_version": "0"})
    with pytest.raises(DataError, match="reward version '0'"):
        verify(run)


def test_the_rates_of_an_evaluation_follow_from_its_episodes(tmp_path, tiny_data):
    out = tmp_path / "random"
    asked = ["evaluate", "--policy", "random", "--samples", "3", "--limit", "6"]
    played = CliRunner().invoke(trainer, [*asked, "--data", str(tiny_data), "--out", str(out)])
    assert played.exit_code == 0, played.output
    assert verify(out, tiny_data).problems == []
    result = json.loads((out / "evaluation.json").read_text())
    write(out / "evaluation.json", {**result, "samples": 2})
    assert verify(out, tiny_data).problems, "another rate follows from fewer attempts"
    result["success"]["unseen"]["success"]["rate"] = 0.9
    result["success"]["overall"]["success"]["n"] = 7
    write(out / "evaluation.json", result)
    found = [(one.file, one.message.split(" is ")[0]) for one in verify(out, tiny_data).problems]
    names = ("overall.success.n", "unseen.success.rate")
    assert found == [("evaluation.json", name) for name in names]
    write(out / "evaluation.json", {"samples": 1})
    *_, problem = verify(out, tiny_data).problems
    assert "is missing or damaged" in problem.message


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_command_prints_a_verdict(run, tmp_path):
    result = CliRunner().invoke(command, ["verify", str(run)])
    assert result.exit_code == 0, result.output
    assert "passed: " in result.output
    forge(run / "episodes.jsonl", 3, forged("reward", 9.0))
    result = CliRunner().invoke(command, ["verify", str(run)])
    assert result.exit_code == 1
    assert "episodes.jsonl line 3: reward: recorded 9.0" in result.output
    assert "FAILED" in result.output
    result = CliRunner().invoke(command, ["verify", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no run at")
