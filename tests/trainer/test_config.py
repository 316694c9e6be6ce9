"""Settings: the specification's defaults, bad values, and the preset that a model gets."""

import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shared.errors import SQLEnvError
from tests.test_imports import ROOT
from tests.trainer.model_families import CONFIGS
from trainer.__main__ import app
from trainer.config.presets import (
    GENERAL,
    KEPT,
    NEEDS,
    OFFLINE_MODEL,
    PRESETS,
    SAVED_AS,
    TRAINED_MODEL,
    choose_preset,
    parameter_count,
)
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.run.evaluation import EvaluationSettings
from trainer.run.options import configured
from trainer.runtime.models import load_model_and_tokenizer, preset_of


def test_grpo_config_defaults():
    config = GRPOConfig()
    assert config.model_name == "Qwen/Qwen3-1.7B"
    assert config.max_new_tokens == 256
    assert config.num_train_epochs == 1
    assert config.per_device_train_batch_size == 2
    assert config.gradient_accumulation_steps == 4
    assert config.learning_rate == 5e-6
    assert config.num_generations == 4
    assert config.questions_path == "data/questions/questions_train.json"
    assert config.db_dir == "data/databases"
    assert config.step_budget == 10
    assert config.difficulty_filter == ["easy", "medium"]
    assert config.seed == 42
    assert config.output_dir
    assert config.logging_steps == 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("temperature", -1.0),
        ("num_generations", 1),
        ("num_generations", 3),
        ("step_budget", 0),
        ("step_budget", 101),
        ("difficulty_filter", []),
        ("difficulty_filter", ["trivial"]),
        ("server_urls", ["127.0.0.1:8000"]),
        ("max_context_tokens", 100),
        ("system_prompt", "long"),
        ("dtype", "int8"),
        ("max_steps", 0),
        ("seed", -1),
        ("model_name", ""),
        ("max_lost_fraction", 1.0),
        ("lr_scheduler", "magic"),
        ("seed", "two"),
        ("seed", 2**32),
        ("gradient_checkpointing", "maybe"),
        ("max_new_tokens", 1.5),
        ("learning_rate", [1]),
        ("beta", float("inf")),
        ("difficulty_filter", None),
        ("device", "tpu"),
        ("data_dir", ""),
        ("generation_url", "host:8000"),
    ],
)
def test_bad_values_name_the_field_and_a_remedy(name, value):
    with pytest.raises(ConfigError, match=f"{name} .*: ") as caught:
        GRPOConfig().override(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SQLEnvError)


def test_overrides_are_parsed_by_type():
    config = GRPOConfig.preset(
        "offline",
        seed="2",
        max_steps=5,
        learning_rate="1e-4",
        difficulty_filter="easy, hard",
        server_urls="http://a:1,http://b:2",
    )
    assert (config.seed, config.max_steps, config.learning_rate) == (2, 5, 1e-4)
    assert config.difficulty_filter == ["easy", "hard"]
    assert config.server_urls == ["http://a:1", "http://b:2"]
    assert config.override(gradient_checkpointing="true").gradient_checkpointing is True


def test_an_unknown_setting_or_preset_names_the_known():
    with pytest.raises(ConfigError, match="did you mean learning_rate"):
        GRPOConfig().override(learning_rat=1.0)
    with pytest.raises(ConfigError, match="offline, smollm2-135m"):
        GRPOConfig.preset("online")


def test_data_dir_sets_both_paths():
    config = GRPOConfig.preset("offline", data_dir="/tmp/spider")
    assert config.questions_path == "/tmp/spider/questions/questions_train.json"
    assert config.db_dir == "/tmp/spider/databases"
    assert str(config.data_dir) == "/tmp/spider"


def test_the_page_has_every_setting_with_its_default_and_no_other():
    page = (ROOT / "docs" / "settings.md").read_text()
    listed = dict(re.findall(r"^- `([a-z]\w*)` \((\S+)\)", page, re.MULTILINE))

    def shown(value: object) -> str:
        if isinstance(value, list):
            return (
                ",".join(f"{one:g}" if isinstance(one, float) else one for one in value) or "empty"
            )
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value:g}" if isinstance(value, float) else str(value) or "empty"

    assert listed == {name: shown(value) for name, value in vars(GRPOConfig()).items()}


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        (None, "offline"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("/models/smollm2-135m", "smollm2-135m"),
        ("./Qwen2.5-Coder-0.5B-Instruct/", "qwen2.5-coder-0.5b"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
        ("Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"),
        ("qwen3-1.7b", "qwen3-1.7b"),
        ("qwen3-0.6b/other", GENERAL),
        ("gpt-4.1", GENERAL),
    ],
)
def test_a_preset_follows_from_the_models_name(model, preset):
    assert choose_preset(model).preset == preset


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_that_of_its_own_model(preset):
    model = PRESETS[preset]["model_name"]
    choice = preset_of(model, served=True)
    assert choice.preset == preset
    # its own settings, too: the shipped model keeps those of the preset
    assert GRPOConfig.preset(preset, **choice.settings) == GRPOConfig.preset(preset)


