"""Finding and loading a causal language model with its tokenizer, and the preset it gets."""

import json
import logging
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

from trainer.config.presets import KEPT, OFFLINE_MODEL, SAVED_AS, Choice, choose_preset
from trainer.config.settings import GRPOConfig
from trainer.errors import ModelLoadError
from trainer.runtime import lora
from trainer.runtime.model_path import looks_local, model_path
from trainer.runtime.out_of_memory import reporting_out_of_memory

log = logging.getLogger(__name__)

HUB_WAIT_S = 3.0  # for the hub's answer
WEIGHTS = ("*.safetensors", "*.bin")
NOT_HERE = "there is no such folder here or in MODELS_HOME"


def find_model(name: str, base: str = "") -> str:
    """Return the directory or the hub's name to load a model from, or raise `ModelLoadError`.

    A LoRA adapter's base is found too: `base`, or the one that the adapter names. Imports neither
    torch nor transformers, so that a command can refuse a wrong name at once.
    """
    # not str(Path(name)): ./model would become a name on the hub
    source = name if name.startswith(".") else str(model_path(name))
    if looks_local(source):
        check_directory(source)
        if lora.is_adapter(Path(source)):
            try:
                find_model(lora.base_of(Path(source), base))
            except ModelLoadError as error:
                raise ModelLoadError(
                    f"can't find the base of the adapter in {source}: set MODELS_HOME to a folder "
                    f"that holds it, or name it: --adapter {source} --model BASE. The reason: "
                    f"{error.message}"
                ) from error
        return source
    if "/" not in source:
        raise ModelLoadError(
            f"no model {name!r}: {NOT_HERE}, and a model on the Hugging Face hub is named "
            f"OWNER/{name}; pass a folder as --model, or a name such as Qwen/Qwen3-0.6B"
        )
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(source, "config.json"), timeout=HUB_WAIT_S)
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelLoadError(
            f"can't load the model {name!r}: the hub has none of this name, or it is private or "
            f"gated; check the name at https://huggingface.co/{name}, accept its terms there, and "
            "log in with 'hf auth login' or set HF_TOKEN"
        ) from error
    except HfHubHTTPError:
        return source  # such as a model without config.json: loading it says what is wrong
    except Exception as error:
        if isinstance(cached := try_to_load_from_cache(source, "config.json"), str):
            return str(Path(cached).parent)
        raise ModelLoadError(
            f"can't load the model {name!r}: {NOT_HERE}, it is not in the cache, and "
            f"{constants.ENDPOINT} couldn't be reached ({_first_line(error)}); on a machine with "
            f"access run 'hf download {name} --local-dir DIR', copy DIR here and pass --model DIR, "
            f"or use {OFFLINE_MODEL}"
        ) from error
    return source


def preset_of(
    model: str | None = None, preset: str | None = None, base: str = "", *, served: bool = False
) -> Choice:
    """Return what `choose_preset` says of a model; a LoRA adapter gets the preset of its base. The
    hub is not asked for the config.json of a model that is `served` elsewhere."""
    if model is None or preset:
        return choose_preset(model, preset)
    config = read_config(model, base, download=not served)
    if not lora.is_adapter(model_path(model)):
        return choose_preset(model, None, config)
    choice = choose_preset(lora.base_of(model_path(model), base), None, config)
    return replace(choice, settings={**choice.settings, "model_name": model})


def read_config(model: str, base: str = "", *, download: bool) -> dict[str, Any] | None:
    """Return the config.json of a folder, of a name in the hub's cache, or with `download` on it,
    or None. That of a LoRA adapter is its base's, with the settings that the adapter keeps."""
    if lora.is_adapter(folder := model_path(model)):
        of_base = read_config(lora.base_of(folder, base), download=download)
        return None if of_base is None else {**of_base, **lora.saved_settings(folder)}
    path = folder / "config.json"
    try:
        if not path.is_file():
            from huggingface_hub import (
                get_hf_file_metadata,
                hf_hub_download,
                hf_hub_url,
                try_to_load_from_cache,
            )

            found = try_to_load_from_cache(model, "config.json")  # at once, also without a network
            if not isinstance(found, str):
                if not download:
                    return None
                # a download tries for 20 s before it gives up
                get_hf_file_metadata(hf_hub_url(model, "config.json"), timeout=HUB_WAIT_S)
                found = hf_hub_download(model, "config.json")
            path = Path(found)
        config = json.loads(path.read_bytes())
    except Exception:  # of the hub's many; finding or loading the model says what is wrong
        return None
    return config if isinstance(config, dict) else None


def load_model_and_tokenizer(config: GRPOConfig) -> tuple[Any, Any]:
    """Load `config.model_name`, in float32 on its device, and its tokenizer, or raise
    `ModelLoadError`. The model's own config, and so every copy, gets the settings that it is played
    by."""
    from transformers.utils import logging

    from trainer.runtime.precision import compute_logits_in_float32, precision

    logging.disable_progress_bar()  # of loading and saving, between a command's own lines
    device, _ = precision(config.device, config.dtype)
    name = config.model_name
    source = find_model(name, config.base_model)
    with _loading("model", name), reporting_out_of_memory(config, f"loading the model {name}"):
        model, tokenizer = _load(source, config.base_model, config.trust_remote_code)
        model.to(device)
        compute_logits_in_float32(model, config)
    _warn_of_another_prompt(read_config(source, config.base_model, download=False), config)
    setattr(model.config, SAVED_AS, kept_settings(config))
    if not config.generation_url:
        context_window(model)  # else what it can't sample would be refused late
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise ModelLoadError(
            f"the tokenizer of {name!r} has {len(tokenizer):,} tokens, but the model only "
            f"{embeddings:,}: they don't belong together"
        )
    return model, tokenizer


