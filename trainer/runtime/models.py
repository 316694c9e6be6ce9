"""Finding and loading a causal language model with its tokenizer, and the preset it gets."""

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from shared.shipped import shipped_path
from trainer.config import GRPOConfig
from trainer.errors import ModelLoadError
from trainer.presets import KEPT, OFFLINE_MODEL, SAVED_AS, Choice, choose_preset
from trainer.runtime import lora
from trainer.runtime.out_of_memory import reporting_out_of_memory

T = TypeVar("T")

HUB_WAIT_S = 3.0  # for the hub's answer; its own retries would take a minute
HUB_EXAMPLE = "Qwen/Qwen3-0.6B"
WEIGHTS = ("*.safetensors", "*.bin")
LFS_POINTER = b"version https://git-lfs"  # how a file begins that git has not fetched


def find_model(name: str, base: str = "") -> str:
    """Return the directory or the hub's name to load a model from.

    A directory must exist. It may be that of a LoRA adapter, whose base is found too: `base`, or
    the one that the adapter names. Another name, OWNER/NAME, must be on the hub; where the hub
    can't be reached, it is the directory in the hub's cache. Raises `ModelLoadError` otherwise,
    within 5 s; imports neither torch nor transformers, so that a command can refuse a wrong name at
    once.
    """
    # not str(Path(name)): ./model would become a name on the hub
    source = name if name.startswith(".") else str(shipped_path(name))
    if looks_local(source):
        check_directory(source)
        if lora.is_adapter(Path(source)):
            _find_base(Path(source), base)
        return source
    if "/" not in source:
        raise ModelLoadError(
            f"no model {name!r}: there is no such folder here, and a model on the Hugging Face hub "
            f"is named OWNER/{name}; pass a folder as --model, or a name such as {HUB_EXAMPLE}"
        )
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        url = hf_hub_url(source, "config.json")
        _soon(lambda: get_hf_file_metadata(url, timeout=HUB_WAIT_S))
        return source
    except HFValidationError as error:
        refused: Exception = error
    except Exception as error:
        missing = isinstance(error, RepositoryNotFoundError)
        if isinstance(error, HfHubHTTPError) and not missing:
            return source  # such as a model without config.json: loading it says what is wrong
        if isinstance(cached := try_to_load_from_cache(source, "config.json"), str):
            return str(Path(cached).parent)
        refused = error
    page, login = f"https://huggingface.co/{name}", "log in with 'hf auth login'"
    if isinstance(refused, GatedRepoError):
        problem = f"it is a gated repo; accept its terms at {page}, then {login} or set HF_TOKEN"
    elif isinstance(refused, RepositoryNotFoundError | HFValidationError):
        problem = (
            "it is not a valid model identifier; check its name at https://huggingface.co/models; "
            f"if {name} is private, {login}"
        )
    else:
        problem = (
            "there is no such directory, it is not in the cache, and "
            f"{constants.ENDPOINT} couldn't be reached ({_first_line(refused)}); {_download(name)}"
        )
    raise ModelLoadError(f"can't load the model {name!r}: {problem}") from refused


def _find_base(adapter: Path, base: str) -> None:
    """Raise `ModelLoadError` where an adapter's base can't be found."""
    named = lora.base_of(adapter, base)
    try:
        find_model(named)
    except ModelLoadError as error:
        raise ModelLoadError(
            f"can't find {named!r}, the base of the adapter in {adapter}: set MODELS_HOME to a "
            f"folder that holds it, or name it: --adapter {adapter} --model BASE. The reason: "
            f"{error.message}"
        ) from error


