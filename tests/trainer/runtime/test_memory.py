"""The memory of training, estimated from config.json, against models that exist."""

import re
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from tests.trainer.model_families import CONFIGS
from trainer.config.presets import NEEDS, PRESETS, SAVED_AS
from trainer.config.settings import GRPOConfig
from trainer.runtime import memory
from trainer.runtime.masked_logits import prepare, score_tokens
from trainer.runtime.memory import GIB, PROCESS, shortage, training_memory
from trainer.runtime.precision import shrink_frozen_weights

# transformers and peft use a name that transformers renamed
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 500,
    "max_position_embeddings": 256,
    "layer_types": ["full_attention"] * 4,
}


class Tracker(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[int] = set()
        self.now = self.peak = 0

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.forget, storage._cdata, storage.nbytes())

    def forget(self, storage: int, size: int) -> None:
        self.known.remove(storage)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return output


def small(name: str) -> dict[str, Any]:
    return {**CONFIGS[name], **SMALL, "head_dim": 16}


def build(model_config: dict[str, Any]) -> Any:
    config = AutoConfig.for_model(**model_config)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def settings(**overrides: Any) -> GRPOConfig:
    shape = {
        "max_context_tokens": 200,
        "max_new_tokens": 20,
        "per_device_train_batch_size": 4,
        "step_budget": 3,
    }
    return GRPOConfig(**{**shape, **overrides})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_parameters_are_those_of_the_model(preset):
    with torch.device("meta"):
        model = build({k: v for k, v in CONFIGS[preset].items() if k != SAVED_AS})
    assert model.num_parameters() == NEEDS[preset].parameters
    found = training_memory(CONFIGS[preset], settings(), torch.float32)
    assert found.measuring - PROCESS == pytest.approx(4 * NEEDS[preset].parameters, rel=1e-3)


def test_a_large_model_with_lora_needs_most_to_be_measured():
    """In float32, with autocast's copies: its adapters and frozen 16-bit weights take less."""
    large = GRPOConfig.preset("qwen3-8b")
    found = training_memory(CONFIGS["qwen3-8b"], large, torch.bfloat16, gpu=True)
    assert found.peak == found.measuring > found.rollout
    size = NEEDS["qwen3-8b"].parameters
    assert 5.5 * size < found.measuring - PROCESS < 6 * size


@pytest.mark.parametrize(
    ("name", "rank", "checkpointing", "compute"),
    [
        ("qwen3-0.6b", 0, False, torch.float32),
        ("qwen3-0.6b", 0, True, torch.bfloat16),
        ("qwen3-0.6b", 8, False, torch.bfloat16),
        ("qwen3-0.6b", 8, True, torch.float32),
        ("smollm2-135m", 0, False, torch.float32),
        ("qwen2.5-coder-0.5b", 8, False, torch.float32),
    ],
)
def test_an_update_takes_what_was_calculated(name, rank, checkpointing, compute, monkeypatch):
    """Two updates of two micro-batches with AdamW."""
    # tiles that don't hide the rest
    monkeypatch.setattr("trl.trainer.utils._CHUNKED_LOGPROB_CHUNK_SIZE", 128)
    monkeypatch.setattr(memory, "TILE_ENTRIES", 128)
    dtype = "float32" if compute is torch.float32 else "bfloat16"
    config = settings(
        lora_rank=rank, gradient_checkpointing=checkpointing, device="cpu", dtype=dtype
    )
    model = build(small(name)).train()
    prepare(model)
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if rank:
        shrink_frozen_weights(model, config)
        model.enable_input_require_grads()
        lora = LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    tracker = Tracker()
    for weight in model.parameters():
        tracker.add(weight)
    ids = torch.randint(500, (config.per_device_train_batch_size, 200))
    scored = torch.zeros_like(ids)
    scored[:, -60:] = 1
    lower = nullcontext if compute is torch.float32 else lambda: torch.autocast("cpu", compute)
    with tracker:
        for _ in range(2):
            for _ in range(2):
                with lower():
                    loss = -score_tokens(model, ids, torch.ones_like(ids), scored)[0].sum()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    calculated = training_memory(small(name), config, compute)
    assert 0.8 < (calculated.update - PROCESS) / tracker.peak < 1.3


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_fits_in_the_memory_that_it_states(preset):
    config, gpu = GRPOConfig.preset(preset), preset.startswith("qwen3")
    # what needs most: a CPU without bfloat16, a GPU without it (a T4)
    compute = torch.float16 if gpu else torch.float32
    found = training_memory(CONFIGS[preset], config, compute, gpu=gpu)
    assert found.peak < 0.92 * NEEDS[preset].memory_gb * 10**9
    text = (Path(__file__).parents[3] / "docs" / "own-model.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{preset}` \| (.*) \|$", text, re.MULTILINE)
    needs = row.split("|")[-1].strip()
    kind = "GPU" if gpu else "CPU"
    assert needs == f"{kind}, {NEEDS[preset].memory_gb} GB ({found.peak / GIB:.1f} GiB)"


def test_a_job_that_the_system_might_kill_is_warned_of(monkeypatch):
    model, config = CONFIGS["smollm2-135m"], GRPOConfig.preset("smollm2-135m", device="cpu")
    memory = SimpleNamespace(total=64 * GIB, available=64 * GIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    assert shortage(model, config) is None
    memory.available = 4 * GIB
    warning = shortage(model, config)
    assert "GiB are available: the system may kill it" in warning
    assert "--set per_device_train_batch_size=1 " in warning
    memory.available = 24 * GIB
    assert shortage(model, config) is None
    several = shortage(model, config, processes=4)
    assert "in each of 4 processes" in several
    assert shortage(CONFIGS["offline"], config) is None
