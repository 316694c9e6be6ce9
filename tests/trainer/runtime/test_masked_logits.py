"""Scores of some tokens: those of the whole model, with its gradients and with less work."""

from typing import Any

import pytest
import torch
from trl.kernels import chunked_logprob

from tests.trainer.model_families import FAMILIES, tiny_model
from trainer.runtime.masked_logits import avoid_uncompiled_kernels, prepare, score_tokens
from trainer.runtime.memory import can_compile_kernels

VOCABULARY = 97
Tensor = torch.Tensor


def tiny(family: str) -> Any:
    """Return a random model. Qwen3's LM head has weights of its own, as that of Qwen3-8B."""
    model = tiny_model(family).train()
    if family == "qwen3":
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().roll(1, 0))
    return model


def batch(left: int = 3, right: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, attention mask and scored ids of three rows that begin with the same eight ids.

    The first row has no padding, the second `left` more ids of it before, the third `right` after.
    """
    torch.manual_seed(4)
    ids = torch.randint(VOCABULARY, (3, 21))
    attention, scored = torch.ones_like(ids), torch.zeros_like(ids)
    for row, first in enumerate((0, left, 0)):
        ids[row, first : first + 8] = torch.arange(8)
        attention[row, :first] = 0
        scored[row, first + 9 : first + 12] = 1
        scored[row, first + 15 : 21] = 1
    attention[2, 21 - right :] = 0
    return ids, attention, scored * attention


def plain_scores(
    model: Any, ids: Tensor, attention: Tensor, scored: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the same from every row alone, by the model's own logits."""
    logps, entropies = [], []
    for row, mask, wanted in zip(ids, attention.bool(), scored.bool(), strict=True):
        row, wanted = row[mask], wanted[mask]
        logits = model(input_ids=row[None]).logits[0, :-1].float() / temperature
        logp = logits.log_softmax(-1)[wanted[1:]]
        logps.append(logp.gather(1, row[wanted][:, None])[:, 0])
        entropies.append(-(logp.exp() * logp).sum(-1))
    return torch.cat(logps), torch.cat(entropies)


def gradients(model: Any, logps: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (logps * torch.linspace(-1, 2, len(logps))).sum().backward()
    return {name: one.grad.clone() for name, one in model.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_scores_and_gradients_are_those_of_the_model(family, checkpointing):
    model = tiny(family)
    prepare(model, temperature=0.7)
    expected, entropies = plain_scores(model, *batch(), 0.7)
    wanted = gradients(model, expected)
    if checkpointing:
        model.activation_checkpointing_enable()
    found, found_entropies = score_tokens(model, *batch())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_entropies, entropies)
    for name, one in gradients(model, found).items():
        torch.testing.assert_close(one, wanted[name], atol=1e-4, rtol=1e-3)


def test_a_shared_prompt_passes_the_layers_once_and_only_scored_ids_the_head(monkeypatch):
    model, passed, projected = tiny("qwen3"), [], []
    prepare(model)
    model.model.layers[0].register_forward_pre_hook(
        lambda _, inputs: passed.append(inputs[0].shape[:2])
    )
    import trl.trainer.utils as theirs

    apply = theirs._ChunkedLogProbFunction.apply

    def counted(hidden: Tensor, *others: Any) -> Any:
        projected.append(len(hidden))
        return apply(hidden, *others)

    monkeypatch.setattr(theirs._ChunkedLogProbFunction, "apply", counted)
    ids, attention, scored = batch()
    score_tokens(model, ids, attention, scored)
    # a row's last id predicts none
    assert passed == [(1, 8), (3, 21 - 8 - 1)]
    assert projected == [int(scored.sum())]


def test_a_batch_without_a_scored_token_has_gradients_of_zero():
    model = tiny("smollm2")
    prepare(model)
    ids, attention, scored = batch()
    found, _ = score_tokens(model, ids, attention, torch.zeros_like(scored))
    assert found.shape == (0,)
    total = torch.zeros(3).masked_scatter(torch.zeros(3).bool(), found).sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert all(not one.grad.any() for one in model.parameters() if one.grad is not None)


@pytest.mark.parametrize(("compiler", "uses"), [("", False), ("gcc", True), ("clang", True)])
def test_a_gpu_computes_without_triton_where_nothing_can_compile_its_kernels(
    compiler, uses, monkeypatch
):
    monkeypatch.setattr(chunked_logprob, "_TRITON_AVAILABLE", True)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: name if name == compiler else None)
    assert can_compile_kernels() == uses
    avoid_uncompiled_kernels()
    assert chunked_logprob._use_triton(torch.device("cuda")) == uses