def _soon(ask: Callable[[], T]) -> T:
    """Return the hub's answer or raise its error; `TimeoutError` after `HUB_WAIT_S`."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    # in a thread, because looking up a host's name has no timeout
    threading.Thread(target=run, name="ask-hub", daemon=True).start()
    if not wait([answer], HUB_WAIT_S).done:
        raise TimeoutError(f"no answer within {HUB_WAIT_S:g} s")
    return answer.result()


def preset_of(
    model: str | None = None, preset: str | None = None, base: str = "", *, served: bool = False
) -> Choice:
    """Return what `choose_preset` says of a model's folder or name on the hub.

    A LoRA adapter gets the preset of its base: see `find_model`. The hub is not asked for the
    config.json of a model that is `served` elsewhere.
    """
    if model is None or preset:
        return choose_preset(model, preset)
    config = read_config(model, base, download=not served)
    if not lora.is_adapter(shipped_path(model)):
        return choose_preset(model, None, config)
    choice = choose_preset(lora.base_of(shipped_path(model), base), None, config)
    return replace(choice, settings={**choice.settings, "model_name": model})


def read_config(model: str, base: str = "", *, download: bool) -> dict[str, Any] | None:
    """Return the config.json of a folder, of a name in the hub's cache, or with `download` on it.

    That of a LoRA adapter is its base's, with the settings that the adapter keeps. None if there is
    none.
    """
    if lora.is_adapter(folder := shipped_path(model)):
        of_base = read_config(lora.base_of(folder, base), download=download)
        return None if of_base is None else {**of_base, **lora.saved_settings(folder)}
    path: Any = folder / "config.json"
    try:
        if not path.is_file():
            from huggingface_hub import hf_hub_download, try_to_load_from_cache

            path = try_to_load_from_cache(model, "config.json")
            if not isinstance(path, str) and download and not looks_local(model):
                path = _soon(lambda: hf_hub_download(model, "config.json"))
        config = json.loads(Path(path).read_bytes())
    except Exception:  # of the hub's many; finding or loading the model says what is wrong
        return None
    return config if isinstance(config, dict) else None


def load_model_and_tokenizer(config: GRPOConfig) -> tuple[Any, Any]:
    """Load `config.model_name`, in float32 on its device, and its tokenizer.

    A directory and a Hugging Face name are loaded the same way; the shipped models are found from
    any working directory. A LoRA adapter is merged into its base. The model's own config gets the
    settings that it is played by, so that every copy saved of it keeps them. Raises
    `ModelLoadError`, which says what is missing and what to do.
    """
    from safetensors import SafetensorError

    from trainer.runtime.precision import compute_logits_in_float32, precision

    device, _ = precision(config.device, config.dtype)
    name = config.model_name
    source = find_model(name, config.base_model)
    try:
        with reporting_out_of_memory(config, f"loading the model {name}"):
            model, tokenizer = _load(source, config.base_model)
            model.to(device)
            compute_logits_in_float32(model, config)
    # RuntimeError: weights that transformers can't convert
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        raise ModelLoadError(
            f"can't load the model {name!r}: {_first_line(error)}; {_remedy(name, found=True)}"
        ) from error
    setattr(model.config, SAVED_AS, kept_settings(config))
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise ModelLoadError(
            f"the tokenizer of {name!r} has {len(tokenizer):,} tokens, but the model only "
            f"{embeddings:,}: they don't belong together"
        )
    return model, tokenizer


def _load(source: str, base: str = "") -> tuple[Any, Any]:
    """Load a model in float32 on the CPU, and its tokenizer, from what `find_model` returned."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(source)
    if lora.is_adapter(folder):
        model, tokenizer = _load(find_model(lora.base_of(folder, base)))
        if (folder / "tokenizer.json").is_file():
            tokenizer = AutoTokenizer.from_pretrained(source)
            check_tokenizer(tokenizer, source)
        return lora.merged(model, folder), tokenizer
    tokenizer = AutoTokenizer.from_pretrained(source)
    check_tokenizer(tokenizer, source)
    model, loaded = AutoModelForCausalLM.from_pretrained(
        source,
        dtype=torch.float32,
        attn_implementation="sdpa",
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # refused below
    )
    _check_weights(loaded, source)
    return model, tokenizer


def _check_weights(loaded: Mapping[str, Any], name: str) -> None:
    """Raise `ModelLoadError` for weights that are not the files' own, but random."""
    missing, shapes = sorted(loaded["missing_keys"]), sorted(loaded["mismatched_keys"])
    if not missing and not shapes:
        return
    what = f"lack {missing[0]}" if missing else f"have another shape of {shapes[0][0]}"
    if others := len(missing) + len(shapes) - 1:
        what += f" and {others} more"
    raise ModelLoadError(
        f"the weights of {name!r} {what}, by its config.json: copy or download the whole model "
        "again, its config.json and its weights from the same place"
    )


def kept_settings(config: GRPOConfig) -> dict[str, Any]:
    """Return the settings that a trained model keeps, for its config.json."""
    return {name: getattr(config, name) for name in KEPT}


