"""Ablations: what each changes, groups of one verdict, the table, and stored trainings."""

import io
import itertools
import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.learning import ablations
from benchmarks.learning.__main__ import app
from benchmarks.learning.ablations import (
    ABLATIONS,
    BASELINE,
    FRESH_SEED,
    Ablation,
    Ablations,
    ablations_of,
    changed,
    run_ablations,
    settings_of,
    stored,
    training_folder,
)
from benchmarks.learning.ablations_report import as_json, dots, label, page
from benchmarks.learning.bench import Finished, measure_both
from benchmarks.learning.training import CPUBudget
from shared.run_stats import Rate
from tests.benchmarks.finished_run import finished_run
from tests.trainer import conftest as training
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.inputs import JobOptions
from trainer.pretraining.imitation import PretrainConfig
from trainer.run.folder import Run, metrics_rows, read_json, write_json
from trainer.runtime.interrupt import Interrupted

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures
ONE_UPDATE = next(one for one in ABLATIONS if one.name == "one update")


def test_every_ablation_changes_its_own_settings_and_no_others() -> None:
    config = GRPOConfig.preset("offline", temperature=1.2)
    assert ablations_of(config) == list(ABLATIONS)
    for one in ABLATIONS:
        pairs = zip(asdict(config).items(), asdict(changed(config, one)).items(), strict=True)
        assert {name for (name, then), (_, now) in pairs if then != now} == set(one.settings)
        assert one is BASELINE or one.fresh or one.settings


def test_an_ablation_that_changes_nothing_is_left_out() -> None:
    names = [one.name for one in ablations_of(GRPOConfig.preset("offline", temperature=1.4))]
    assert "temperature 1.4" not in names
    assert {"baseline", "temperature 1.0", "fresh questions"} <= set(names)


def test_groups_of_four_are_of_twice_as_many_questions() -> None:
    config = GRPOConfig.preset("offline")
    four = next(one for one in ABLATIONS if one.name == "4 generations")
    assert config.num_generations == 8
    assert changed(config, four).rollouts_per_step == config.rollouts_per_step


def test_fresh_questions_are_not_those_of_pretraining() -> None:
    assert PretrainConfig().seed + 10 < FRESH_SEED  # a stage's seed is this plus its number


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    config = GRPOConfig.preset("offline", temperature=1.2, seed=1)
    digests = {name: name[0] * 64 for name in ("data", "server", "model", "trained_model")}
    summary = {"digests": digests}
    return Finished(Run(tmp_path / "run-seed1"), config, JobOptions(), summary)


def store(finished: Finished, one: Ablation, seed: int, right: int, **changes: Any) -> None:
    """Store a training with `right` of 100 seen questions right, sampled 10 fewer."""
    of = settings_of(finished, one, seed, 600)
    of["settings"] |= changes
    modes = {}
    for mode, fewer in (("greedy", 0), ("sampled", 10)):
        seen, unseen = Rate(right - fewer, 100), Rate(2 * right - fewer, 200)
        modes[mode] = {"seen": seen.as_dict(), "unseen": unseen.as_dict()}
    rates = {f"q{n}": ((n < right) + (n < right - 10)) / 2 for n in range(100)}
    notes = {"steps": 20 + seed, "one_verdict": 0.25, "by_question": rates}
    result = {"of": of, "policies": {one.slug: modes}, "seconds": 601.5, "notes": notes}
    write_json(training_folder(finished, one, seed, 600) / "training.json", result)


def results(finished: Finished) -> Ablations:
    for seed, right in ((1, 70), (2, 80)):
        store(finished, BASELINE, seed, right)
        store(finished, ONE_UPDATE, seed, right - 20 * seed)
    store(finished, ONE_UPDATE, 3, 90)
    return Ablations(finished, 600, stored(finished, 600))


