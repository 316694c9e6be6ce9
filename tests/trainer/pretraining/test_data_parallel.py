"""Imitation shared by processes."""

from dataclasses import replace

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.trainer.pretraining.test_imitation import SMALL, rows, tokenizer
from trainer.pretraining import data_parallel
from trainer.pretraining.data_parallel import Task, imitate
from trainer.pretraining.imitation import Row, build_model, plan_passes
from trainer.runtime.memory import GIB

TOKENIZER = tokenizer()


def weights_of(model: Qwen3ForCausalLM) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


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
        model = build_model(config, TOKENIZER)
        figures = imitate(Task(model, TOKENIZER, given, config), processes)
        assert figures.tokens == sum(len(row.ids) for batch in plan for row in batch)
        found.append((weights_of(model), figures.loss))
    (one, loss), (two, other_loss) = found
    assert other_loss == pytest.approx(loss, rel=0.01)
    assert torch.dist(one, two) < 0.1 * torch.dist(one, start)


@pytest.mark.slow
def test_an_error_of_a_process_is_raised():
    bad = [Row([len(TOKENIZER)] * 3, [0, 1, 1], True)]
    with pytest.raises(Exception, match="IndexError"):
        imitate(Task(build_model(SMALL, TOKENIZER), TOKENIZER, bad, SMALL), 2)


@pytest.mark.parametrize(
    ("device", "cores", "gib", "processes"),
    [("cpu", 2, 15.5, 2), ("cpu", 16, 31.0, 4), ("cpu", 2, 3.0, 1), ("cuda", 16, 64.0, 1)],
)
def test_the_default_is_a_process_per_core_within_the_memory(
    device, cores, gib, processes, monkeypatch
):
    monkeypatch.setattr(data_parallel, "precision", lambda *_: (device, torch.float32))
    monkeypatch.setattr(data_parallel, "usable_cores", lambda: cores)
    monkeypatch.setattr(data_parallel, "machine_memory", lambda: int(gib * GIB))
    assert data_parallel.pretraining_processes() == processes