def load_tokenizer(name: str) -> Any:
    """Load the tokenizer of a model that another process runs; a directory needs no weights.

    Raises `ModelLoadError` as `load_model_and_tokenizer` does.
    """
    from transformers import AutoTokenizer

    folder = shipped_path(name)
    source = str(folder) if (folder / "tokenizer.json").is_file() else find_model(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelLoadError(
            f"can't load the tokenizer of {name!r}: {_first_line(error)}; "
            f"{_remedy(name, found=True)}"
        ) from error
    check_tokenizer(tokenizer, name)
    return tokenizer


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `ModelLoadError` where the tokenizer can't encode a chat; set a missing pad token."""
    for token, use in (("eos_token", ", which ends a turn"), ("chat_template", "")):
        if not getattr(tokenizer, token):
            raise ModelLoadError(
                f"the tokenizer of {name!r} has no {token.replace('_', ' ')}{use}: use a chat "
                "(instruct) model"
                + ("" if use else ", or put one in its folder as chat_template.jinja")
            )
    chat = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "How many?"}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        problem = "" if "Answer." in text else "leaves out the system message"
    except Exception as error:  # templates may raise anything
        problem = f"can't write a system and a user message ({_first_line(error)})"
    if problem:
        raise ModelLoadError(
            f"the chat template of {name!r} {problem}: use a model that takes a system message, or "
            "put a template that does in its folder as chat_template.jinja"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token


def looks_local(name: str) -> bool:
    """Return whether a model's name is a path, so that a missing directory is never downloaded."""
    path = Path(name)
    return path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or path.exists()


def check_directory(name: str) -> None:
    """Raise `ModelLoadError` where `name` is no directory with a whole model and its tokenizer."""
    path = Path(name)
    if path.suffix == ".gguf" or (any(path.glob("*.gguf")) and not _has_weights(path)):
        raise ModelLoadError(
            f"{name} is a GGUF model, which can't be trained: use the directory of the original "
            "model, with config.json and *.safetensors; to play with the GGUF, serve it with "
            "llama.cpp and pass the server's --base-url"
        )
    if not path.is_dir():
        raise ModelLoadError(f"no model directory at {name}; {_remedy(name, found=False)}")
    if lora.is_adapter(path):
        if not (path / lora.WEIGHTS).is_file():
            raise ModelLoadError(f"the adapter in {name} has no {lora.WEIGHTS}: copy it again")
        if pointer := _lfs_pointer(path):
            raise ModelLoadError(f"the adapter in {name} is not whole: {pointer}")
        return
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"{name} is not a model directory: it has no config.json, and no {lora.CONFIG} of a "
            f"LoRA adapter; {_remedy(name, found=False)}"
        )
    if missing := _missing_files(path):
        raise ModelLoadError(f"the model in {name} is not whole: {missing}")


def _has_weights(path: Path) -> bool:
    return any(file for pattern in WEIGHTS for file in path.glob(pattern))


def _missing_files(path: Path) -> str | None:
    """Return what a model's directory lacks, and what to do; None if it lacks nothing."""
    again = "copy or download the whole directory again"
    try:
        json.loads((path / "config.json").read_bytes())
    except (OSError, ValueError):
        return f"its config.json is damaged; {again}"
    if not _has_weights(path):
        return f"it has a config.json but no weights (model.safetensors); {again}"
    for index in path.glob("*.index.json"):
        try:
            shards = set(json.loads(index.read_bytes())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"its {index.name} is damaged; {again}"
        if missing := sorted(shard for shard in shards if not (path / shard).is_file()):
            return f"it lacks {', '.join(missing)}, which {index.name} lists; {again}"
    if pointer := _lfs_pointer(path):
        return pointer
    if not (path / "tokenizer.json").is_file():
        return (
            "it has no tokenizer.json; write one with transformers: "
            f"AutoTokenizer.from_pretrained(ORIGINAL_MODEL).save_pretrained({str(path)!r})"
        )
    return None


def _lfs_pointer(path: Path) -> str | None:
    for file in (*path.glob("*.safetensors"), *path.glob("*.json")):
        with file.open("rb") as opened:
            if opened.read(len(LFS_POINTER)) == LFS_POINTER:
                return f"{file.name} is only a pointer of Git LFS; run 'git lfs pull' in its folder"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0].rstrip(".")


def _download(name: str) -> str:
    return (
        f"on a machine with access run 'hf download {name} --local-dir DIR', copy DIR here and "
        f"pass --model DIR, or use {OFFLINE_MODEL}"
    )


def _remedy(name: str, *, found: bool) -> str:
    """Return how to get a model whose files were `found`, but can't be loaded, or were not."""
    if "data/models" in name:
        return "create it with 'python -m trainer pretrain', or choose another with --model"
    if not found:
        return "use a directory written by save_pretrained, or the name of a Hugging Face model"
    if looks_local(name):
        return (
            "its files are damaged or not a causal language model: save it again with "
            "save_pretrained, or choose another with --model"
        )
    return f"the hub can't be reached, or it has no causal language model: {_download(name)}"
