"""LoRA adapters in PEFT's format: merged into their base at loading, and saved after training."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from typer.testing import CliRunner

from tests.trainer.conftest import short_training
from tests.trainer.small_job import trainer_of
from trainer.__main__ import app
from trainer.config.presets import PRESETS, SAVED_AS
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import ModelLoadError
from trainer.run.inputs import JobOptions, load_inputs
from trainer.runtime import lora
from trainer.runtime.models import find_model, load_model_and_tokenizer, preset_of
from trainer.runtime.training import run_training_with_metrics, save_trained
from trainer.train_command import FURTHER_LEARNING_RATE, grpo_config

peft = pytest.importorskip("peft")
IDS = torch.tensor([[5, 80, 41, 7, 300]])
HUB_NAME = "Qwen/Qwen2.5-Coder-0.5B-Instruct"


def qwen2(hidden_size: int, vocab_size: int) -> Qwen2ForCausalLM:
    torch.manual_seed(hidden_size)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=2 * hidden_size,
            tie_word_embeddings=True,
            initializer_range=0.1,
        )
    ).eval()


@pytest.fixture
def home(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "models"
    for name, size in (("qwen2.5-coder-0.5b", 64), ("wider", 96)):
        qwen2(size, len(tokenizer)).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    monkeypatch.setenv("MODELS_HOME", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


@pytest.fixture
def adapter(home: Path, tmp_path: Path) -> Path:
    """A bfloat16 adapter of PEFT's, whose base is a hub name."""
    base = AutoModelForCausalLM.from_pretrained(home / "qwen2.5-coder-0.5b", dtype=torch.bfloat16)
    settings = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(base, settings, autocast_adapter_dtype=False)
    torch.manual_seed(1)
    for name, one in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(one, std=0.2)
    adapted.peft_config["default"].base_model_name_or_path = HUB_NAME
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def config_of(model: Path, **changes: Any) -> GRPOConfig:
    return GRPOConfig(model_name=str(model), device="cpu", dtype="float32", **changes)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


def test_an_adapter_is_merged_into_its_base_in_float32(home, adapter):
    base = AutoModelForCausalLM.from_pretrained(home / "qwen2.5-coder-0.5b", dtype=torch.float32)
    before = logits(base)
    expected = logits(peft.PeftModel.from_pretrained(base, adapter).eval())
    model, tokenizer = load_model_and_tokenizer(config_of(adapter))
    assert type(model) is Qwen2ForCausalLM
    assert not [name for name, _ in model.named_parameters() if "lora" in name]
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    assert torch.allclose(logits(model), expected, atol=1e-4)
    assert not torch.allclose(before, expected, atol=0.1)
    assert tokenizer.chat_template


def test_an_adapter_gets_the_preset_of_its_base_and_its_own_settings(adapter):
    assert preset_of(str(adapter)).preset == "qwen2.5-coder-0.5b"
    (adapter / "sqlenv.json").write_text(json.dumps({"system_prompt": "short", "step_budget": 7}))
    choice = preset_of(str(adapter))
    assert choice.settings == {
        **{"model_name": str(adapter)},
        **{"system_prompt": "short", "step_budget": 7},
        **{"explain": [], "max_prose_tokens": 0},  # it was saved before there were such settings
    }
    assert "of its training" in choice.why


