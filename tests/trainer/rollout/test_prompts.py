"""The model's prompts, byte by byte: the offline model was trained on them.

And the prompts of a questions file.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.actions import ActionType, parse_action
from shared.errors import QuestionLoadError
from tests.conftest import question_row, write_questions
from tests.trainer.conftest import FakeClient, observation
from trainer.config.presets import SAVED_AS
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.play.output_formats import Table, read_result
from trainer.prompts import Prompt, prompt_of
from trainer.rollout.dataset import check_training_questions, load_question_prompts, question_id_of
from trainer.rollout.prompts import format_observation, get_system_prompt, result_rows

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (
            observation(0, 15),
            "Question: How many orders are there?\nTables: orders, customers\nSteps left: 15",
        ),
        (observation(1, 14, result="total\n12", reward=0.75), "total\n12\nSteps left: 14"),
        (
            observation(2, 3, error="no such column: nam"),
            "Error: no such column: nam\nSteps left: 3",
        ),
    ],
)
def test_the_short_form_is_the_result_or_error_and_the_steps_left(shown, text):
    """The reward is never shown."""
    assert format_observation(shown, "short") == text


def test_a_whole_reply_is_shown_as_its_observation():
    [reply] = FakeClient().reset_many([{"question_id": "a", "step_budget": 4}])
    assert format_observation(reply) == format_observation(reply.observation)


def test_the_full_prompt_shows_a_worked_example_with_every_action():
    _, example = get_system_prompt("full").split("one per turn:\n")
    shown = [parse_action(line).action_type for line in example.split("\n\n")[0].splitlines()]
    assert shown == list(ActionType)


@pytest.mark.parametrize(
    ("history", "shown", "hint"),
    [
        ([], {"result": "x"}, "Describe the table that the question is about."),
        (["DESCRIBE: orders"], {"result": "x"}, "Now send the QUERY that answers: How many orders"),
        (["SAMPLE: orders"], {"result": "x"}, "Now send the QUERY that answers: How many orders"),
        (["QUERY: SELECT 1"], {"result": "x"}, "If this result answers the question, send it"),
        (["QUERY: SELECT 1"], {"result": "a\n(no rows)"}, "No row matches. Use SAMPLE"),
        (["QUERY: SELECT 1"], {"error": "no such column"}, "Send another action: the column may"),
    ],
)
def test_the_full_prompt_has_a_hint_at_the_next_action(history, shown, hint):
    seen = observation(len(history), 9, **shown).model_copy(update={"action_history": history})
    text = format_observation(seen, "full")
    assert text.startswith(format_observation(seen, "short") + f"\n{hint}")
    assert len(text.removeprefix(format_observation(seen, "short")).splitlines()) == 2


@pytest.mark.parametrize("end", [{"budget_remaining": 0}, {"done": True}])
def test_an_episode_that_has_ended_gets_no_hint(end):
    shown = observation(1, 3, result="x").model_copy(update=end)
    assert format_observation(shown) == format_observation(shown, "short")


def question(name: str, difficulty: str) -> dict[str, Any]:
    text = f"How many in {name}?"
    return question_row(name, "shop", text, "SELECT 1", 1, "integer", difficulty, "orders")


@pytest.fixture
def config(tmp_path: Path) -> GRPOConfig:
    rows = [question("q1", "easy"), question("q2", "hard"), question("q3", "medium")]
    write_questions(tmp_path, train=rows, eval=[question("e1", "easy")])
    return GRPOConfig.preset("offline", data_dir=tmp_path)


def test_difficulties_are_filtered_and_ids_travel_in_the_prompt(config):
    rows = load_question_prompts(config)
    assert [row["question_id"] for row in rows] == ["q1", "q3"]
    assert [question_id_of(row["prompt"]) for row in rows] == ["q1", "q3"]
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert "How many in q1?" in rows[0]["prompt"][1]["content"]
    assert (rows[0]["database_name"], rows[0]["difficulty"]) == ("shop", "easy")
    assert "SELECT" not in json.dumps(rows[0]), "gold never enters a prompt"


def test_nothing_left_names_the_file(config):
    with pytest.raises(
        QuestionLoadError, match=r"questions_eval\.json has no question of difficulty hard .*easy"
    ):
        load_question_prompts(config.override(difficulty_filter="hard"), "eval")
    assert [row["question_id"] for row in load_question_prompts(config, "eval")] == ["e1"]


def test_a_published_development_split_is_not_trained_on_without_a_flag(config):
    check_training_questions(["spider-train-0001", "my-spider-dev-1"], config)
    ids = ["spider-train-0001", "spider-dev-0002", "spider-dev-0003"]
    with pytest.raises(
        ConfigError, match=r"2 of the training questions .*dev-0002.*allow_dev_questions=true"
    ):
        check_training_questions(ids, config)
    check_training_questions(ids, config.override(allow_dev_questions="true"))


def test_a_file_is_a_system_prompt_and_its_text_is_what_is_kept(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("Find the answer.\nBe brief.\n")
    config = GRPOConfig(system_prompt=path)
    assert config.system_prompt == "Find the answer.\nBe brief."
    assert get_system_prompt(config.system_prompt) == config.system_prompt
    assert GRPOConfig(system_prompt=config.system_prompt) == config, "as a model keeps it"
    with pytest.raises(ConfigError, match="system_prompt is 'no-file': it should be full, short"):
        GRPOConfig(system_prompt=Path("no-file"))
    with pytest.raises(ConfigError, match="system_prompt is "):  # as a model's folder could ask
        GRPOConfig(system_prompt=str(path))
    path.write_text("Answer.")
    with pytest.raises(ConfigError, match="several words"):
        GRPOConfig(system_prompt=path)


def test_a_model_says_what_it_was_trained_to_read(tmp_path):
    trained = {"model_type": "qwen2", SAVED_AS: {"system_prompt": "short"}}
    (tmp_path / "config.json").write_text(json.dumps(trained))
    prompt = prompt_of(str(tmp_path))
    assert prompt.system == get_system_prompt("short")
    [reply] = FakeClient().reset_many([{"question_id": "a", "step_budget": 4}])
    assert prompt.message(reply) == format_observation(reply, "short")
    assert Prompt().message(reply) == format_observation(reply) != prompt.message(reply)
    assert prompt_of("some/model").system == get_system_prompt("full"), "not of this trainer"


def test_a_row_that_looks_like_a_remark_is_a_row():
    result = "name\n(first aid kit)\nrope\n(first 2 rows)"
    assert result_rows(result) == [["(first aid kit)"], ["rope"]]
    assert read_result(result) == Table(["name"], [["(first aid kit)"], ["rope"]], cut=True)
