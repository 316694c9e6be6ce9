"""Out of memory: recognized from any library, and reported with settings that need less."""

import errno
import gc
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.config.settings import GRPOConfig
from trainer.errors import OOMError

# Errors other than torch.OutOfMemoryError: torch's CPU allocator, failed mappings, CUDA libraries.
_SIGNS = re.compile(
    r"can't allocate memory|not enough memory: you tried to allocate"
    r"|CUDA error: out of memory|CUDA out of memory"
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|std::bad_alloc|[Cc]annot allocate memory"
)


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch's own class by its name, without importing it
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None)
    )


@contextmanager
def reporting_out_of_memory(config: GRPOConfig, doing: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(config, doing, error) from error


def out_of_memory(config: GRPOConfig, doing: str, error: BaseException) -> OOMError:
    """Return the `OOMError` for `error`, and free the tensors that its frames hold."""
    reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    options = "; or ".join(remedies(config))
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return OOMError(f"out of memory while {doing}: {reason}. To reduce memory: {options}")


def remedies(config: GRPOConfig) -> list[str]:
    """Return options that reduce memory, computed from the current settings, mildest first."""
    options = []
    batch, accumulated = config.per_device_train_batch_size, config.gradient_accumulation_steps
    if batch % 2 == 0:
        options.append(
            f"--set per_device_train_batch_size={batch // 2} "
            f"--set gradient_accumulation_steps={accumulated * 2} "
            "(smaller micro-batches, as many rollouts per step)"
        )
    if not config.gradient_checkpointing:
        options.append("--set gradient_checkpointing=true (slower updates that store less)")
    if not config.lora_rank:
        options.append(
            "--set lora_rank=16 (LoRA: gradients and Adam's state of adapters only; needs the "
            "package peft)"
        )
    tokens = max(config.max_context_tokens // 2, config.max_new_tokens + 1)
    return [*options, f"--set max_context_tokens={tokens} or a smaller model"]
