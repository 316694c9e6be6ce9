"""Packed weights: the same logits, from copies that last as long as their block."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from trainer.config import GRPOConfig
from trainer.rollout.loop import sampling
from trainer.runtime.optional_packages import lora_config
from trainer.runtime.packed_weights import LEAST_WEIGHTS, packed_weights
from trainer.runtime.precision import compute_logits_in_float32

WIDTH = 512
BFLOAT16 = GRPOConfig(dtype="bfloat16", device="cpu", lora_rank=4)
Tensor = torch.Tensor


@pytest.fixture
def model() -> Any:
    """Return a random model whose MLP and LM head are large enough to be packed."""
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=600,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    assert WIDTH * WIDTH >= LEAST_WEIGHTS
    return Qwen2ForCausalLM(config).eval()


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(torch.arange(60).reshape(3, 20)).logits


def lower() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("number_format", [nullcontext, lower], ids=["float32", "bfloat16"])
def test_the_logits_are_the_same(model: Any, number_format: Any) -> None:
    compute_logits_in_float32(model, BFLOAT16 if number_format is lower else GRPOConfig())
    with number_format():
        expected = logits(model)
        with packed_weights(model):
            found = logits(model)
    assert found.dtype is torch.float32
    torch.testing.assert_close(
        found, expected, rtol=0, atol=2e-3 if number_format is lower else 1e-5
    )


def test_adapters_stay_in_effect(model: Any) -> None:
    from peft import get_peft_model

    plain = logits(model)
    adapted = get_peft_model(model, lora_config(BFLOAT16)).eval()
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    expected = logits(adapted)
    with packed_weights(adapted):
        found = logits(adapted)
    assert (expected - plain).abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_sampling_uses_copies_and_leaves_the_layers_as_they_were(model: Any) -> None:
    compute_logits_in_float32(model, BFLOAT16)
    layer, head = model.model.layers[0].mlp.up_proj, model.lm_head
    small = model.model.layers[0].self_attn.k_proj
    own, expected = head.forward, logits(model)
    with sampling(model, GRPOConfig(dtype="float32", device="cpu"), "sampling"):
        with torch.no_grad():
            layer.weight.zero_()
        torch.testing.assert_close(logits(model), expected, rtol=0, atol=1e-5)
        assert "forward" not in vars(small)
    assert (logits(model) - expected).abs().max() > 0.01
    assert "forward" not in vars(layer)
    assert head.forward is own


def test_an_error_leaves_the_layers_as_they_were(model: Any) -> None:
    def fail() -> None:
        with packed_weights(model):
            assert "forward" in vars(model.model.layers[1].mlp.down_proj)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not any("forward" in vars(one) for one in model.modules())


def test_without_one_dnn_nothing_changes(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with packed_weights(model):
        assert not any("forward" in vars(one) for one in model.modules())
