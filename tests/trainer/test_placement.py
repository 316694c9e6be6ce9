"""A field that has an option is set by the option alone, in every command."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from trainer.__main__ import app
from trainer.config import GRPOConfig

PLAY = ["play", "--db", "gone.db", "-q", "How many?"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path | None, tuple[str, ...]]]:
    """The folder and the servers of what a command would have started."""
    jobs: list[tuple[Path | None, tuple[str, ...]]] = []

    def run_job(config: GRPOConfig, options: Any, **_: Any) -> None:
        assert config.output_dir == str(options.out)
        jobs.append((options.out, options.servers))

    def improver(settings: Any, _: Any) -> Any:
        jobs.append((settings.out, settings.servers))
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr("trainer.improve.rounds.Improver", improver)
    monkeypatch.setattr("trainer.grpo.job.run_job", run_job)
    monkeypatch.setattr(
        "trainer.evaluation.run.run_evaluation", lambda one, *_: jobs.append((one.out, one.servers))
    )
    return jobs


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", **environment})
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("command", "out"),
    [("train", "runs"), ("sft", "runs"), ("improve", "runs/improve"), ("evaluate", None)],
)
def test_options_and_the_environment_are_obeyed(started: Any, command: str, out: str) -> None:
    assert run(command)[0] == 0
    assert run(command, "--out", "x", "--server", "http://a:1", "--server", "http://b:2")[0] == 0
    assert run(command, SQLENV_SERVER_URL="http://c:3")[0] == 0
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
def test_a_field_with_an_option_is_refused(
    started: Any, arguments: list[str], problem: str
) -> None:
    code, output = run(*arguments)
    assert (code, problem in output) == (2, True), output
    assert started == []


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_resumed_run_ignores_the_data_of_the_environment_and_takes_other_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    seen = {}

    def resumed_settings(_run: Any, servers: tuple[str, ...], overrides: Any, *_: Any) -> Any:
        seen.update(servers=servers, overrides=dict(overrides))
        raise SystemExit(3)

    monkeypatch.setattr("trainer.run.folder.open_run", lambda path: path)
    monkeypatch.setattr("trainer.evaluation.inputs.resumed_settings", resumed_settings)
    options = ("--resume", str(tmp_path), "--server", "http://a:1")
    assert run(command, *options, SQLENV_DATA_DIR="/elsewhere")[0] == 3
    assert seen == {"servers": ("http://a:1",), "overrides": {}}