def test_another_base_may_be_named(home, adapter):
    wider = config_of(adapter, base_model=str(home / "wider"))
    with pytest.raises(ModelLoadError, match=r"does not fit its base .*wider.*--model BASE"):
        load_model_and_tokenizer(wider)
    settings = json.loads((adapter / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = None
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelLoadError, match="names no base_model_name_or_path"):
        find_model(str(adapter))
    right = str(home / "qwen2.5-coder-0.5b")
    load_model_and_tokenizer(config_of(adapter, base_model=right))


def test_an_adapter_of_more_layers_is_refused(home, adapter):
    """PEFT ignores layers that the base lacks."""
    config = json.loads((home / "qwen2.5-coder-0.5b/config.json").read_text())
    config |= {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    small = Qwen2ForCausalLM(Qwen2Config(**config))
    small.save_pretrained(home / "qwen2.5-coder-0.5b")
    with pytest.raises(ModelLoadError, match=r"does not fit .*layers\.1.* is in only one"):
        load_model_and_tokenizer(config_of(adapter))


@pytest.mark.parametrize("name", [HUB_NAME, "qwen2.5-coder-0.5b", "wider"])
def test_any_model_is_found_in_models_home(home, name):
    folder = home / ("wider" if name == "wider" else "qwen2.5-coder-0.5b")
    assert find_model(name) == str(folder)
    assert load_model_and_tokenizer(GRPOConfig(model_name=name, device="cpu"))[0].num_parameters()
    with pytest.raises(ModelLoadError, match="no such folder here or in MODELS_HOME"):
        find_model("another")


def test_a_base_that_is_nowhere_is_named_with_the_remedy(adapter, monkeypatch):
    monkeypatch.delenv("MODELS_HOME")

    def unreachable(*_: object, **__: object) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", unreachable)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(ModelLoadError, match=f"set MODELS_HOME .*--model BASE.*{HUB_NAME}"):
        find_model(str(adapter))


@pytest.mark.parametrize("command", ["evaluate", "train", "sft", "improve", "play"])
def test_a_folder_without_an_adapter_is_refused(command, home):
    arguments = ["--adapter", str(home / "wider"), *(["--db", "x"] if command == "play" else [])]
    result = CliRunner().invoke(app, [command, *arguments])
    assert result.exit_code == 2
    assert "adapter_config.json" in result.output
    (home / "cut").mkdir()
    (home / "cut" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"no adapter_model\.safetensors"):
        find_model(str(home / "cut"))


@pytest.mark.parametrize(("on_an_adapter", "rank"), [(False, 4), (True, 4), (True, 2)])
def test_training_saves_its_adapter_beside_the_merged_model(
    config, home, adapter, tmp_path, on_an_adapter, rank
):
    base = adapter if on_an_adapter else home / "qwen2.5-coder-0.5b"
    settings = {
        "step_budget": 2,
        "max_new_tokens": 4,
        "learning_rate": 1e-2,
        "lora_rank": rank,
        "save_steps": 1,
    }
    config = short_training(config, tmp_path, model_name=base, **settings)
    model, tokenizer = load_model_and_tokenizer(config)
    before = logits(model)
    trainer = trainer_of(model, tokenizer, config)
    assert torch.allclose(logits(trainer.model), before, atol=1e-4)
    run_training_with_metrics(trainer)
    merged = save_trained(trainer, tmp_path / "run" / "model")
    saved = tmp_path / "run" / "adapter"
    assert {one.dtype for one in load_file(saved / "adapter_model.safetensors").values()} == {
        torch.bfloat16
    }
    named = json.loads((saved / "adapter_config.json").read_text())["base_model_name_or_path"]
    # an adapter of the same rank goes on
    assert named == (str(adapter) if on_an_adapter and rank == 2 else HUB_NAME)
    for folder in (saved, tmp_path / "checkpoint-1"):
        assert preset_of(str(folder)).settings["step_budget"] == 2
        load_model_and_tokenizer(config_of(folder))
    again, _ = load_model_and_tokenizer(config_of(saved))
    assert getattr(merged.config, SAVED_AS)["step_budget"] == 2
    assert torch.allclose(logits(again), logits(merged.eval()), atol=0.05)


LORA = {"lora_rank": 4}


@pytest.fixture
def settings(config: GRPOConfig, tmp_path: Path) -> GRPOConfig:
    return short_training(
        config, tmp_path, max_steps=2, step_budget=2, max_new_tokens=4, learning_rate=1e-2
    )


def test_frozen_weights_are_bfloat16_and_the_saved_model_keeps_every_change(
    settings, model, tokenizer, tmp_path
):
    before = {name: one.bfloat16().float() for name, one in model.state_dict().items()}
    # a bfloat16 weight, of 3 digits, would not change
    config = settings.override(**LORA, dtype="bfloat16", learning_rate=1e-5)
    trainer = trainer_of(model, tokenizer, config)
    layers = {
        (one.requires_grad, one.dtype)
        for name, one in trainer.model.named_parameters()
        if "_proj" in name
    }
    assert layers == {(False, torch.bfloat16), (True, torch.float32)}
    run_training_with_metrics(trainer)
    merged = save_trained(trainer, tmp_path / "saved")
    assert all(one.requires_grad for one in merged.parameters())  # or autocast casts at every use
    changed = merged.state_dict()
    assert {one.dtype for one in changed.values()} == {torch.float32}
    projections = [name for name in changed if name.endswith("_proj.weight")]
    assert len(projections) == 2 * 7
    for name in projections:
        change = (changed[name] - before[name]).abs()
        assert 0 < change.max() < 1e-3


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"report_to": "wandb"}, r"report_to names wandb: .* requires wandb to be installed"),
        ({"report_to": "tensorboard,trackio"}, r"report_to names trackio: .*installed"),
        ({"report_to": "tensorbord"}, r"report_to names tensorbord: .*tensorboard"),
        ({"report_to": "none,tensorboard"}, r"report_to names none: "),
        ({"lora_rank": "8"}, r"lora_rank is 8, which needs the package peft: pip install peft"),
    ],
)
def test_a_missing_package_is_named_before_a_run_starts(small, monkeypatch, asked, problem):
    find, missing = importlib.util.find_spec, ("wandb", "trackio", "peft")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    with pytest.raises(ConfigError, match=problem):
        load_inputs(small.override(**asked), JobOptions())


