"""Prompts from a questions file."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.errors import QuestionLoadError
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.rollout.dataset import check_training_questions, load_question_prompts, question_id_of


def question(question_id: str, difficulty: str) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "question_text": f"How many in {question_id}?",
        "database_name": "shop",
        "gold_sql": "SELECT 1",
        "gold_answer": 1,
        "answer_type": "integer",
        "difficulty": difficulty,
        "tables_involved": ["orders"],
    }


@pytest.fixture
def config(tmp_path: Path) -> GRPOConfig:
    folder = tmp_path / "questions"
    folder.mkdir()
    rows = [question("q1", "easy"), question("q2", "hard"), question("q3", "medium")]
    (folder / "questions_train.json").write_text(json.dumps(rows))
    (folder / "questions_eval.json").write_text(json.dumps([question("e1", "easy")]))
    return GRPOConfig.preset("offline", data_dir=tmp_path)


def test_difficulties_are_filtered_and_ids_travel_in_the_prompt(config: GRPOConfig) -> None:
    rows = load_question_prompts(config)
    assert [row["question_id"] for row in rows] == ["q1", "q3"]
    assert [question_id_of(row["prompt"]) for row in rows] == ["q1", "q3"]
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert "How many in q1?" in rows[0]["prompt"][1]["content"]
    assert (rows[0]["database_name"], rows[0]["difficulty"]) == ("shop", "easy")


def test_gold_never_enters_a_prompt(config: GRPOConfig) -> None:
    assert "SELECT" not in json.dumps(load_question_prompts(config)[0])


def test_nothing_left_names_the_file(config: GRPOConfig) -> None:
    with pytest.raises(
        QuestionLoadError, match=r"questions_eval\.json has no question of difficulty hard .*easy"
    ):
        load_question_prompts(config.override(difficulty_filter="hard"), "eval")
    assert [row["question_id"] for row in load_question_prompts(config, "eval")] == ["e1"]


def test_a_published_development_split_is_not_trained_on_without_a_flag(config: GRPOConfig) -> None:
    check_training_questions(["spider-train-0001", "my-spider-dev-1"], config)
    ids = ["spider-train-0001", "spider-dev-0002", "spider-dev-0003"]
    with pytest.raises(
        ConfigError, match=r"2 of the training questions .*spider-dev-0002.*--allow-dev-questions"
    ):
        check_training_questions(ids, config)
    check_training_questions(ids, config.override(allow_dev_questions="true"))
