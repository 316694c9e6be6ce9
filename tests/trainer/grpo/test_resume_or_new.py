"""`--resume-or-new`, a run that another process holds, and disks that end a run."""

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import StoppingClient, begin, latest, run_here
from trainer.errors import RunError, storage_problem
from trainer.grpo.masked_trainer import MaskedGRPOTrainer
from trainer.run.folder import held, read_json, write_json
from trainer.run.inputs import JobOptions
from trainer.run.resume import find_run
from trainer.runtime.interrupt import Interrupted

pytestmark = pytest.mark.usefixtures("blank_charts")


def options(tmp_path: Path, **more: Any) -> JobOptions:
    return JobOptions("offline", tmp_path / "runs", eval_every=1, eval_points=4, **more)


def test_the_run_with_the_same_settings_is_found(small, tmp_path):
    given = options(tmp_path)
    said = f"starting a new run: {given.out} holds none with these settings"
    assert find_run(small, given) == (None, said)
    with pytest.raises(Interrupted):
        begin(small, tmp_path, StoppingClient(6, Interrupted())).run()
    run = latest(tmp_path)
    # a newer run of other settings does not hide it
    begin(replace(small, seed=small.seed + 1), tmp_path, FakeClient())
    found, line = find_run(small, given)
    assert found == run
    assert "is not finished: resuming it" in line
    begin(small, tmp_path, FakeClient(), resume=run).run()
    found, line = find_run(small, given)
    assert found == run
    assert "is finished: nothing is trained" in line


def test_settings_that_only_save_memory_or_name_servers_may_change(small, tmp_path):
    begin(small, tmp_path, FakeClient())
    other = replace(
        small,
        per_device_train_batch_size=small.per_device_train_batch_size // 2,
        gradient_accumulation_steps=small.gradient_accumulation_steps * 2,
        server_urls=["http://elsewhere:8000"],
    )
    run = latest(tmp_path)
    write_json(run.config, read_json(run.config) | {"processes": 2})
    assert find_run(other, options(tmp_path))[0] == run


def test_other_settings_begin_a_new_run_and_are_named(small, tmp_path, data_dir):
    begin(small, tmp_path, FakeClient())
    name = latest(tmp_path).id
    micro = small.gradient_accumulation_steps * 2
    changed = [
        (replace(small, seed=7), {}, f"seed was {small.seed} and is 7"),
        (small, {"eval_limit": 5}, "eval_limit was 0 and is 5"),
        (replace(small, gradient_accumulation_steps=micro), {}, "rollouts_per_step was 8 and is"),
    ]
    for config, given, said in changed:
        run, line = find_run(config, options(tmp_path, **given))
        assert run is None
        assert line.startswith("starting a new run: ")
        assert f"{name} has other settings ({said}" in line
    path = data_dir / "questions" / "questions_eval.json"
    path.write_text(path.read_text().replace("How many", "Count the"))
    run, line = find_run(small, options(tmp_path))
    assert run is None
    assert f"the data in {small.data_dir} have changed" in line


def test_a_run_is_trained_by_one_process_at_a_time(small, tmp_path, monkeypatch):
    begin(small, tmp_path, FakeClient())
    run = latest(tmp_path)
    waiting = r"another process uses .*: wait for its end"
    with held(run.path), pytest.raises(RunError, match=waiting):
        run_here(small, options(tmp_path), FakeClient(), monkeypatch, resume=run)
    run_here(small, options(tmp_path), FakeClient(), monkeypatch, resume=run)
    assert run.summary.exists()


SERIALIZING = SafetensorError(
    "Error while serializing: I/O error: No space left on device (os error 28)"
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "is full: free some space there"),
        (SERIALIZING, "is full: free some space there"),
        (RuntimeError("[enforce fail at c.cc:664] . unexpected pos 64 vs 0"), "is full: free"),
        (OSError(errno.EROFS, "Read-only file system"), "read-only file system: mount it for"),
        (OSError(errno.ESTALE, "Stale file handle"), "fails"),
    ],
)
def test_every_error_of_a_disk_is_known(tmp_path, error, said):
    assert said in str(storage_problem(error, tmp_path))


def test_a_disk_that_is_full_leaves_the_last_checkpoint(small, tmp_path, monkeypatch):
    save = MaskedGRPOTrainer._save_optimizer_and_scheduler
    seldom = replace(small, save_steps=1)

    def full(self: Any, folder: str) -> None:
        if self.state.global_step == 2:
            raise SERIALIZING
        save(self, folder)

    monkeypatch.setattr(MaskedGRPOTrainer, "_save_optimizer_and_scheduler", full)
    with pytest.raises(RunError, match=r"the disk of .* is full: free some space there, then .*"):
        run_here(seldom, options(tmp_path), FakeClient(), monkeypatch)
    run = latest(tmp_path)
    assert [path.name for path in run.checkpoints.glob("checkpoint-*")] == ["checkpoint-1"]


def test_a_folder_that_was_removed_is_named(small, tmp_path, monkeypatch):
    class Removing(FakeClient):
        """Removes the run's folder, as an operator might, in its second training step."""

        resets = 0

        def reset_many(self, requests: Any) -> Any:
            self.resets += 1
            if self.resets == 7:
                shutil.rmtree(latest(tmp_path).path)
            return super().reset_many(requests)

    with pytest.raises(RunError, match="was removed during the run: restore it, or begin a new"):
        run_here(small, options(tmp_path), Removing(), monkeypatch)