def test_the_table_pools_seeds_and_compares_those_that_the_baseline_has(finished: Finished) -> None:
    text = page(results(finished), ["python -m benchmarks.learning ablations --run runs/x"])
    assert "    python -m benchmarks.learning ablations --run runs/x\n" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {row.count("|") for row in rows} == {11}
    assert rows[3].startswith("| baseline | 75.0 [68.6, 80.5] | 65.0 [58.2, 71.3] | - | - |")
    assert rows[3].endswith("| 22 | 25 | 1, 2 |")
    # 50, 40 and 90 of 100; of the baseline's seeds, 70 and 80, the first two
    assert rows[4].startswith("| one update | 60.0 [54.4, 65.4] |")
    assert "| −30.0 [" in rows[4]
    assert "| −20.0, −40.0 |" in rows[4]
    assert "- one update: one update per batch of episodes" in text
    assert "600 CPU-seconds" in text
    assert "64 episodes per step" in text
    assert "Fresh questions are not" not in text


def test_the_json_has_what_the_figure_shows(finished: Finished) -> None:
    found = json.loads(json.dumps(as_json(results(finished), ["c"])))
    one = found["ablations"]["one update"]
    assert (one["seeds"], one["steps"], one["settings"]) == (
        [1, 2, 3],
        22,
        {"updates_per_batch": 1},
    )
    assert one["success"]["unseen"]["greedy"]["n"] == 600
    assert one["cpu_s"] == 601.5
    assert one["against_baseline"]["difference"] == pytest.approx(-0.3)
    assert one["against_baseline_by_seed"] == {"1": pytest.approx(-0.2), "2": pytest.approx(-0.4)}
    assert found["ablations"]["baseline"]["against_baseline"] is None
    assert found["cpu_s"] == 600


def test_the_figure_is_drawn_with_and_without_a_baseline(finished: Finished) -> None:
    store(finished, ONE_UPDATE, 1, 50)
    assert dots(Ablations(finished, 600, stored(finished, 600))).startswith(b"\x89PNG")
    assert dots(results(finished)).startswith(b"\x89PNG")


def test_the_figure_names_the_seeds_of_a_row_that_has_fewer(finished: Finished) -> None:
    found = results(finished)
    assert found.seeds == [1, 2, 3]
    names = [label(row, found.seeds) for row in found.rows]
    assert names == ["baseline (seeds 1, 2)", "one update"]


def test_trainings_of_another_budget_are_not_in_the_table(finished: Finished) -> None:
    results(finished)
    assert stored(finished, 300) == []


def test_a_baseline_of_other_settings_is_refused(finished: Finished) -> None:
    store(finished, BASELINE, 1, 70, learning_rate=1e-3, weight_decay=0.1)
    with pytest.raises(RunError, match=r"learning_rate 0.001 and now 0.0003, weight_decay 0.1 and"):
        stored(finished, 600)
    finished.summary["digests"]["model"] = "other"
    store(finished, BASELINE, 1, 70)
    finished.summary["digests"]["model"] = "one"
    with pytest.raises(RunError, match=r"baseline-600s-seed1 .* \(model other and now one\)"):
        stored(finished, 600)


def test_an_unfinished_training_of_other_settings_is_refused(finished: Finished) -> None:
    of = settings_of(finished, ONE_UPDATE, 2, 600)
    of["settings"]["beta"] = 0.04
    folder = training_folder(finished, ONE_UPDATE, 2, 600)
    write_json(folder / "training" / "of.json", of)
    with pytest.raises(RunError, match=r"one-update-600s-seed2 .*beta"):
        stored(finished, 600)


def test_settings_that_cannot_be_ablated_are_refused(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO())
    monkeypatch.setattr(ablations, "load_finished", lambda path: finished)
    with pytest.raises(RunError, match=r"no ablation two-updates; .* baseline, one-update"):
        run_ablations(finished.run.path, ["two updates"], [1], 600, console=console)
    finished.config.lr_scheduler = "cosine"
    with pytest.raises(RunError, match="linear or constant_with_warmup"):
        run_ablations(finished.run.path, [], [1], 600, console=console)


@pytest.mark.parametrize(("falling", "rates"), [(True, [0.1, 0.075, 0.05]), (False, [0.1] * 3)])
def test_a_learning_rate_falls_with_the_cpu_time(falling: bool, rates: list[float]) -> None:
    log: Any = SimpleNamespace(spent=SimpleNamespace(cpu_s=0.0))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    budget = CPUBudget(log, 600, falling)
    used = []
    for _ in rates:
        for _ in range(2):  # as in a step that is begun again after a resume
            budget.on_step_begin(None, None, None, optimizer=optimizer, lr_scheduler=schedule)
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        log.spent.cpu_s += 150
    assert used == pytest.approx(rates)


