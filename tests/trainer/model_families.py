"""Tiny random Llama, Qwen2 and Qwen3 with tokenizers of the rules of SmolLM2, Qwen2.5 and Qwen3,
the real tokenizers where MODELS_HOME has them, and the config.json of the presets' models."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import (
    AutoTokenizer,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from tests.trainer.conftest import make_tokenizer, random_model
from trainer.config.presets import OFFLINE_MODEL

FAMILIES = {"smollm2": LlamaForCausalLM, "qwen2.5": Qwen2ForCausalLM, "qwen3": Qwen3ForCausalLM}
REAL = {"smollm2": "smollm2-135m", "qwen2.5": "qwen2.5-coder-0.5b", "qwen3": "qwen3-tokenizer"}
_TRL = Path(trl.__file__).parent / "chat_templates"
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
# of Qwen2 and later: runs of newlines are one token, and so is punctuation with newlines after it
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NEWLINES = ["orders\n\ntotal\n\n", "\n\nANSWER: 42\n\n", "k>\n\n</think>\n\n", "42\n \n  x;\n"]


def template_of(family: str) -> str:
    if family == "smollm2":
        return SMOLLM2
    name = family.replace(".", "_") + ".jinja"
    return (_TRL / name).read_text(encoding="utf-8")


def training_template_of(family: str) -> str:
    """Return TRL's variant, which renders old turns as they were sampled, or the family's own."""
    name = "qwen3_training.jinja"
    return (_TRL / name).read_text(encoding="utf-8") if family == "qwen3" else template_of(family)


@cache
def tiny_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with the family's normalizer, pre-tokenizer and control tokens."""
    return make_tokenizer(
        template_of(family),
        split=None if family == "smollm2" else _QWEN,
        texts=_NEWLINES * 40,
        vocab_size=420,
        thinking=family == "qwen3",
    )


def tiny_model(family: str) -> Any:
    return random_model(FAMILIES[family], tiny_tokenizer(family), window=2048)


@cache
def real_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Return the published tokenizer; skip the test where MODELS_HOME lacks it."""
    folder = Path(os.environ.get("MODELS_HOME", "")) / REAL[family]
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"MODELS_HOME has no {REAL[family]}")
    return AutoTokenizer.from_pretrained(folder)


_SHARED = {"tie_word_embeddings": True, "max_position_embeddings": 32768}
_QWEN3 = {
    **_SHARED,
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "offline": json.loads(
        (Path(__file__).parents[2] / OFFLINE_MODEL / "config.json").read_text(encoding="utf-8")
    ),
    "smollm2-135m": {
        **_SHARED,
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
    },
    "qwen2.5-coder-0.5b": {
        **_SHARED,
        "model_type": "qwen2",
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
    },
    "qwen3-0.6b": {**_QWEN3, "hidden_size": 1024, "intermediate_size": 3072},
    "qwen3-1.7b": {**_QWEN3, "hidden_size": 2048, "intermediate_size": 6144},
    "qwen3-8b": {
        **_QWEN3,
        "tie_word_embeddings": False,
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 12288,
    },
}
