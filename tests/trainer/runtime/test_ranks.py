"""How the processes of a run stay in step, with threads in place of processes."""

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import Accelerator
from accelerate.commands.config.config_args import load_config_from_file
from torch.distributed import DistNetworkError

from shared.errors import ServerUnreachable
from tests.trainer.conftest import FakeClient, prompts
from trainer.config.settings import ConfigError
from trainer.errors import RankLost, RolloutError
from trainer.rollout.adapters import rollout_func
from trainer.rollout.loop import play_episodes
from trainer.rollout.row import RolloutRow
from trainer.run.folder import Run
from trainer.run.inputs import JobOptions, shared_settings
from trainer.run.players import batch_of, shared_play
from trainer.runtime.interrupt import Interrupted
from trainer.runtime.ranks import (
    Ranks,
    check_one_gpu,
    check_same_settings,
    check_settings,
    joined,
    rank_lost,
)

ROOT = Path(__file__).parents[3]
FILES = ROOT / "trainer" / "runtime" / "accelerate"
LAUNCHED = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
}


class Threaded(Ranks):
    """A rank whose peers are threads of this process; values are pickled as between processes."""

    def __init__(self, index: int, values: list[bytes], barrier: threading.Barrier) -> None:
        super().__init__(index=index, count=len(values), local_count=len(values))
        self._values, self._barrier = values, barrier

    def gather(self, value: Any) -> list[Any]:
        self._values[self.index] = pickle.dumps(value)
        self._barrier.wait()
        found = [pickle.loads(one) for one in self._values]
        self._barrier.wait()
        return found


