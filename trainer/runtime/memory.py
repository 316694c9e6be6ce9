"""This machine's memory, what a token takes, and whether a GPU's kernels can be compiled."""

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import psutil
import torch

GIB = 2**30
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def machine_memory() -> int:
    """Return the bytes of this machine's memory, or of the container's limit if that is less."""
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(CGROUP_MEMORY_MAX.read_text()))
    except (OSError, ValueError):
        return total  # no limit


def cache_token_bytes(shape: Any, compute: torch.dtype) -> int:
    """Return the bytes of one token in the KV cache: a key and a value per layer and head.

    `shape` is the transformers configuration of the text model.
    """
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    return int(2 * shape.num_hidden_layers * heads * head_dim * compute.itemsize)


def can_compile_kernels() -> bool:
    """Return whether Triton finds a C compiler and Python's headers when kernels are first used."""
    compiler = "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").is_file()