def test_bad_options_are_reported_in_one_line(tmp_path: Path) -> None:
    assert "--seeds" in CliRunner().invoke(app, ["ablations", "--seeds", "one"]).output
    found = CliRunner().invoke(app, ["ablations", "--run", "no/such/run", "--out", str(tmp_path)])
    assert (found.exit_code, "make train" in found.output) == (1, True)


def test_the_command_writes_the_page_and_names_itself(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results(finished)
    monkeypatch.setattr(ablations, "run_ablations", lambda *_, **__: found)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["ablations", "--run", "run-seed1", "--out", "figures"])
    assert done.exit_code == 0, done.output
    start = "python -m benchmarks.learning ablations --run run-seed1 --only"
    commands = [
        f"{start} {slug} --seeds {seeds} --cpu-s 600"
        for slug, seeds in (("baseline", "1,2"), ("one-update", "1,2,3"))
    ]
    assert "    " + "\n    ".join(commands) + "\n" in Path("figures/ablations.md").read_text()
    assert read_json(Path("figures/ablations.json"))["commands"] == commands
    assert Path("figures/ablations.png").stat().st_size > 1000


@pytest.mark.slow
def test_trainings_of_equal_cpu_time_resume(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ablations on a real server, stopped in a step and before an evaluation."""
    console = Console(file=io.StringIO(), width=200)
    latest = finished_run(config, model, tokenizer, tmp_path, 1, console)
    # a step takes one second of CPU time
    readings = itertools.count()
    clocks = {"process_time": lambda: float(next(readings)), "perf_counter": time.perf_counter}
    monkeypatch.setattr("trainer.grpo.metrics_log.time", SimpleNamespace(**clocks))
    monkeypatch.setattr(ablations, "FRESH_DATABASES", 4)

    def trained(*only: str) -> Ablations:
        return run_ablations(latest, only, [7], 3, console=console)

    def stop(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)

    folders = {
        slug: Run((latest / "ablations" / f"{slug}-3s-seed7" / "training").resolve())
        for slug in ("baseline", "fresh-questions")
    }
    baseline, fresh = folders.values()
    with monkeypatch.context() as patched:
        patched.setattr(CPUBudget, "on_step_end", stop)
        with pytest.raises(Interrupted):
            trained("baseline")
    begun = list(metrics_rows(baseline.metrics))
    assert [row["step"] for row in begun] == [1]

    with monkeypatch.context() as patched:

        def stop_fresh(bench: Any, folder: Run, *rest: Any) -> Any:
            return (stop if folder.path == fresh.path else measure_both)(bench, folder, *rest)

        patched.setattr(ablations, "measure_both", stop_fresh)
        with pytest.raises(Interrupted):
            trained("baseline", "fresh questions")
    result = baseline.path.with_suffix(".json")
    stamp = result.stat().st_mtime_ns
    assert not fresh.path.with_suffix(".json").exists()
    assert fresh.last_checkpoint() is not None

    found = trained("baseline", "fresh questions")
    assert result.stat().st_mtime_ns == stamp
    for folder in folders.values():
        rows = [row for row in metrics_rows(folder.metrics) if "success" in row]
        assert [(row["step"], row["cpu_s"]) for row in rows] == [(1, 1.0), (2, 2.0), (3, 3.0)]
        assert folder.last_checkpoint() is None
    assert next(metrics_rows(baseline.metrics)) == begun[0]
    databases = {
        slug: {line["database"] for line in map(json.loads, folder.episodes.open())}
        for slug, folder in folders.items()
    }
    assert databases["baseline"] == {"shop", "club"}
    assert not databases["fresh-questions"] & {"shop", "club", "farm"}
    lines = as_json(found, ["c"])["ablations"]
    assert {name: (one["steps"], one["seeds"]) for name, one in lines.items()} == {
        "baseline": (3, [7]),
        "fresh questions": (3, [7]),
    }
    for one in lines.values():
        parts = {part: modes["greedy"]["n"] for part, modes in one["success"].items()}
        assert parts == {"seen": 4, "unseen": 2}
        assert 0 <= one["one_verdict"] <= 1
    assert read_json(result)["of"]["settings"]["seed"] == 7
    assert "Fresh questions are not" in page(found, ["c"])