def on_each(count: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Return what `work` returned or raised on each of `count` ranks."""
    values, barrier = [b""] * count, threading.Barrier(count, timeout=20)
    found: list[Any] = [None] * count

    def run(index: int) -> None:
        try:
            found[index] = work(Threaded(index, values, barrier))
        except BaseException as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_results_are_in_the_order_of_the_processes():
    assert on_each(3, lambda ranks: ranks.each(lambda: ranks.index * 10)) == [[0, 10, 20]] * 3
    assert on_each(3, lambda ranks: ranks.first(lambda: ranks.index)) == [0] * 3
    assert on_each(3, lambda ranks: ranks.anywhere(ranks.index == 1)) == [True] * 3
    assert on_each(2, lambda ranks: ranks.anywhere(False)) == [False] * 2
    assert [ranks.main for ranks in on_each(2, lambda ranks: ranks)] == [True, False]


def test_all_processes_raise_the_error_of_one():
    def work(ranks: Ranks) -> str:
        def play() -> str:
            if ranks.index == 1:
                raise RolloutError(
                    "8 of 8 episodes were lost", lost=8, cause=ServerUnreachable("gone")
                )
            return "played"

        return ranks.together(play)

    found = on_each(3, work)
    assert [type(one) for one in found] == [RolloutError] * 3
    assert found[1].message == "8 of 8 episodes were lost"  # its own, as it was raised
    assert found[0].message.startswith("process 1 on ")
    assert found[0].message.endswith(found[1].message)


def test_an_interruption_takes_precedence_over_an_error():
    def work(ranks: Ranks) -> None:
        def play() -> None:
            if ranks.index == 0:
                raise RolloutError("lost")

        ranks.interrupts.requested = ranks.index == 2  # a signal during an update
        with ranks.deferred():
            ranks.together(play)

    found = on_each(3, work)
    assert [type(one) for one in found] == [Interrupted] * 3
    assert all(one.clean for one in found)


def test_a_shared_measurement_has_all_rows(config, model, tokenizer):
    """Three ranks play 4 questions: the same rows as from one rank, in order, without ids."""
    asked = [row["prompt"] for row in prompts(config, 4)]

    def play(given: Any, *_: Any) -> list[RolloutRow]:
        return play_episodes(given, model, tokenizer, config, client=FakeClient(), seed=3)

    alone = shared_play(play, Ranks())(asked)
    assert all(row.ids and row.env_mask and row.logprobs for row in alone)
    expected = [row.without_ids() for row in alone]
    lock = threading.Lock()  # the model is not thread-safe

    def locked(given: Any, *_: Any) -> list[RolloutRow]:
        with lock:
            return play(given)

    assert on_each(3, lambda ranks: shared_play(locked, ranks)(asked)) == [expected] * 3
    # one rank has no question
    assert on_each(5, lambda ranks: shared_play(locked, ranks)(asked)) == [expected] * 5
    assert on_each(2, lambda ranks: batch_of(model, config, ranks)) == [256, 256]


@pytest.mark.parametrize("allowed", [0.5, 0.4])
def test_max_lost_fraction_applies_to_the_whole_batch(config, model, tokenizer, allowed):
    """One of two ranks loses all its episodes, half of the batch; both get all rows, in order."""
    settings, accelerator = config.override(max_lost_fraction=allowed), Accelerator(cpu=True)
    seen: dict[int, list[RolloutRow]] = {}
    models = [copy.deepcopy(model) for _ in range(2)]

    def work(ranks: Ranks) -> Any:
        own = models[ranks.index]
        trainer = SimpleNamespace(
            state=SimpleNamespace(global_step=0),
            accelerator=accelerator,
            model=own,
            model_wrapped=own,
            processing_class=tokenizer,
        )
        return rollout_func(
            [prompts(config, 2)[ranks.index]["prompt"]] * 4,
            trainer,
            config=settings,
            client=FakeClient(failing={"q1": 1}),
            on_rows=lambda rows, trainer: seen.update({ranks.index: rows}),
            ranks=ranks,
        )

    found = on_each(2, work)
    if allowed < 0.5:
        assert [type(one) for one in found] == [RolloutError] * 2
        assert not seen  # the batch is played again after --resume
        return
    for rows in seen.values():
        assert [(row.question_id, row.lost is None) for row in rows] == [("q0", True)] * 4 + [
            ("q1", False)
        ] * 4
    assert len(seen) == 2
    assert [set(one["question_id"]) for one in found] == [{"q0"}, {"q1"}]
    assert all(ids for one in found for ids in one["completion_ids"])
    assert found[1]["correctness"] == [None] * 4


def test_a_broken_connection_is_recognized():
    gloo = RuntimeError(
        "[/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:18357."
    )
    lost = rank_lost(gloo)
    assert isinstance(lost, RankLost)
    assert "Connection closed by peer [10.0.0.1]:18357" in lost.message
    assert "pair.cc" not in lost.message
    assert "--resume" in lost.message
    assert isinstance(rank_lost(DistNetworkError("the socket timed out")), RankLost)
    assert rank_lost(RuntimeError("CUDA out of memory")) is None
    assert rank_lost(ValueError("gloo")) is None


@pytest.fixture
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)


@pytest.mark.usefixtures("eight_gpus")
@pytest.mark.parametrize(
    ("device", "count", "gpus", "message"),
    [
        ("cpu", 4, 0, r"gradient_accumulation_steps \(2\) can't be shared by 4 .* multiple of 4"),
        ("cuda:1", 2, 8, "has 8 GPUs: each of its 2 processes needs one .*device=cuda"),
        ("cuda", 2, 1, "has 1 GPUs: each of its 2 processes needs one"),
        ("cuda:1", 1, 8, "set CUDA_VISIBLE_DEVICES=1 and .* with --processes 8"),
    ],
)
def test_settings_that_do_not_allow_so_many_processes_are_refused(
    config, device, count, gpus, message
):
    settings = config.override(device=device)
    with pytest.raises(ConfigError, match=message):
        check_settings(settings, count, count, gpus) if count > 1 else check_one_gpu(settings, gpus)


@pytest.mark.usefixtures("eight_gpus")
def test_a_single_process_uses_one_gpu(config):
    assert check_settings(config, 2, 2, gpus=0) == "cpu"
    for device, gpus in (("cuda", 1), ("cpu", 8)):
        check_one_gpu(config.override(device=device), gpus)
    cuda = config.override(device="cuda")
    with pytest.raises(ConfigError, match="with --processes 8"), joined(cuda, Ranks().interrupts):
        pytest.fail("a job must not start")
    with pytest.raises(ConfigError, match=r"uses one GPU, but sees 8: .*device=cuda:0"):
        check_one_gpu(cuda, gpus=8, training=False)
    check_one_gpu(config.override(device="cuda:1"), gpus=8, training=False)


@pytest.mark.parametrize(
    ("changes", "options", "resume", "names"),
    [
        ({"seed": 8}, {"eval_limit": 5}, None, "seed, eval_limit"),
        ({}, {}, Run(Path("/runs/a")), "resume"),
        ({"model_name": "/elsewhere", "db_dir": "/mnt"}, {"out": Path("/mnt/runs")}, None, ""),
    ],
)
def test_different_options_on_machines_are_refused(config, changes, options, resume, names):
    given = [
        shared_settings(config, JobOptions(), None),
        shared_settings(config.override(**changes), JobOptions(**options), resume),
    ]
    for error in on_each(2, lambda ranks: check_same_settings(given[ranks.index], ranks)):
        assert (error is None) == (not names)
        assert not names or f"different settings ({names})" in error.message


def test_bad_settings_are_reported_once_per_machine(config, monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    ranks = Ranks()
    with pytest.raises(SystemExit) as left, joined(config, ranks.interrupts):
        pass
    assert left.value.code == 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    with (
        pytest.raises(ConfigError, match="ACCELERATE_USE_DEEPSPEED"),
        joined(config, ranks.interrupts),
    ):
        pass


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.glob("*.yaml")))
def test_the_launcher_files_start_several_processes(name):
    """MULTI_CPU would start a single process without MPI."""
    found = load_config_from_file(str(FILES / name))
    assert found.distributed_type == "MULTI_GPU"
    assert found.num_processes % found.num_machines == 0
    assert found.num_processes > found.num_machines
    assert found.mixed_precision == "no"  # the trainer's dtype decides


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("lambda: None", 0, ""),
        ("lambda: sys.exit(3)", 3, ""),
        ("lambda: 1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_a_process_ends_with_its_code_after_what_it_printed(work, code, said):
    """Its threads and the interpreter's tear-down have no say; exit handlers have."""
    script = f"""
import atexit, os, sys, threading, time
from trainer.runtime.ranks import run_and_exit
class Abort:
    def __del__(self): os.abort()
kept = Abort()
threading.Thread(target=time.sleep, args=(1000,)).start()
atexit.register(print, "handled")
print("printed")
run_and_exit({work})
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (ended.returncode, ended.stdout) == (code, "printed\nhandled\n"), ended.stderr
    assert said in ended.stderr
