"""The bank: loading, choosing, digests, and errors about an incomplete data directory."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from env_server.questions import QuestionBank
from shared.dataset import AnyQuestion
from shared.errors import DatabaseLoadError, QuestionLoadError, UnknownQuestion
from shared.models import ResetRequest


@pytest.fixture
def copy(tiny_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_data, tmp_path / "copy"))


def draw(bank: QuestionBank, **fields: Any) -> AnyQuestion:
    return bank.question_for(ResetRequest(**fields), "id")


def test_an_unknown_question_is_named(tiny_data):
    bank = QuestionBank.load(tiny_data)
    with pytest.raises(UnknownQuestion, match=r"nope.*GET /questions"):
        bank.get("nope")
    with pytest.raises(UnknownQuestion, match=r"'mars'.*eval, train.*GET /databases"):
        draw(bank, db_id="mars")
    with pytest.raises(UnknownQuestion):
        draw(bank, split="train", db_id="zoo")


def test_a_seed_picks_the_same_everywhere(tiny_data, copy):
    one, other = QuestionBank.load(tiny_data), QuestionBank.load(copy)
    for seed in (0, 1, -3, 2**70):
        picked = draw(one, difficulty=["easy", "hard"], seed=seed)
        assert picked == draw(other, difficulty=["hard", "easy"], seed=seed)
    # Pinned: a change would make servers of equal digests play different questions.
    picks = [draw(one, split="train", seed=seed).question_id for seed in range(6)]
    assert picks == ["shop-2", "shop-1", "shop-1", "shop-2", "shop-4", "shop-3"]


def change(path: Path, edit: Callable[[list[Any]], None]) -> None:
    rows = json.loads(path.read_text())
    edit(rows)
    path.write_text(json.dumps(rows))


def test_a_missing_or_broken_part_is_named(copy):
    zoo = copy / "databases" / "zoo" / "zoo.sqlite"
    content = zoo.read_bytes()
    zoo.write_bytes(b"nonsense" * 100)
    with pytest.raises(DatabaseLoadError, match=r"zoo\.sqlite is not a SQLite database"):
        QuestionBank.load(copy)
    zoo.unlink()
    with pytest.raises(DatabaseLoadError, match=r"no database at .*zoo\.sqlite"):
        QuestionBank.load(copy)
    zoo.write_bytes(content)
    eval_path = copy / "questions" / "questions_eval.json"
    change(eval_path, lambda rows: rows[0].update(question_id="zoo-1"))
    with pytest.raises(QuestionLoadError, match="'zoo-1'"):
        QuestionBank.load(copy)


def test_a_gold_of_the_wrong_type_is_named(copy):
    change(
        copy / "questions" / "questions_eval.json", lambda rows: rows[1].update(answer_type="table")
    )
    bank = QuestionBank.load(copy)
    with pytest.raises(QuestionLoadError, match="'zoo-1' is not a table"):
        bank.gold(bank.get("zoo-1"))