def _warn_of_another_prompt(saved: Mapping[str, Any] | None, config: GRPOConfig) -> None:
    trained = (saved or {}).get(SAVED_AS, {}).get("system_prompt", config.system_prompt)
    if trained != config.system_prompt:
        log.warning(
            "%s was trained with the system prompt %s and now reads %s: it may fail; set "
            "system_prompt to what it was trained with",
            *(config.model_name, short(trained), short(config.system_prompt)),
        )


def load_tokenizer(name: str, trust_remote_code: bool = False) -> Any:
    folder = model_path(name)
    source = str(folder) if (folder / "tokenizer.json").is_file() else find_model(name)
    with _loading("tokenizer of", name):
        return _tokenizer(source, trust_remote_code)


@contextmanager
def _loading(what: str, name: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (pickle.UnpicklingError, EOFError) as error:
        raise ModelLoadError(
            f"the {what} {name!r} has a pickle (.bin) that is damaged, or that can't be read "
            "without running code in it: get it as safetensors"
        ) from error
    # RuntimeError: weights that transformers can't convert
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        if "trust_remote_code" in str(error):
            raise ModelLoadError(
                f"the {what} {name!r} has Python code of its own, which was not run: use a model "
                "that transformers itself has, or read the code, and then pass "
                "--set trust_remote_code=true"
            ) from error
        raise ModelLoadError(
            f"can't load the {what} {name!r}: {_first_line(error)}; its files are damaged, or it "
            "is not a causal language model that this version of transformers loads"
        ) from error


def _load(source: str, base: str = "", trust_remote_code: bool = False) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    folder = Path(source)
    if lora.is_adapter(folder):
        found = find_model(lora.base_of(folder, base))
        model, tokenizer = _load(found, trust_remote_code=trust_remote_code)
        if (folder / "tokenizer.json").is_file():
            tokenizer = _tokenizer(source, trust_remote_code)
        return lora.merged(model, folder), tokenizer
    tokenizer = _tokenizer(source, trust_remote_code)
    model, loaded = AutoModelForCausalLM.from_pretrained(
        source,
        trust_remote_code=trust_remote_code,  # without it, transformers would ask
        dtype=torch.float32,
        attn_implementation="sdpa",
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # refused below
    )
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ModelLoadError(
            f"{source!r} is a LoRA adapter: download it with 'hf download {source} --local-dir "
            "DIR', and pass --adapter DIR"
        )
    if names := sorted([*loaded["missing_keys"], *(one[0] for one in loaded["mismatched_keys"])]):
        raise ModelLoadError(
            f"the weights of {source!r} don't fit its config.json, missing or of another shape: "
            f"{', '.join(names[:3])}; copy or download the whole model again, its config.json and "
            "its weights from the same place"
        )
    return model, tokenizer


def context_window(model: Any) -> int:
    """Return the number of tokens that a model can read with full attention, or raise
    `ModelLoadError` if some layers never have it: the local generator's masks are full."""
    config = model.config.get_text_config()
    layers = getattr(config, "layer_types", None)
    others = set(layers or []) - {"full_attention"}
    if others:
        raise ModelLoadError(
            f"{config.model_type} has {', '.join(sorted(others))} layers, which the local "
            "generator does not support: use a model with full attention, such as Qwen3"
        )
    sliding = None if layers else getattr(config, "sliding_window", None)  # of all layers
    window: int = config.max_position_embeddings
    return min(window, sliding or window)


def kept_settings(config: GRPOConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in KEPT}


def _tokenizer(source: str, trust_remote_code: bool = False) -> Any:
    """Load a tokenizer, with a pad token; `ModelLoadError` where it can't encode a chat."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    chat = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "How many?"}]
    problem = ""
    if tokenizer.eos_token_id is None:
        raise ModelLoadError(
            f"{source!r} can't be played: its tokenizer has no end token, which ends a turn; name "
            "it as eos_token in tokenizer_config.json"
        )
    if not tokenizer.chat_template:
        problem = "it has no chat template"
    else:
        try:
            text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            problem = "" if "Answer." in text else "its chat template leaves out the system message"
        except Exception as error:  # templates may raise anything
            problem = f"its chat template can't write a system message ({_first_line(error)})"
    if problem:
        raise ModelLoadError(
            f"{source!r} can't be played: {problem}; use a chat (instruct) model that takes a "
            "system message, or put a template that does in its folder as chat_template.jinja"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_directory(name: str) -> None:
    path = Path(name)
    weights = [file.name for pattern in WEIGHTS for file in path.glob(pattern)]
    needed = {"config.json", "tokenizer.json"}
    if lora.is_adapter(path):
        needed = {lora.CONFIG, lora.WEIGHTS}
    elif not weights:
        needed.add("model.safetensors")
    problem = ""
    if not path.is_dir():
        problem = "there is no such directory; use one written by save_pretrained"
        if "data/models" in name:
            problem += ", or create it with 'python -m trainer pretrain'"
    elif lacking := [one for one in sorted(needed) if not (path / one).is_file()]:
        problem = (
            f"it has no {' and no '.join(lacking)}; copy or download the whole directory again, or "
            "write it with save_pretrained of the model and of its tokenizer"
        )
        if (path / "model").is_dir():
            problem = f"it is a run's folder; use {path / 'model'}"
    if problem:
        raise ModelLoadError(f"no model directory at {name}: {problem}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0].rstrip(".")
