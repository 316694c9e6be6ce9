"""LoRA adapters in PEFT's format: found with their base, merged into it at loading, and saved.

adapter_config.json, adapter_model.safetensors   PEFT's own files
sqlenv.json    the settings that a trained model keeps; PEFT ignores the file
"""

import copy
import json
import warnings
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from trainer.config.presets import PRESETS, SAVED_AS
from trainer.config.settings import GRPOConfig
from trainer.errors import ModelLoadError
from trainer.runtime.model_path import model_path

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SETTINGS = f"{SAVED_AS}.json"
# what this trainer's adapters have none of: training does not go on with such an adapter
UNLIKE = (
    *("use_dora", "use_rslora", "lora_dropout", "lora_bias", "modules_to_save"),
    *("rank_pattern", "alpha_pattern", "layers_to_transform"),
)
WHOLE_MODEL = ("model*.safetensors", "pytorch_model*.bin")


def is_adapter(folder: Path) -> bool:
    whole = any(file for pattern in WHOLE_MODEL for file in folder.glob(pattern))
    return (folder / CONFIG).is_file() and not whole


def base_of(adapter: Path, base: str = "") -> str:
    named = base
    with suppress(OSError, ValueError, KeyError, TypeError):
        config = json.loads((adapter / CONFIG).read_bytes())
        named = named or config["base_model_name_or_path"] or ""
    if not named:
        raise ModelLoadError(
            f"{adapter / CONFIG} is damaged or names no base_model_name_or_path: copy the adapter "
            f"again, or name its base: --adapter {adapter} --model BASE"
        )
    return named


def saved_settings(adapter: Path) -> dict[str, Any]:
    try:
        return {SAVED_AS: json.loads((adapter / SETTINGS).read_bytes())}
    except (OSError, ValueError):
        return {}


def merged(model: Any, adapter: Path) -> Any:
    """Return `model`, in float32, with an adapter merged into its weights, or raise
    `ModelLoadError` if that has other layers or shapes."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    problem = ""
    try:
        with warnings.catch_warnings():  # peft asks transformers by an old name
            warnings.simplefilter("ignore", FutureWarning)
            adapted = PeftModel.from_pretrained(model, str(adapter), torch_device="cpu")
        with safe_open(adapter / WEIGHTS, framework="pt") as file:
            saved = {name for name in file.keys() if "lora_" in name}  # noqa: SIM118
        names = get_peft_model_state_dict(adapted, save_embedding_layers=False)
        own = {name for name in names if "lora_" in name}
        if not saved:
            problem = "it has no LoRA layers"
        elif others := sorted(saved.symmetric_difference(own)):
            problem = f"{others[0]} is in only one of them"
    except (RuntimeError, ValueError) as error:  # another shape; no such layers
        lines = str(error).strip().split("\n")
        problem = lines[min(1, len(lines) - 1)].strip()
    if problem:
        raise ModelLoadError(
            f"the adapter in {adapter} does not fit its base {model.name_or_path!r} ({problem}): "
            f"name the base that it was trained on: --adapter {adapter} --model BASE"
        )
    base, whole = model.name_or_path, adapted.merge_and_unload()
    whole.base_path = base  # where `adapted` finds what peft looks up when it saves
    # of an adapter that is trained on this model, this is the base
    whole.name_or_path = whole.config._name_or_path = str(adapter)
    return whole


def adapted(model: Any, config: GRPOConfig) -> Any:
    """Return a PEFT model that trains a new adapter of `model`, which is `config.model_name`. If
    that is an adapter of the same rank, it goes on: `merged` is undone, in place."""
    from peft import PeftModel, get_peft_model
    from peft.tuners.lora import LoraLayer

    new = lora_config(config)
    if not continues(config):
        return get_peft_model(model, new)
    found = PeftModel.from_pretrained(model, str(model_path(config.model_name)), is_trainable=True)
    for layer in found.modules():
        if isinstance(layer, LoraLayer):
            layer.get_base_layer().weight.data -= layer.get_delta_weight("default")
    found.peft_config["default"].base_model_name_or_path = model.base_path
    return found


def continues(config: GRPOConfig) -> bool:
    """Return whether training goes on with the adapter that `config.model_name` is: one like this
    trainer's own, unless a vLLM server samples, which serves the merged model."""
    folder = model_path(config.model_name)
    if not (config.lora_rank and is_adapter(folder)) or config.generation_url:
        return False
    own = json.loads((folder / CONFIG).read_bytes())
    if any(own.get(name) for name in UNLIKE):
        return False
    every = own.get("target_modules") == "all-linear" or len(own.get("target_modules", ())) >= 7
    return bool(every and (own["r"], own["lora_alpha"]) == (config.lora_rank, alpha(config)))


def save_adapter(model: Any, folder: Path, config: GRPOConfig) -> None:
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    half = {name: one.detach().to("cpu", torch.bfloat16) for name, one in weights.items()}
    begun = config.model_name
    base = base_of(model_path(begun), config.base_model) if continues(config) else begun
    kept = copy.copy(model.active_peft_config)
    kept.base_model_name_or_path, kept.inference_mode = hub_name(base), True
    folder.mkdir(parents=True, exist_ok=True)
    save_file(half, folder / WEIGHTS, metadata={"format": "pt"})
    kept.save_pretrained(str(folder))
    save_settings(model, folder)


def save_settings(model: Any, folder: Path) -> None:
    settings = getattr(model.config, SAVED_AS, {})
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def hub_name(model: str) -> str:
    """Return the hub name of a folder that is named like a preset or its model, else `model`."""
    folder = PurePath(model).name.lower()
    for preset, settings in PRESETS.items():
        name = str(settings["model_name"])
        if folder in (preset, PurePath(name).name.lower()):
            return name
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def alpha(config: GRPOConfig) -> int:
    return 2 * config.lora_rank


def lora_config(config: GRPOConfig) -> Any:
    if not config.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=alpha(config),
        lora_dropout=0.0,  # a rollout's log-probabilities must be those of the update
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
