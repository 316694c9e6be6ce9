"""Loading a causal language model with its tokenizer."""

from pathlib import Path
from typing import Any

from trainer.config import OFFLINE_MODEL, GRPOConfig
from trainer.errors import ModelLoadError
from trainer.runtime.out_of_memory import memory_told


def load_model_and_tokenizer(config: GRPOConfig) -> tuple[Any, Any]:
    """The model, in float32 on its device, and its tokenizer; `ModelLoadError` names what is
    missing and the remedy.

    A directory and a Hugging Face name take the same path, so the offline model loads as Qwen3-0.6B
    does.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trainer.runtime.precision import precision

    device, _ = precision(config.device, config.dtype)
    name = config.model_name
    _check_directory(name)
    try:
        with memory_told(config, f"loading the model {name}"):
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForCausalLM.from_pretrained(
                name, dtype=torch.float32, attn_implementation="sdpa"
            )
            model.to(device)
    # the last: shapes
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        first = str(error).strip().split("\n")[0].rstrip(".")
        raise ModelLoadError(
            f"can't load the model {name!r}: {first}; {_remedy(name, error)}"
        ) from error
    check_tokenizer(tokenizer, name)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise ModelLoadError(
            f"the tokenizer of {name!r} has {len(tokenizer):,} tokens, more than the model's "
            f"{model.get_input_embeddings().num_embeddings:,}: they don't belong together"
        )
    return model, tokenizer


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """`ModelLoadError` where the tokenizer lacks what a chat with turns needs; a missing pad token
    becomes the eos."""
    if tokenizer.eos_token_id is None:
        raise ModelLoadError(
            f"the tokenizer of {name!r} has no eos token, which ends a turn: use a chat model"
        )
    if not tokenizer.chat_template:
        raise ModelLoadError(
            f"the tokenizer of {name!r} has no chat template: use a chat (instruct) model"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token


def looks_local(name: str) -> bool:
    """Whether a model's name is a path. One that isn't there must not become a download of a
    repository."""
    path = Path(name)
    return path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or path.exists()


def _check_directory(name: str) -> None:
    path, local = Path(name), looks_local(name)
    if local and not path.is_dir():
        raise ModelLoadError(f"no model directory at {name}; {_remedy(name)}")
    if local and not (path / "config.json").is_file():
        raise ModelLoadError(
            f"{name} is no model directory: it has no config.json; {_remedy(name)}"
        )


def _remedy(name: str, error: BaseException | None = None) -> str:
    """How to get the model, by the hub's own word on what is wrong, which lies among the error's
    causes."""
    causes = set()
    while error is not None:
        causes |= {kind.__name__ for kind in type(error).__mro__}
        error = error.__cause__ or error.__context__
    if "GatedRepoError" in causes:
        return f"accept its terms at https://huggingface.co/{name}, then log in with 'hf auth login' or set HF_TOKEN"
    if "RepositoryNotFoundError" in causes:
        return f"check its name at https://huggingface.co/models; log in with 'hf auth login' if {name} is private"
    if "LocalEntryNotFoundError" in causes:
        return (
            "the hub can't be reached from here and nothing is cached: where it can, run "
            f"'hf download {name} --local-dir DIR', bring DIR here and pass --model DIR, or take {OFFLINE_MODEL}"
        )
    if "data/models" in name:
        return (
            "make the offline model with 'python -m trainer pretrain', or name another with --model"
        )
    if causes and looks_local(name):
        return "its files are damaged or no causal language model's: save it again with save_pretrained, or name another"
    return "name a directory made by save_pretrained, or a Hugging Face model and a way to reach the hub"