def test_a_given_preset_wins():
    saved = {**CONFIGS["qwen3-0.6b"], SAVED_AS: {"system_prompt": "short"}}
    choice = choose_preset("Qwen/Qwen3-0.6B", "smollm2-135m", saved)
    assert choice.preset == "smollm2-135m"
    assert choice.settings == {"model_name": "Qwen/Qwen3-0.6B"}
    assert str(choice) == "preset smollm2-135m: given with --preset"


@pytest.mark.parametrize("name", CONFIGS)
def test_the_size_in_config_json_decides_for_another_name(name):
    choice = choose_preset("runs/latest/model", None, CONFIGS[name])
    assert choice.preset == name
    assert f"{NEEDS[name].parameters / 1e6:,.0f} million parameters" in choice.why
    count = parameter_count(CONFIGS[name])
    assert abs(count / NEEDS[name].parameters - 1) < 0.002


@pytest.mark.parametrize(
    "change", [{"hidden_size": None}, {"vocab_size": "many"}, {"hidden_size": 0}]
)
def test_an_unreadable_size_is_unknown(change):
    config = {**CONFIGS["qwen3-0.6b"], **change}
    assert parameter_count(config) is None
    assert choose_preset("mine", None, config).preset == GENERAL


def test_a_copy_of_a_trained_model_keeps_the_settings_of_its_training(tmp_path, model, tokenizer):
    base = tmp_path / "smollm2-135m"
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    config = GRPOConfig.preset(
        "smollm2-135m", model_name=str(base), step_budget=7, max_new_tokens=33, device="cpu"
    )
    loaded, _ = load_model_and_tokenizer(config)
    loaded.save_pretrained(tmp_path / "trained")
    tokenizer.save_pretrained(tmp_path / "trained")
    copy = shutil.copytree(tmp_path / "trained", tmp_path / "elsewhere" / "mine")

    choice = preset_of(str(copy))
    assert choice.preset == "offline"  # nearest to this tiny model
    kept = {name: value for name, value in asdict(config).items() if name in KEPT}
    assert choice.settings == {"model_name": str(copy), **kept}
    assert choice.why.endswith("with the prompt and limits of its training")
    assert configured(None, {"model_name": str(copy)})[1].step_budget == 7
    other = configured("offline", {"model_name": str(copy), "step_budget": 3})[1]
    assert (other.step_budget, other.max_new_tokens) == (3, 96)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[GRPOConfig]:
    configs: list[GRPOConfig] = []

    def run_evaluation(settings: EvaluationSettings, *_: Any) -> None:
        configs.append(settings.config)

    monkeypatch.setattr("trainer.run.job.run_job", lambda config, *_, **__: configs.append(config))
    monkeypatch.setattr("trainer.run.evaluation.run_evaluation", run_evaluation)
    return configs


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_commands_print_the_preset_and_take_it(started, tmp_path, command):
    model = shutil.copytree(OFFLINE_MODEL, tmp_path / "Qwen3-0.6B")
    out = ("--out", "out", "--set", "device=cpu")  # where there is no GPU
    assert "preset offline: " in run(command, *out)
    shown = run(command, *out, "--model", str(model), "--set", "max_new_tokens=9")
    assert "preset qwen3-0.6b: the name Qwen3-0.6B starts with it, with the prompt and " in shown
    shown = run(command, *out, "--model", str(model), "--preset", "smollm2-135m")
    assert "preset smollm2-135m: given with --preset" in shown
    taken = [(one.lora_rank, one.system_prompt, one.max_new_tokens) for one in started]
    assert taken == [(0, "short", 96), (16, "short", 9), (0, "full", 384)]
    assert started[0].model_name == (TRAINED_MODEL if command == "evaluate" else OFFLINE_MODEL)


def test_the_documentation_lists_every_preset_with_its_settings():
    text = (Path(__file__).parents[2] / "docs" / "own-model.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == list(PRESETS)
    for name, row in rows.items():
        config = GRPOConfig.preset(name)
        trained = f"LoRA, rank {config.lora_rank}" if config.lora_rank else "all weights"
        questions = config.rollouts_per_step // config.num_generations
        cells = (
            Path(config.model_name).name,
            trained,
            f"{config.learning_rate:g}",
            f"{questions} x {config.num_generations}",
            f"{config.max_new_tokens} of {config.max_context_tokens:,}",
        )
        assert [cell.strip() for cell in row.split("|")][: len(cells)] == list(cells)


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
@pytest.mark.parametrize("name", [one for one in NEEDS if NEEDS[one].gpu])
def test_the_gpus_of_a_machine_can_share_a_step(name, processes):
    assert GRPOConfig.preset(name).accumulation_steps(processes) * processes == 16
