"""The choice of device and of the number format to compute in."""

from dataclasses import dataclass

import torch

from trainer.errors import ConfigError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """Weights are always float32: at RL's learning rates a 16-bit weight rounds most updates away."""

    compute: torch.dtype

    @property
    def trl_bf16(self) -> bool:
        return self.compute is torch.bfloat16

    @property
    def trl_fp16(self) -> bool:
        return self.compute is torch.float16


def precision(device: str, dtype: str) -> tuple[str, Precision]:
    """The device in force and the number format to compute in.

    `auto` takes CUDA where there is one; there it computes in bfloat16 where the GPU does so
    natively, in float16 where it emulates it (a T4), and on a CPU in float32.
    """
    cuda = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if cuda else "cpu"
    if device.startswith("cuda") and not cuda:
        raise ConfigError(
            f"device is {device}, but torch sees no CUDA device: use device=cpu", field="device"
        )
    if (
        device.startswith("cuda:")
        and int(device.removeprefix("cuda:")) >= torch.cuda.device_count()
    ):
        raise ConfigError(
            f"device is {device}, but torch sees {torch.cuda.device_count()} CUDA devices: count from cuda:0",
            field="device",
        )
    if dtype != "auto":
        compute = _DTYPES[dtype]
    elif device == "cpu":
        compute = torch.float32
    else:
        compute = (
            torch.bfloat16
            if torch.cuda.is_bf16_supported(including_emulation=False)
            else torch.float16
        )
    if device == "cpu" and compute is torch.float16:
        raise ConfigError(
            "dtype is float16, which a CPU can't train in: use float32", field="dtype"
        )
    return device, Precision(compute)
