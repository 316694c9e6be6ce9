"""Settings: the specification's defaults, validation that names the remedy, presets."""

import re

import pytest

from shared.errors import SQLEnvError
from tests.test_imports import ROOT
from trainer.config import GRPOConfig
from trainer.errors import ConfigError


def test_grpo_config_defaults() -> None:
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
        ("temperature", float("inf")),
        ("difficulty_filter", None),
        ("device", "tpu"),
        ("data_dir", ""),
        ("generation_url", "host:8000"),
    ],
)
def test_bad_values_name_the_field_and_a_remedy(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} .*: ") as caught:
        GRPOConfig().override(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SQLEnvError)


def test_overrides_are_parsed_by_type() -> None:
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


def test_an_unknown_setting_suggests_the_near_one() -> None:
    with pytest.raises(ConfigError, match="did you mean learning_rate"):
        GRPOConfig().override(learning_rat=1.0)


def test_an_unknown_preset_names_the_known() -> None:
    with pytest.raises(ConfigError, match="offline, smollm2-135m"):
        GRPOConfig.preset("online")


def test_data_dir_sets_both_paths() -> None:
    config = GRPOConfig.preset("offline", data_dir="/tmp/spider")
    assert config.questions_path == "/tmp/spider/questions/questions_train.json"
    assert config.db_dir == "/tmp/spider/databases"
    assert str(config.data_dir) == "/tmp/spider"


def test_the_page_has_every_setting_with_its_default_and_no_other() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z]\w*)` \| (\S+) \|", page, re.MULTILINE))

    def shown(value: object) -> str:
        if isinstance(value, list):
            return ",".join(value) or "empty"
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value:g}" if isinstance(value, float) else str(value) or "empty"

    assert listed == {name: shown(value) for name, value in vars(GRPOConfig()).items()}
