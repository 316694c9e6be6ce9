"""The device to train on, the number format to compute in, and the packages that settings need."""

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from trainer.config.presets import NEEDS
from trainer.config.settings import ConfigError, GRPOConfig

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def precision(device: str, dtype: str) -> tuple[str, torch.dtype]:
    """Return the device and the number format of computations, or raise `ConfigError`. Weights that
    are trained are always float32, as a 16-bit weight rounds most updates away."""
    cuda = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if cuda else "cpu"
    count = torch.cuda.device_count() if cuda else 0
    if device.startswith("cuda") and int(device.partition(":")[2] or 0) >= count:
        remedy = "the first is cuda:0" if count else "use device=cpu"
        raise ConfigError(f"device is {device}, but torch finds {count} CUDA devices: {remedy}")
    if dtype != "auto":
        compute = _DTYPES[dtype]
    elif device == "cpu":
        # old versions of torch cannot tell
        able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        native = able.get("avx512_bf16") or able.get("bf16")  # on x86, on ARM
        compute = torch.bfloat16 if native else torch.float32
    else:
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        compute = torch.bfloat16 if native else torch.float16
    if device == "cpu" and compute is torch.float16:
        raise ConfigError("dtype is float16, but a CPU can't train in it: use float32")
    return device, compute


def check_gpu(preset: str, config: GRPOConfig) -> None:
    """Raise `ConfigError` if training with a preset for GPUs would silently use the CPU."""
    needs = NEEDS.get(preset)  # None: that of a run of an older version
    if needs and needs.gpu and config.device == "auto" and not torch.cuda.is_available():
        raise ConfigError(
            f"preset {preset} trains on a GPU with {needs.memory_gb} GB or more, but torch finds "
            "no CUDA device: run it where there is one ('python -m trainer doctor' shows what "
            "torch finds), use --preset offline, smollm2-135m or qwen2.5-coder-0.5b, or add "
            "--set device=cpu to train on the CPU, where a step takes many minutes"
        )


def check_extras(config: GRPOConfig) -> None:
    """Raise `ConfigError` for an unknown tracker, or a package that is needed and not installed."""
    if config.lora_rank and importlib.util.find_spec("peft") is None:
        raise ConfigError(
            f"lora_rank is {config.lora_rank}, which needs the package peft: "
            "pip install peft, or set lora_rank=0"
        )
    if config.report_to in ([], ["none"], ["all"]):
        return
    from transformers.integrations.integration_utils import get_reporting_integration_callbacks

    for name in config.report_to:
        try:
            for tracker in get_reporting_integration_callbacks([name]):
                tracker()  # each looks for its package
        except (ValueError, RuntimeError, ImportError, AssertionError) as error:
            raise ConfigError(f"report_to names {name}: {error}") from error


def autocast(config: GRPOConfig) -> AbstractContextManager[Any]:
    device, dtype = precision(config.device, config.dtype)
    if dtype is torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=dtype)


def compute_logits_in_float32(model: Any, config: GRPOConfig) -> None:
    """Compute the logits of `model` in float32, also under autocast: with SmolLM2, it halves the
    difference of recorded and recomputed log-probabilities, 0.033 nats."""
    if precision(config.device, config.dtype)[1] is torch.float32:
        return
    head = model.get_output_embeddings()

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            bias = None if head.bias is None else head.bias.float()
            return nn.functional.linear(hidden.float(), head.weight.float(), bias)

    head.forward = forward


def shrink_frozen_weights(model: Any, config: GRPOConfig) -> None:
    """Store the linear layers of a model that LoRA freezes in the format that autocast uses: they
    take half the memory and no cast at every use."""
    compute = precision(config.device, config.dtype)[1]
    if not config.lora_rank or compute is torch.float32:
        return
    inner = getattr(model, "get_base_model", lambda: model)()
    wrapped = inner is not model
    for layer in inner.base_model.modules():
        if isinstance(layer, nn.Linear) and not (wrapped and layer.weight.requires_grad):
            for name, one in list(layer.named_parameters(recurse=False)):
                setattr(layer, name, nn.Parameter(one.detach().to(compute)))
