"""Loading a causal language model with its tokenizer."""

from pathlib import Path
from typing import Any

from shared.shipped import shipped_path
from trainer.config import OFFLINE_MODEL, GRPOConfig
from trainer.errors import ModelLoadError
from trainer.runtime.out_of_memory import reporting_out_of_memory


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
    # not str(Path(name)): ./model would become a name on the hub
    source = name if name.startswith(".") else str(shipped_path(name))
    _check_directory(source)
    try:
        with reporting_out_of_memory(config, f"loading the model {name}"):
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=torch.float32, attn_implementation="sdpa"
            )
            model.to(device)
    # RuntimeError: weights whose shapes differ from config.json's
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ModelLoadError(
            f"can't load the model {name!r}: {reason}; {_remedy(name, error)}"
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
    if not looks_local(name):
        return
    if not path.is_dir():
        raise ModelLoadError(f"no model directory at {name}; {_remedy(name)}")
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"{name} is not a model directory: it has no config.json; {_remedy(name)}"
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
        return (
            "the hub can't be reached and nothing is cached: on a machine with access run "
            f"'hf download {name} --local-dir DIR', copy DIR here and pass --model DIR, or use "
            f"{OFFLINE_MODEL}"
        )
    if "data/models" in name:
        return "create it with 'python -m trainer pretrain', or choose another with --model"
    if causes and looks_local(name):
        return (
            "its files are damaged or not a causal language model: save it again with "
            "save_pretrained, or choose another with --model"
        )
    return "use a directory written by save_pretrained, or the name of a Hugging Face model"
