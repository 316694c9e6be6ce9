import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.dataset import load_questions
from tests.training.small_data import make_data
from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.evaluate import BATCH, EvalResult, choose, evaluate
from trainer.measure import batch_of, cache_rows
from trainer.questions import load_question_prompts, question_id_of
from trainer.records import Book


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return make_data(tmp_path)


@pytest.fixture
def book(data_dir: Path) -> Book:
    train, other = (load_questions(data_dir / "questions" / f"questions_{split}.json") for split in ("train", "eval"))
    return Book(train, other, REWARD_WEIGHTS)


@pytest.fixture
def prompts(data_dir: Path) -> list[dict[str, Any]]:
    return load_question_prompts(GRPOConfig().override(data_dir=data_dir), "eval")


def row(question_id: str, outcome: str) -> dict[str, Any]:
    """A rollout's row, as `play_episodes` gives it."""
    lost, right = outcome == "infra_failed", outcome == "correct"
    return {
        "question_id": question_id,
        "outcome": outcome,
        "correctness": None if lost else float(right),
        "progress": None if lost else 0.5,
        "operational": None if lost else -0.1,
        "steps": 2,
        "parse_failures": 1,
        "env_errors": ["sql_error"],
        "context_overflow": False,
        "transcript": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ANSWER: 1"}],
    }


def player(outcomes: Mapping[str, str], calls: list[int] | None = None) -> Any:
    def play(prompts: Sequence[Any]) -> list[dict[str, Any]]:
        if calls is not None:
            calls.append(len(prompts))
        ids = [question_id_of(prompt) for prompt in prompts]
        return [row(one, outcomes.get(one, "wrong")) for one in ids]

    return play


def test_success_is_counted_overall_and_by_what_training_saw(book: Book, prompts: list[dict[str, Any]]) -> None:
    outcomes = {
        "eval-shop-0": "correct",
        "eval-shop-1": "correct",
        "eval-farm-0": "correct",
        "eval-farm-1": "infra_failed",
    }
    result = evaluate(player(outcomes), prompts, book, mode="greedy")
    found = result.summary()
    assert (found["overall"]["n"], found["seen"]["n"], found["unseen"]["n"]) == (11, 8, 3)  # one of 12 was lost
    assert found["overall"]["rate"] == pytest.approx(3 / 11)
    assert found["seen"]["rate"] == pytest.approx(2 / 8)
    assert found["unseen"]["rate"] == pytest.approx(1 / 3)
    assert found["episodes_lost"] == 1
    assert found["outcomes"] == {"correct": 3, "infra_failed": 1, "wrong": 8}
    assert found["by_difficulty"]["easy"]["n"] + found["by_difficulty"]["medium"]["n"] == 11
    assert found["mean_reward"] == pytest.approx((3 * 1.0 + 11 * (0.15 * 0.5 - 0.1)) / 11)
    assert found["parse_failures"] == 12


def test_batches_are_bounded_and_heard_of(book: Book, prompts: list[dict[str, Any]]) -> None:
    calls: list[int] = []
    heard: list[int] = []
    evaluate(player({}, calls), prompts, book, mode="sampled", batch=5, on_batch=lambda batch: heard.append(len(batch)))
    assert calls == heard == [5, 5, 2]


def test_a_result_is_read_back_as_it_was(tmp_path: Path, book: Book, prompts: list[dict[str, Any]]) -> None:
    result = evaluate(player({"eval-shop-0": "correct"}), prompts, book, mode="sampled")
    result.write(tmp_path / "before.json")
    again = EvalResult.read(tmp_path / "before.json")
    assert again.episodes == result.episodes
    assert again.mode == "sampled"
    assert json.dumps(again.summary()["seen"]) == json.dumps(result.summary()["seen"])


def test_a_subset_measures_the_same_episodes(book: Book, prompts: list[dict[str, Any]]) -> None:
    result = evaluate(player({"eval-shop-0": "correct"}), prompts, book, mode="greedy")
    few = result.subset({"eval-shop-0", "eval-shop-1"})
    assert few.rate().as_dict()["n"] == 2
    assert few.rate().rate == 0.5


def test_choose_spreads_over_the_set() -> None:
    rows = [{"question_id": str(number)} for number in range(10)]
    assert [one["question_id"] for one in choose(rows, 5)] == ["0", "2", "4", "6", "8"]
    assert choose(rows, 0) == choose(rows, 10) == choose(rows, 99) == rows
    assert len(choose(rows, 7)) == len({one["question_id"] for one in choose(rows, 7)}) == 7


def test_as_many_episodes_at_once_as_their_caches_fit(model: Any) -> None:
    """The tiny model: 2 layers x 2 heads x 16 x (key, value) x 4 bytes is 512 bytes a token."""
    config = GRPOConfig(device="cpu", dtype="float32", max_context_tokens=1024)
    full = 512 * 1024
    assert cache_rows(model, config, 2 * 10 * full) == 10
    assert cache_rows(model, config, 2 * 10 * full - 1) == 9
    assert cache_rows(model, config, 0) == 1
    assert cache_rows(model, config, 10**12) == BATCH
    assert batch_of(model, config) >= 1


def test_difficulties_outside_the_filter_are_not_measured(prompts: list[dict[str, Any]]) -> None:
    assert {one["difficulty"] for one in prompts} == {"easy", "medium"}