@pytest.mark.parametrize(
    ("changed", "goes_on"),
    [
        ({}, True),
        ({"lora_dropout": 0.1}, False),
        ({"use_dora": True}, False),
        ({"target_modules": ["q_proj"]}, False),
        ({"r": 8}, False),
    ],
)
def test_training_goes_on_with_an_adapter_like_its_own_only(adapter, changed, goes_on):
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    assert lora.continues(config_of(adapter, lora_rank=4)) == goes_on


def test_training_goes_on_with_an_adapter_in_models_home_unless_a_server_samples(home, adapter):
    adapter.rename(home / "own-adapter")
    assert lora.continues(config_of(Path("own-adapter"), lora_rank=4))
    served = config_of(Path("own-adapter"), lora_rank=4, generation_url="http://x/v1")
    assert not lora.continues(served), "the server's model is the merged one"


def test_an_adapter_that_learns_further_does_so_slowly(home, adapter):
    settings = {"model_name": str(adapter), "lora_rank": "4"}
    name = "qwen2.5-coder-0.5b"
    assert grpo_config(name, settings)[1].learning_rate == FURTHER_LEARNING_RATE
    assert grpo_config(name, {**settings, "learning_rate": "1e-4"})[1].learning_rate == 1e-4
    new = {**settings, "lora_rank": "8"}
    assert grpo_config(name, new)[1].learning_rate == PRESETS[name]["learning_rate"]


@pytest.mark.parametrize("more", [{"modules_to_save": ["norm"]}, {"bias": "all"}], ids=str)
def test_an_adapter_that_changes_more_than_lora_layers_is_merged(home, tmp_path, more):
    base = AutoModelForCausalLM.from_pretrained(home / "qwen2.5-coder-0.5b")
    settings = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **more)
    adapted = peft.get_peft_model(base, settings)
    with torch.no_grad():
        for one in adapted.parameters():
            if one.requires_grad:
                one += 0.1
    expected = logits(adapted)
    adapted.save_pretrained(tmp_path / "more")
    loaded, _ = load_model_and_tokenizer(config_of(tmp_path / "more"))
    torch.testing.assert_close(logits(loaded), expected, atol=1e-4, rtol=1e-4)


def test_an_adapter_without_lora_layers_is_refused(home, tmp_path):
    base = AutoModelForCausalLM.from_pretrained(home / "qwen2.5-coder-0.5b")
    settings = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    peft.get_peft_model(base, settings).save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelLoadError, match="it has no LoRA layers"):
        load_model_and_tokenizer(config_of(tmp_path / "prompt"))


def test_an_adapter_on_the_hub_is_refused_with_the_remedy(adapter, tokenizer, monkeypatch):
    """There, only transformers sees that it is one; it loads the base and freezes everything."""
    tokenizer.save_pretrained(adapter)
    path = adapter / "adapter_config.json"
    base = str(Path(lora.model_path("qwen2.5-coder-0.5b")))
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": base}))
    monkeypatch.setattr(lora, "is_adapter", lambda folder: False)
    monkeypatch.setattr("trainer.runtime.models.find_model", lambda name, base="": name)
    with pytest.raises(ModelLoadError, match=r"is a LoRA adapter: .*--adapter DIR"):
        load_model_and_tokenizer(config_of(adapter))
