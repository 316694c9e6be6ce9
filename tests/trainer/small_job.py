"""A job of seconds over a fake server: start, stop and resume it, and check its files."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shared.models import ServerMetadata
from tests.trainer.conftest import FakeClient, prompts
from tests.trainer.small_data import TRAIN_DATABASES
from trainer.config.settings import GRPOConfig
from trainer.grpo.build_trainer import build_trainer
from trainer.grpo.grpo_job import GrpoJob
from trainer.run.folder import Run, create_run, open_run, point_latest, read_json, read_lines
from trainer.run.inputs import Inputs, JobOptions, load_inputs, save_settings
from trainer.run.job import Job, run_job
from trainer.run.players import Connection
from trainer.runtime.interrupt import Interrupted
from trainer.runtime.ranks import Ranks


def begin(
    config: GRPOConfig,
    tmp_path: Path,
    client: FakeClient,
    *,
    resume: Run | None = None,
    own: Any = None,
    **options: Any,
) -> GrpoJob:
    settings = JobOptions("offline", tmp_path / "runs", eval_every=1, eval_points=4, **options)
    run = resume or create_run(settings.out, "test")
    inputs = load_inputs(config, settings)
    metadata = served(inputs)
    save_settings(run, config, settings, inputs, metadata)
    point_latest(run)
    console = Console(file=(tmp_path / "out.txt").open("a"), width=200)
    return GrpoJob(
        run, Connection(config, client, metadata, own), settings, inputs, console, Ranks()
    )


def served(inputs: Inputs, digest: str = "server-digest") -> ServerMetadata:
    return ServerMetadata(
        name="fake",
        description="",
        version="0",
        reward_version="fake",
        sqlite_version="3.99",
        digest=digest,
        data_digest=inputs.data_digest,
        questions={},
        databases=3,
        step_budget=3,
        standard="strict",
        capacity=1,
    )


def run_here(
    config: GRPOConfig,
    options: JobOptions,
    client: FakeClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    resume: Run | None = None,
    digest: str = "server-digest",
    error: BaseException | None = None,
    kind: type[Job] = GrpoJob,
) -> str:
    """Run `run_job` over the fake server to its end or to `Interrupted`, and return its output.

    `error` is raised on connecting.
    """

    @contextmanager
    def connected(
        config: GRPOConfig, servers: Any, inputs: Inputs, log_path: Path, ranks: Ranks
    ) -> Iterator[Connection]:
        if error is not None:
            raise error
        yield Connection(config, client, served(inputs, digest))

    monkeypatch.setattr("trainer.run.job.connected", connected)
    monkeypatch.setattr("trainer.run.job.check_servers", lambda *_: None)
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as shown, suppress(Interrupted):
        run_job(config, options, kind, resume=resume, console=console)
    return shown.get()


def trainer_of(model: Any, tokenizer: Any, config: GRPOConfig, **options: Any) -> Any:
    """Return a trainer over four questions, which plays on a fake server by default."""
    options = {"client": FakeClient(), **options}
    return build_trainer(model, tokenizer, config, prompts(config), **options)


class StoppingClient(FakeClient):
    """Raises `error` on the way into the given reset_many call (1 is the first)."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self.at, self.error_raised = at, error
        self.resets = 0

    def reset_many(self, requests: Any) -> Any:
        self.resets += 1
        if self.resets == self.at:
            raise self.error_raised
        return super().reset_many(requests)


def latest(tmp_path: Path) -> Run:
    return open_run(tmp_path / "runs" / "latest")


_uninterrupted: dict[str, Any] = {}


def uninterrupted(small: GRPOConfig, tmp_path: Path) -> dict[str, Any]:
    """Return `comparable` of the run of `small` to its end, which a process makes once."""
    if not _uninterrupted:
        begin(small, tmp_path / "whole", FakeClient()).run()
        run = latest(tmp_path / "whole")
        _uninterrupted.update(comparable(run))
    return _uninterrupted


def check_costs(
    summary: dict[str, Any], steps: list[dict[str, Any]], points: list[dict[str, Any]]
) -> None:
    """Check that seconds of training grow, exclude evaluation, and agree between the files."""
    found, times = summary["cost"], [row["train_s"] for row in steps]
    assert 0 < times[0] < times[1] < times[2] == found["train_s"]
    # a point belongs to the step before it
    assert [row["train_s"] for row in points] == [0.0, *times]
    spent = sum(row["rollout_s"] + row["update_s"] for row in steps)
    assert times[-1] == pytest.approx(spent, abs=1e-2)
    assert found["train_episodes"] == summary["by_phase"]["train"]["episodes"] == 24
    assert found["cpu_s"] == steps[-1]["cpu_s"] > steps[0]["cpu_s"] > 0
    assert found["server_cpu_s"] is None  # the run started no server
    whole = [one["wall_s"] for modes in summary["evaluations"].values() for one in modes.values()]
    assert found["whole_evaluation_s"] == pytest.approx(sum(whole), abs=1e-3)


def check_summary(summary: dict[str, Any], run: Run, *, steps: int, questions: int) -> None:
    for phase, modes in (("random", 1), ("before", 2), ("after", 2)):
        found = summary[f"eval_success_{phase}"]
        assert len(found) == modes
        for parts in found.values():
            assert list(parts) == ["overall", "seen", "unseen"]
            assert parts["overall"]["n"] == questions == parts["seen"]["n"] + parts["unseen"]["n"]
            assert all(
                0 <= one["ci95"][0] <= one["rate"] <= one["ci95"][1] for one in parts.values()
            )
    lines = list(read_lines(run.episodes))
    assert summary["train_steps"] == steps
    assert summary["episodes"] == len(lines)
    assert summary["episodes_lost"] == 0
    assert summary["parse_failures"] == sum(line["parse_failures"] for line in lines)
    assert summary["env_errors"] == sum(line["env_errors"] for line in lines)
    assert summary["rollout_s"] >= summary["generate_s"] + summary["env_wait_s"] > 0
    assert summary["wall_s"] >= summary["rollout_s"] + summary["update_s"] > summary["rollout_s"]
    assert {"python", "torch", "transformers", "trl", "sqlite"} <= summary["versions"].keys()
    assert {"data", "server", "model"} <= summary["digests"].keys()
    assert summary["digests"]["trained_model"] != summary["digests"]["model"]
    assert isinstance(summary["seed"], int)
    unseen = {line["database"] for line in lines if line["part"] == "unseen"}
    assert unseen
    assert not unseen & set(TRAIN_DATABASES)


def comparable(run: Run) -> dict[str, Any]:
    summary = read_json(run.summary)
    timed = ("_s", "step_time", "train_runtime", "per_second", "flos")
    rows = [
        {key: value for key, value in row.items() if not key.endswith(timed)}
        for row in read_lines(run.metrics)
        if "train_runtime" not in row
    ]
    episodes = sorted(json.dumps(line, sort_keys=True) for line in read_lines(run.episodes))
    return {
        "rates": {key: value for key, value in summary.items() if key.startswith("eval_success")},
        "counts": {
            key: summary[key] for key in ("episodes", "parse_failures", "env_errors", "train_steps")
        },
        "digests": summary["digests"],
        "rows": sorted(rows, key=lambda row: (row["step"], "eval_n" in row)),
        "episodes": episodes,
    }
