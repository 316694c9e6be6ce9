"""Out of memory: recognised, whoever says so, and told with the numbers in force and what would
take less."""

import errno
import gc
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.config import GRPOConfig
from trainer.errors import OutOfMemory

# What torch says beside torch.OutOfMemoryError: its CPU allocator, failed mappings, CUDA's own
# libraries.
_SIGNS = re.compile(
    r"can't allocate memory|not enough memory: you tried to allocate|CUDA error: out of memory|CUDA out of memory"
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|std::bad_alloc|[Cc]annot allocate memory"
)
_SOURCE = re.compile(r"^\[enforce fail at .*?(?=DefaultCPUAllocator)")  # where in torch it happened


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, numpy, torch, CUDA or the operating system ran out of memory."""
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return True
    named = type(error).__name__ == "OutOfMemoryError"  # torch's, without importing it
    return named or (isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None)


@contextmanager
def memory_told(config: GRPOConfig, doing: str) -> Iterator[None]:
    """What is out of memory inside becomes `OutOfMemory`, which names `doing`. What it held is
    freed first."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(config, doing, error) from error


def out_of_memory(config: GRPOConfig, doing: str, error: BaseException) -> OutOfMemory:
    """What to raise for `error`, whose frames let go of what they held."""
    told = OutOfMemory(message(config, doing, error), doing=doing)
    release(error)
    return told


def release(error: BaseException) -> None:
    """Let go of the tensors that an error's frames hold, so that a checkpoint can be written."""
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def message(config: GRPOConfig, doing: str, error: BaseException) -> str:
    """One paragraph: what happened, the numbers in force, and settings that take less, the mildest
    first."""
    said = _SOURCE.sub("", str(error).strip()).split("\n")[0].rstrip(".") or type(error).__name__
    batch, accumulated = config.per_device_train_batch_size, config.gradient_accumulation_steps
    numbers = {
        "num_generations": config.num_generations,
        "max_context_tokens": config.max_context_tokens,
        "max_new_tokens": config.max_new_tokens,
        "gradient_checkpointing": str(config.gradient_checkpointing).lower(),
        "lora_rank": config.lora_rank,
    }
    return (
        f"out of memory while {doing}: {said}. In force: per_device_train_batch_size={batch} x "
        f"gradient_accumulation_steps={accumulated} = {config.rollouts_per_step} rollouts a step, "
        f"{', '.join(f'{name}={value}' for name, value in numbers.items())}. "
        f"Take less by {'; or '.join(remedies(config))}"
    )


def remedies(config: GRPOConfig) -> list[str]:
    """What to type for less memory, with the numbers that follow from those in force, the mildest
    first."""
    found = []
    batch, accumulated = config.per_device_train_batch_size, config.gradient_accumulation_steps
    if batch % 2 == 0:
        found.append(
            f"--set per_device_train_batch_size={batch // 2} --set gradient_accumulation_steps={accumulated * 2} "
            "(smaller micro-batches, as many rollouts a step)"
        )
    if not config.gradient_checkpointing:
        found.append("--set gradient_checkpointing=true (updates store less and compute more)")
    if not config.lora_rank:
        found.append(
            "--set lora_rank=16 (LoRA: gradients and Adam's state of adapters alone; needs the package peft)"
        )
    generations = config.num_generations // 2
    if (
        generations >= 2
        and accumulated % 2 == 0
        and config.rollouts_per_step // 2 % generations == 0
    ):
        found.append(
            f"--set num_generations={generations} --set gradient_accumulation_steps={accumulated // 2} "
            "(half as many rollouts a step, of as many questions)"
        )
    found.append(
        f"--set max_context_tokens={max(config.max_context_tokens // 2, config.max_new_tokens + 1)} or a smaller model"
    )
    return found
