"""A setting that has an option too is obeyed or refused by every command that takes settings."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from trainer.__main__ import app
from trainer.config import GRPOConfig

URLS = ("http://a:1", "http://b:2")
SET_URLS = ["--set", f"server_urls={','.join(URLS)}"]
SET_OUT = ["--set", "output_dir=here"]


@dataclass
class Job:
    """What a command would have started."""

    out: Path | None
    servers: tuple[str, ...]
    output_dir: str | None = None
    data_dir: Path = Path("data")
    model_name: str = field(default="", compare=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    jobs: list[Job] = []

    def run_job(config: GRPOConfig, options: Any, **_: Any) -> None:
        jobs.append(Job(options.out, options.servers, config.output_dir, config.data_dir))

    def run_evaluation(settings: Any, *_: Any) -> None:
        config = settings.config
        job = Job(settings.out, settings.servers, None, config.data_dir, config.model_name)
        jobs.append(job)

    def improver(settings: Any, _: Any) -> Any:
        jobs.append(Job(settings.out, settings.servers, None, settings.config().data_dir))
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr("trainer.improve.rounds.Improver", improver)
    monkeypatch.setattr("trainer.grpo.job.run_job", run_job)
    monkeypatch.setattr("trainer.evaluation.run.run_evaluation", run_evaluation)
    return jobs


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", **environment})
    return done.exit_code, done.output


def test_five_commands_take_settings() -> None:
    """A command added to these belongs into the tables below."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    taking = {
        name
        for name, command in commands.items()
        if any("--set" in one.opts for one in command.params)
    }
    assert taking == {"train", "sft", "improve", "evaluate", "play"}


@pytest.mark.parametrize(
    ("arguments", "job"),
    [
        (["train"], Job(Path("runs"), (), "runs")),
        (["train", "--out", "there"], Job(Path("there"), (), "there")),
        (["train", *SET_OUT], Job(Path("here"), (), "here")),
        (["train", *SET_URLS], Job(Path("runs"), URLS, "runs")),
        (["train", "--server", "http://c:3", *SET_OUT], Job(Path("here"), ("http://c:3",), "here")),
        (["sft"], Job(Path("runs"), (), "runs")),
        (["sft", *SET_OUT, *SET_URLS], Job(Path("here"), URLS, "here")),
        (["sft", "--server", "http://c:3", "--out", "x"], Job(Path("x"), ("http://c:3",), "x")),
        (["improve"], Job(Path("runs/improve"), ())),
        (["improve", *SET_OUT], Job(Path("here"), ())),
        (["improve", *SET_URLS, "--out", "there"], Job(Path("there"), URLS)),
        (["evaluate"], Job(None, ())),
        (["evaluate", *SET_OUT], Job(Path("here"), ())),
        (["evaluate", *SET_URLS, "--out", "there"], Job(Path("there"), URLS)),
        (["evaluate", "--policy", "random", "--server", "http://c:3"], Job(None, ("http://c:3",))),
    ],
)  # fmt: skip
def test_they_are_obeyed(started: list[Job], arguments: list[str], job: Job) -> None:
    code, output = run(*arguments)
    assert code == 0, output
    assert started == [job]


@pytest.mark.parametrize("command", ["train", "sft", "improve", "evaluate"])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*SET_OUT, "--out", "there"], "output_dir and --out mean the same"),
        ([*SET_URLS, "--server", "http://c:3"], "server_urls and --server mean the same"),
    ],
)
def test_both_at_once_are_refused(
    started: list[Job], command: str, arguments: list[str], named: str
) -> None:
    code, output = run(command, *arguments)
    assert code == 2
    assert named in " ".join(output.split())
    assert started == []


PLAY = ["play", "--db", "gone.db", "-q", "How many?"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["train", "--seed", "1", "--set", "seed=2"], "seed and --seed mean the same"),
        (["train", "--steps", "3", "--set", "max_steps=9"], "max_steps and --steps mean the same"),
        (["train", "--generation-url", "http://a/v1", "--set", "generation_url="],
         "generation_url and --generation-url mean the same"),
        (["sft", "--epochs", "3", "--set", "num_train_epochs=9"],
         "num_train_epochs and --epochs mean the same"),
        (["sft", "--model", "a", "--set", "model_name=b"], "model_name and --model mean the same"),
        (["improve", "--seed", "1", "--set", "seed=2"], "seed and --seed mean the same"),
        (["evaluate", "--difficulty", "easy", "--set", "difficulty_filter=medium"],
         "difficulty_filter and --difficulty mean the same"),
        (["evaluate", "--standard", "bird", "--set", "standard=spider"],
         "standard and --standard mean the same"),
        (["evaluate", "--set", "temperature=0.3"], "temperature has no effect here: use --temp"),
        (["evaluate", "--set", "seed=7"], "seed has no effect here: use --seed"),
        ([*PLAY, "--step-budget", "4", "--set", "step_budget=5"],
         "step_budget and --step-budget mean the same"),
        ([*PLAY, "--set", "temperature=1"], "temperature has no effect here: use --temperature"),
        ([*PLAY, "--set", "model_name=m"], "model_name has no effect here: use --model"),
        ([*PLAY, *SET_URLS], "server_urls has no effect here"),
    ],
)  # fmt: skip
def test_a_field_is_set_once_and_not_without_effect(
    started: list[Job], arguments: list[str], problem: str
) -> None:
    code, output = run(*arguments)
    assert (code, problem in output) == (2, True), output
    assert started == []


@pytest.mark.parametrize("command", ["train", "sft", "evaluate"])
def test_a_setting_overrides_the_environment(started: list[Job], command: str) -> None:
    for arguments, servers in (([], ("http://c:3",)), (SET_URLS, URLS)):
        code, output = run(command, *arguments, SQLENV_SERVER_URL="http://c:3")
        assert code == 0, output
        assert started.pop().servers == servers
    code, output = run(command, "--set", "data_dir=data/.", SQLENV_DATA_DIR="/nowhere")
    assert code == 0, output
    assert started.pop().data_dir == Path("data")
    code, output = run(command, "--set", "data_dir=data", "--data", "data")
    assert (code, "data_dir and --data mean the same" in output) == (2, True)


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_resumed_run_keeps_its_folder_and_takes_other_servers(
    started: list[Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    seen = {}

    def resumed_settings(_run: Any, servers: tuple[str, ...], overrides: Any, *_: Any) -> Any:
        seen.update(servers=servers, overrides=dict(overrides))
        raise typer.Exit(3)

    monkeypatch.setattr("trainer.run.folder.open_run", lambda path: path)
    monkeypatch.setattr("trainer.evaluation.inputs.resumed_settings", resumed_settings)
    assert run(command, "--resume", str(tmp_path), *SET_URLS, *SET_OUT)[0] == 3
    # resumed_settings refuses every override that it does not know
    assert seen == {"servers": URLS, "overrides": {"output_dir": "here"}}
