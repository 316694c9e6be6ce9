"""Packed weights: the same logits, from copies that last as long as their block."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from trainer.config.settings import GRPOConfig
from trainer.rollout.loop import sampling
from trainer.runtime.lora import lora_config
from trainer.runtime.packed_weights import LEAST_WEIGHTS, packed_weights
from trainer.runtime.precision import compute_logits_in_float32, shrink_frozen_weights

WIDTH = 768
BFLOAT16 = GRPOConfig(dtype="bfloat16", device="cpu", lora_rank=4)
Tensor = torch.Tensor


@pytest.fixture
def model() -> Any:
    """Return a random model whose MLP and LM head are large enough to be packed."""
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=700,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    assert WIDTH * WIDTH >= LEAST_WEIGHTS
    model = Qwen2ForCausalLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.q_proj.bias)
    return model


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(torch.arange(60).reshape(3, 20)).logits


def bfloat16() -> AbstractContextManager[Any]:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN does not compute in bfloat16 on this CPU")
    return torch.autocast("cpu", dtype=torch.bfloat16)


def is_packed(layer: Any) -> bool:
    return "forward" in vars(layer)


def test_the_logits_are_the_same(model):
    with packed_weights(model):  # float32 is left as it is
        assert not any(map(is_packed, model.modules()))
    compute_logits_in_float32(model, BFLOAT16)
    with bfloat16():
        expected = logits(model)
        with packed_weights(model):
            assert is_packed(model.model.layers[0].self_attn.q_proj)
            found = logits(model)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_adapters_stay_in_effect(model):
    from peft import get_peft_model

    plain = logits(model)
    compute_logits_in_float32(model, BFLOAT16)
    shrink_frozen_weights(model, BFLOAT16)
    adapted = get_peft_model(model, lora_config(BFLOAT16)).eval()
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    with bfloat16():
        expected = logits(adapted)
        with packed_weights(adapted):
            found = logits(adapted)
    assert (expected - plain).abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)


def test_sampling_uses_copies_and_leaves_the_layers_as_they_were(model):
    compute_logits_in_float32(model, BFLOAT16)
    layer, head = model.model.layers[0].mlp.up_proj, model.lm_head
    small = model.model.layers[0].self_attn.k_proj
    own = head.forward
    with bfloat16():
        expected = logits(model)
    with sampling(model, BFLOAT16, "sampling"):
        with torch.no_grad():
            layer.weight.zero_()
        torch.testing.assert_close(logits(model), expected, rtol=0, atol=2e-3)
        assert not is_packed(small)
    assert (logits(model) - expected).abs().max() > 0.01
    assert not is_packed(layer)
    assert head.forward is own
