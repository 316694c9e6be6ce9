"""Imitation shared by processes."""

import multiprocessing
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import psutil
import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.trainer.pretraining.test_imitation import SMALL, rows, tokenizer
from trainer.pretraining import data_parallel
from trainer.pretraining.data_parallel import Task, imitate
from trainer.pretraining.imitation import (
    PretrainConfig,
    Row,
    build_model,
    collate,
    imitation_loss,
    plan_passes,
)
from trainer.runtime.memory import GIB

TOKENIZER = tokenizer()


def weights_of(model: Qwen3ForCausalLM) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def learned(given: list[Row], processes: int, config: PretrainConfig = SMALL, checkpoint=None):
    model, lines = build_model(config, TOKENIZER), []
    task = Task(model, TOKENIZER, given, config, checkpoint)
    return model, imitate(task, processes, lines.append), lines


@pytest.mark.slow
def test_two_processes_make_the_steps_of_one():
    """Also of a batch with fewer rows than processes, and of shares with unequal token counts."""
    config = replace(SMALL, passes=2.0, renamed_share=0.0)
    given = rows(37)
    plan = plan_passes(given, config)
    assert {len(batch) % 2 for batch in plan} == {0, 1}
    assert any(len(batch) == 1 for batch in plan)
    start = weights_of(build_model(config, TOKENIZER))
    found = []
    for processes in (1, 2):
        model, figures, lines = learned(given, processes, config)
        assert figures.tokens == sum(len(row.ids) for batch in plan for row in batch)
        assert re.match(rf"batch {len(plan) - 1} of {len(plan)}, ", lines[-1])
        found.append((weights_of(model), figures.loss))
    (one, loss), (two, other_loss) = found
    assert other_loss == pytest.approx(loss, rel=0.01)
    assert torch.dist(one, two) < 0.1 * torch.dist(one, start)


@pytest.mark.parametrize(
    ("device", "cores", "gib", "processes"),
    [
        ("cpu", 2, 15.5, 2),
        ("cpu", 16, 31.0, 4),
        ("cpu", 16, 14.0, 1),
        ("cpu", 2, 3.0, 1),
        ("cuda", 16, 64.0, 1),
    ],
)
def test_the_default_is_a_process_per_core_within_the_memory(
    device, cores, gib, processes, monkeypatch
):
    monkeypatch.setattr(data_parallel, "precision", lambda *_: (device, torch.float32))
    monkeypatch.setattr(data_parallel, "usable_cores", lambda: cores)
    monkeypatch.setattr(data_parallel, "machine_memory", lambda: int(gib * GIB))
    assert data_parallel.pretraining_processes() == processes


@pytest.mark.slow
def test_two_processes_continue_from_a_checkpoint(tmp_path):
    """Also from that of one process."""
    given = [Row([5, 6, 7, 8, 9, 10], [0, 0, 1, 1, 1, 1], True) for _ in range(40)]
    config = replace(SMALL, batch_tokens=48, passes=20.0, renamed_share=0.0, easy_share=0.0)

    def interrupt(line):
        if line.startswith("batch 50"):
            raise KeyboardInterrupt

    begun = tmp_path / "begun.pt"
    with pytest.raises(KeyboardInterrupt):
        imitate(Task(build_model(config, TOKENIZER), TOKENIZER, given, config, begun), 1, interrupt)
    whole, whole_figures, _ = learned(given, 2, config)
    continued, figures, lines = learned(given, 2, config, begun)
    assert lines[0] == "continues from batch 51 of 100"
    assert figures.tokens == 20 * 40 * 6
    assert figures.loss == pytest.approx(whole_figures.loss, rel=0.05)
    ids, learn = collate(given[:1], 0, torch.device("cpu"))
    losses = [imitation_loss(model, ids, learn).item() for model in (continued, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


@pytest.mark.slow
def test_an_error_of_a_process_is_raised():
    with pytest.raises(Exception, match="IndexError"):
        learned([Row([len(TOKENIZER)] * 3, [0, 1, 1], True)], 2)


@pytest.mark.slow
def test_an_error_here_ends_the_processes():
    def stop(line):
        raise KeyboardInterrupt

    config = replace(SMALL, batch_tokens=20_000, passes=40)  # minutes
    task = Task(build_model(config, TOKENIZER), TOKENIZER, rows(4000), config)
    with pytest.raises(KeyboardInterrupt):
        imitate(task, 2, stop)
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="uses prctl(2)")
def test_the_processes_end_with_their_parent():
    """Also where it ignores SIGINT, as a command in the background of a script does."""
    code = f"""
from functools import partial
from {__name__} import *
config = replace(SMALL, batch_tokens=20_000, passes=40)  # minutes
task = Task(build_model(config, TOKENIZER), TOKENIZER, rows(4000), config)
imitate(task, 2, partial(print, flush=True))
"""
    ignoring = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=ignoring
    ) as parent:
        assert parent.stdout is not None
        assert any(line.startswith("batch 0 ") for line in parent.stdout)
        workers = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
