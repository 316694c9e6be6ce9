"""Finding and loading a causal language model with its tokenizer."""

import threading
from pathlib import Path
from typing import Any

from shared.shipped import shipped_path
from trainer.config import OFFLINE_MODEL, GRPOConfig
from trainer.errors import ModelLoadError
from trainer.runtime.out_of_memory import reporting_out_of_memory

HUB_WAIT_S = 3.0  # for the hub's answer; its own retries would take a minute


def find_model(name: str) -> str:
    """Return the directory or the hub's name to load a model from.

    A directory must exist. Another name must be on the hub; where the hub can't be reached, it is
    the directory in the hub's cache. Raises `ModelLoadError` otherwise, within 5 s; imports neither
    torch nor transformers, so that a command can refuse a wrong name at once.
    """
    # not str(Path(name)): ./model would become a name on the hub
    source = name if name.startswith(".") else str(shipped_path(name))
    if looks_local(source):
        _check_directory(source)
        return source
    from huggingface_hub import constants, try_to_load_from_cache

    error = _ask_hub(source)
    if error is None:
        return source
    answers = {
        "GatedRepoError": "it is a gated repo",
        "RepositoryNotFoundError": "it is not a valid model identifier",
        "HFValidationError": "it is neither a directory nor a valid model identifier",
    }
    kinds = [kind.__name__ for kind in type(error).__mro__]
    reason = next((answers[kind] for kind in kinds if kind in answers), None)
    if reason is None and "HfHubHTTPError" in kinds:
        return source  # such as a model without config.json: loading it says what is wrong
    if isinstance(cached := try_to_load_from_cache(source, "config.json"), str):
        return str(Path(cached).parent)
    if reason is not None:
        raise ModelLoadError(f"can't load the model {name!r}: {reason}; {_remedy(name, error)}")
    raise ModelLoadError(
        f"can't load the model {name!r}: there is no such directory, it is not in the cache, and "
        f"{constants.ENDPOINT} couldn't be reached ({_first_line(error)}); {_download(name)}"
    )


def _ask_hub(name: str) -> Exception | None:
    """Ask the hub for a model's config.json once; return the error, None if it has the file."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    answers: list[Exception | None] = []

    def ask() -> None:
        try:
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_WAIT_S)
            answers.append(None)
        except Exception as error:
            answers.append(error)

    # in a thread, because looking up a host's name has no timeout
    thread = threading.Thread(target=ask, name="ask-hub", daemon=True)
    thread.start()
    thread.join(HUB_WAIT_S)
    return answers[0] if answers else TimeoutError(f"no answer within {HUB_WAIT_S:g} s")


def load_model_and_tokenizer(config: GRPOConfig) -> tuple[Any, Any]:
    """Load `config.model_name`, in float32 on its device, and its tokenizer.

    A directory and a Hugging Face name are loaded the same way; the shipped models are found from
    any working directory. Raises `ModelLoadError`, which says what is missing and what to do.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trainer.runtime.precision import precision

    device, _ = precision(config.device, config.dtype)
    name = config.model_name
    source = find_model(name)
    try:
        with reporting_out_of_memory(config, f"loading the model {name}"):
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=torch.float32, attn_implementation="sdpa"
            )
            model.to(device)
    # RuntimeError: weights whose shapes differ from config.json's
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        raise ModelLoadError(
            f"can't load the model {name!r}: {_first_line(error)}; {_remedy(name, error)}"
        ) from error
    check_tokenizer(tokenizer, name)
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise ModelLoadError(
            f"the tokenizer of {name!r} has {len(tokenizer):,} tokens, but the model only "
            f"{embeddings:,}: they don't belong together"
        )
    return model, tokenizer


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `ModelLoadError` where the tokenizer can't encode a chat; set a missing pad token."""
    for token, use in (("eos_token", "which ends a turn"), ("chat_template", "")):
        if not getattr(tokenizer, token):
            missing = token.replace("_", " ") + (f", {use}" if use else "")
            raise ModelLoadError(
                f"the tokenizer of {name!r} has no {missing}: use a chat (instruct) model"
            )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token


def looks_local(name: str) -> bool:
    """Return whether a model's name is a path, so that a missing directory is never downloaded."""
    path = Path(name)
    return path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or path.exists()


def _check_directory(name: str) -> None:
    path = Path(name)
    if not path.is_dir():
        raise ModelLoadError(f"no model directory at {name}; {_remedy(name)}")
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"{name} is not a model directory: it has no config.json; {_remedy(name)}"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0].rstrip(".")


def _download(name: str) -> str:
    return (
        f"on a machine with access run 'hf download {name} --local-dir DIR', copy DIR here and "
        f"pass --model DIR, or use {OFFLINE_MODEL}"
    )


def _remedy(name: str, error: BaseException | None = None) -> str:
    """Return how to get the model, by the hub's error among the causes of `error`."""
    causes = set()
    while error is not None:
        causes |= {kind.__name__ for kind in type(error).__mro__}
        error = error.__cause__ or error.__context__
    if "GatedRepoError" in causes:
        return (
            f"accept its terms at https://huggingface.co/{name}, then log in with 'hf auth login' "
            "or set HF_TOKEN"
        )
    if "RepositoryNotFoundError" in causes:
        return (
            f"check its name at https://huggingface.co/models; if {name} is private, log in with "
            "'hf auth login'"
        )
    if "LocalEntryNotFoundError" in causes:
        return f"the hub can't be reached, and its cache lacks some files: {_download(name)}"
    if "data/models" in name:
        return "create it with 'python -m trainer pretrain', or choose another with --model"
    if causes and looks_local(name):
        return (
            "its files are damaged or not a causal language model: save it again with "
            "save_pretrained, or choose another with --model"
        )
    return "use a directory written by save_pretrained, or the name of a Hugging Face model"
