"""`output_dir` and `server_urls` are obeyed or refused by every command that takes settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from trainer.__main__ import app
from trainer.config import GRPOConfig
from trainer.presets import PRESETS

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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    jobs: list[Job] = []

    def run_job(config: GRPOConfig, options: Any, **_: Any) -> None:
        jobs.append(Job(options.out, options.servers, config.output_dir, config.data_dir))

    def run_evaluation(settings: Any, *_: Any) -> None:
        jobs.append(Job(settings.out, settings.servers, data_dir=settings.config.data_dir))

    monkeypatch.setattr("trainer.grpo.job.run_job", run_job)
    monkeypatch.setattr("trainer.evaluation.run.run_evaluation", run_evaluation)
    return jobs


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", **environment})
    return done.exit_code, done.output


def test_three_commands_take_settings() -> None:
    """A command added to these belongs into the tables below."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    taking = {
        name
        for name, command in commands.items()
        if any("--set" in one.opts for one in command.params)
    }
    assert taking == {"train", "sft", "evaluate"}


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


@pytest.mark.parametrize("command", ["train", "sft", "evaluate"])
def test_a_presets_are_obeyed(
    started: list[Job], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    given = {"output_dir": "shelf", "server_urls": list(URLS)}
    monkeypatch.setitem(PRESETS, "offline", PRESETS["offline"] | given)
    assert run(command)[0] == 0
    assert run(command, "--out", "there", "--server", "http://c:3")[0] == 0
    places = [(job.out, job.servers) for job in started]
    assert places == [(Path("shelf"), URLS), (Path("there"), ("http://c:3",))]


@pytest.mark.parametrize("command", ["train", "sft", "evaluate"])
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
