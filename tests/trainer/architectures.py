"""The config.json of the presets' models, without their weights."""

import json
from pathlib import Path
from typing import Any

from trainer.presets import OFFLINE_MODEL

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
