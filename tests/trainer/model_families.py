"""Tiny random Llama, Qwen2 and Qwen3 with tokenizers of the rules of SmolLM2, Qwen2.5 and Qwen3,
and the real tokenizers where MODELS_HOME has them."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.trainer.conftest import CORPUS

FAMILIES = ("smollm2", "qwen2.5", "qwen3")
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
    """Return the chat template that the family's models are published with."""
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
    bpe = Tokenizer(models.BPE())
    if family == "smollm2":
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        bpe.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_QWEN), "isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        bpe.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([*_NEWLINES * 40, *CORPUS * 20], trainer)
    if family == "qwen3":
        bpe.add_tokens(["<think>", "</think>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template_of(family),
    )


def tiny_model(family: str) -> Any:
    """Return a random model of the family's architecture, wide enough to be far from uniform."""
    tokenizer = tiny_tokenizer(family)
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.1,
    }
    if family == "smollm2":
        model = LlamaForCausalLM(LlamaConfig(**shape))
    elif family == "qwen2.5":
        model = Qwen2ForCausalLM(Qwen2Config(**shape))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=16))
    # further ids that end a turn, so that turns of a random model have uneven lengths
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(100, 140)]
    return model.eval()


@cache
def real_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Return the published tokenizer; skip the test where MODELS_HOME lacks it."""
    folder = Path(os.environ.get("MODELS_HOME", "")) / REAL[family]
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"MODELS_HOME has no {REAL[family]}")
    return AutoTokenizer.from_pretrained(folder)
