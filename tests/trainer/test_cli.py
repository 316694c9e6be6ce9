"""The command line: help, and one line with a remedy for each kind of bad input."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from env_server.audit.verify import verify_run
from tests.shared.client.test_diagnosis import closed_port, other_program
from trainer.__main__ import app
from trainer.config.settings import GRPOConfig
from trainer.run.resume import DIGESTS

__all__ = ["other_program"]  # a fixture
ROOT = Path(__file__).parents[2]
runner = CliRunner()


def run(*arguments: object) -> tuple[int, str]:
    """Return the exit code and the output on one line."""
    result = runner.invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--model", "no-model", "no-model"),
        ("--data", "nowhere", "nowhere/questions/questions_train.json"),
    ],
)
def test_what_is_missing_is_named_and_leaves_no_run(tmp_path, base, data_dir, option, name, said):
    given = {"--model": base, "--data": data_dir, "--out": tmp_path / "runs"}
    given[option] = tmp_path / name
    code, shown = run("train", *(one for pair in given.items() for one in pair))
    assert (code, said in shown) == (1, True), shown
    assert not (tmp_path / "runs").exists()


def test_a_development_split_is_trained_on_with_a_flag_alone(tmp_path, base, data_dir, monkeypatch):
    monkeypatch.setattr("trainer.rollout.servers.LOOK_S", 0.1)
    path = data_dir / "questions" / "questions_train.json"
    path.write_text(path.read_text().replace("train-shop-", "spider-dev-000"))
    common = ("--model", base, "--data", data_dir, "--server", "http://127.0.0.1:9")
    common += ("--set", "server_wait_s=0.5")
    code, shown = run("train", *common, "--out", tmp_path / "runs")
    assert code == 1
    assert "spider-dev-0000" in shown
    assert "--set allow_dev_questions=true" in shown
    assert not (tmp_path / "runs").exists()
    # with the flag it reaches the missing server; measuring on such a split needs no flag
    allowed = ("--set", "allow_dev_questions=true")
    for command, *flag in [("train", *allowed), ("evaluate", "--split", "train")]:
        code, shown = run(
            command, *common, *flag, *(("--out", tmp_path / "runs") if command == "train" else ())
        )
        assert code == 1
        assert "spider-dev" not in shown
        assert "can't reach" in shown or "http://127.0.0.1:9" in shown
        assert not (tmp_path / "runs").exists()  # no folder for a run that can't start


@pytest.mark.parametrize("command", ["train", "evaluate", "sft", "improve"])
def test_a_wrong_address_is_reported_before_torch_is_imported(command, other_program, base):
    refused = f"http://127.0.0.1:{closed_port()}"
    moved = other_program(308, b"", Location="https://other/")
    script = f"""if True:
        import sys
        from trainer.__main__ import app
        from trainer.rollout import servers
        servers.LOOK_S = 1.0
        for url in sys.argv[1:]:
            try:
                app(["{command}", "--model", "{base}", "--server", url])
            except SystemExit as end:
                print(end.code, "torch" in sys.modules, flush=True)
    """
    wrong = [sys.executable, "-c", script, f"http://127.0.0.1:{moved}", refused]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(wrong, **pipes, text=True, cwd=ROOT) as process:
        assert process.stdout.readline() == "1 False\n"
        said = ""
        while refused not in said:
            said += (line := process.stderr.readline())
            assert line, said
        assert "redirects to https://other/: write that URL" in " ".join(said.split())
        assert f"{refused} (connection refused)" in said
        process.kill()


@pytest.mark.parametrize("command", [("evaluate", "--model", "m"), ("pretrain",)])
def test_what_one_process_does_is_not_done_by_each_that_a_launcher_starts(
    command, tmp_path, monkeypatch
):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    code, shown = run(*command, "--out", tmp_path / "made")
    assert code == 1
    assert "without a launcher" in shown
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--set", "fast"), "NAME=VALUE"),
        (("train", "--preset", "laptop"), "'laptop' is not one of offline, smollm2-135m, "),
        (("evaluate", "--greedy", "--temperature", "0.5"), "can't be combined with --greedy"),
        (("evaluate", "--policy", "random", "--greedy"), "random plays without"),
        (("evaluate", "--policy", "openai", "--base-url", "http://h/v1"), "name the model"),
        (("evaluate", "--seed", "-1"), "--seed"),
        (("evaluate", "--standard", "loose"), "--standard"),
    ],
)
def test_a_wrong_option_is_a_usage_error(arguments, said):
    code, shown = run(*arguments)
    assert (code, said in shown) == (2, True), shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--eval-limit", "32"),  # its default
        ("--eval-every", "32"),
        ("--eval-points", "32"),
        ("--out", "32"),
        ("--preset", "offline"),
        ("--mixed", "folder"),
    ],
)
def test_a_resumed_run_refuses_options_that_it_would_ignore(tmp_path, option, value):
    settings = {"preset": "offline", "config": {}, "options": {}, "processes": 1}
    settings |= dict.fromkeys(DIGESTS, "")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    code, shown = run("train", "--resume", tmp_path, option, value)
    assert code == 1
    assert f"{option.strip('-').replace('-', '_')} can't change" in shown
    del settings["data_digest"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    code, shown = run("train", "--resume", tmp_path)
    assert (code, "older version (its config.json has no data_digest)" in shown) == (1, True)


def test_what_evaluate_could_not_do_is_said_before_it_measures(tmp_path, data_dir):
    (tmp_path / "file").write_text("")
    for arguments, said in [
        (("--out", tmp_path / "file"), "choose another --out"),
        (("--model", tmp_path / "no-model", "--data", data_dir), "no model directory at"),
        (("--against", tmp_path / "gone"), "no evaluation at"),
        (("--policy", "openai", "--model", "m"), "--base-url http://host:8000/v1"),
        (
            ("--policy", "random", "--base-url", "http://host/v1"),
            "--base-url and --api are for --policy openai",
        ),
        (("--policy", "model", "--api", "completions"), "--api are for --policy openai"),
        (
            (*("--policy", "openai", "--model", "m", "--base-url", "http://h"), "--tokenizer", "t"),
            "--tokenizer is for --api completions",
        ),
        (("--policy", "oracle", "--samples", 4), "leave out --samples"),
        (("--samples", 4, "--greedy"), "leave out --samples or --greedy"),
        (("--samples", 4, "--temperature", "0"), "leave out --samples or --greedy"),
        (("--policy", "random", "--split", "gone", "--data", data_dir), "questions_gone.json"),
        (
            ("--policy", "random", "--data", data_dir, "--db", "ship"),
            "no eval question of database 'ship'; the databases are",
        ),
    ]:
        code, shown = run("evaluate", *arguments)
        assert code == 1, shown
        assert said in shown


def test_the_oracle_is_right_on_a_real_server_and_its_episodes_replay(tmp_path, data_dir):
    out = tmp_path / "out"
    code, shown = run(
        *("evaluate", "--policy", "oracle", "--data", data_dir, "--out", out),
        *("--difficulty", "easy,hard"),
    )
    assert code == 0, shown
    result = json.loads((out / "evaluation.json").read_text())
    found = result["success"]["overall"]
    assert (found["success"]["rate"], found["success"]["n"]) == (1.0, 12)
    assert found["actions"] == {"DESCRIBE": 1, "SAMPLE": 0, "QUERY": 1, "ANSWER": 1}
    report = asyncio.run(verify_run(out, data_dir=data_dir))
    assert not report.problems
    assert {key: one["correct"] for key, one in report.phases.items()} == {("eval", "greedy"): 12}
    lines = (out / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (out / "episodes.jsonl").write_bytes(b"".join(lines[1:]))
    report = asyncio.run(verify_run(out, data_dir=data_dir))
    left_out = "missing episodes: 1; evaluation.json says 0"
    assert any(left_out in str(problem) for problem in report.problems)
    result["episodes_missing"] = 1
    (out / "evaluation.json").write_text(json.dumps(result))
    report = asyncio.run(verify_run(out, data_dir=data_dir))
    assert not any("missing" in str(problem) for problem in report.problems)
    assert any(note.startswith("missing episodes: 1 of 12") for note in report.notes)


def test_doctor_fails_where_the_offline_job_cannot_run(tmp_path, base, data_dir):
    code, shown = run("doctor", "--data", tmp_path / "nowhere", "--model", base)
    assert code == 1
    assert "python -m data build" in shown
    code, shown = run("doctor", "--data", data_dir, "--model", base)
    assert code == 0
    assert "the offline job can run" in shown


PLAY = ["play", "--db", "gone.db", "-q", "How many?"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path | None, tuple[str, ...]]]:
    jobs: list[tuple[Path | None, tuple[str, ...]]] = []

    def run_job(config: GRPOConfig, options: Any, *_: Any, **__: Any) -> None:
        assert config.output_dir == str(options.out)
        jobs.append((options.out, options.servers))

    def improver(settings: Any, _: Any) -> Any:
        jobs.append((settings.out, settings.servers))
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr("trainer.improve.rounds.Improver", improver)
    monkeypatch.setattr("trainer.run.job.run_job", run_job)
    monkeypatch.setattr(
        "trainer.run.evaluation.run_evaluation", lambda one, *_: jobs.append((one.out, one.servers))
    )
    return jobs


def start(*arguments: str, **environment: str) -> tuple[int, str]:
    done = runner.invoke(app, [*arguments], env={"COLUMNS": "200", **environment})
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("command", "out"),
    [("train", "runs"), ("sft", "runs"), ("improve", "runs/improve"), ("evaluate", None)],
)
def test_options_and_the_environment_are_obeyed(started, monkeypatch, command, out):
    monkeypatch.setattr("trainer.rollout.servers.LOOK_S", 0.1)
    assert start(command)[0] == 0
    assert start(command, "--out", "x", "--server", "http://a:1", "--server", "http://b:2")[0] == 0
    assert start(command, SQLENV_SERVER_URL="http://c:3")[0] == 0
    default = Path(out) if out else None
    assert started == [
        (default, ()),
        (Path("x"), ("http://a:1", "http://b:2")),
        (default, ("http://c:3",)),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["train", "--set", "seed=2"], "seed has an option: use --seed"),
        (["train", "--set", "max_steps=9"], "max_steps has an option: use --steps"),
        (["train", "--set", "generation_url="], "use --generation-url"),
        (["sft", "--set", "num_train_epochs=9"], "use --epochs"),
        (["improve", "--set", "model_name=b"], "use --model"),
        (["evaluate", "--set", "difficulty_filter=hard"], "use --difficulty"),
        (["evaluate", "--set", "server_urls=http://a:1"], "use --server"),
        (["evaluate", "--set", "temperature=0.3"], "use --temperature"),
        ([*PLAY, "--set", "step_budget=5"], "use --step-budget"),
        ([*PLAY, "--set", "server_urls=http://a:1"], "server_urls has no effect here"),
    ],
)
def test_a_field_with_an_option_is_refused(started, arguments, problem):
    code, output = start(*arguments)
    assert (code, problem in output) == (2, True), output
    assert started == []


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_resumed_run_ignores_the_data_of_the_environment_and_takes_other_servers(
    monkeypatch, tmp_path, command
):
    seen = {}

    def resumed_settings(_run: Any, servers: tuple[str, ...], overrides: Any, *_: Any) -> Any:
        seen.update(servers=servers, overrides=dict(overrides))
        raise SystemExit(3)

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("trainer.run.resume.resumed_settings", resumed_settings)
    options = ("--resume", str(tmp_path), "--server", "http://a:1")
    assert start(command, *options, SQLENV_DATA_DIR="/elsewhere")[0] == 3
    assert seen == {"servers": ("http://a:1",), "overrides": {}}
