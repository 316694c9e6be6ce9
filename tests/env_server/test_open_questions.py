"""Open questions: hosted like any other, selected by id only, and not judged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from env_server.app import create_app
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql.run import SqlRunner
from shared.dataset import data_digest, load_open_questions, load_splits
from shared.errors import Conflict, InvalidRequest, QuestionLoadError, UnknownQuestion
from shared.models import Outcome, StepResult
from tests.conftest import SHOP, make_database, write_data

ASKED = {"question_id": "open-1", "question_text": "What sells best?", "database_name": "shop"}


def write_open(root: Path, *rows: dict[str, Any]) -> Path:
    (root / "questions").mkdir(exist_ok=True)
    (root / "questions" / "open_questions.json").write_text(json.dumps(rows))
    return root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one database and one open question."""
    make_database(tmp_path / "databases" / "shop" / "shop.sqlite", SHOP)
    return write_open(tmp_path, ASKED)


@pytest.fixture
def env(data: Path) -> Iterator[SQLEnvironment]:
    with SqlRunner() as runner:
        yield SQLEnvironment(QuestionBank.load(data), runner)


def test_an_answer_ends_the_episode_and_only_the_operational_layer_pays(
    env: SQLEnvironment,
) -> None:
    first = env.reset(question_id="open-1", step_budget=5)
    assert first.observation.question == "What sells best?"
    assert first.observation.schema_info == "Tables: customers, products, orders"
    described = env.step("DESCRIBE: products")
    assert described.info.ledger.step == {"exec_ok": 0.02, "new_info": 0.01, "step_cost": -0.02}
    queried = env.step("QUERY: SELECT title FROM products ORDER BY price DESC LIMIT 1")
    assert queried.observation.result == "title\ndesk"
    last = env.step("ANSWER: the mug")
    assert (last.done, last.info.outcome) == (True, Outcome.ANSWERED)
    assert last.info.ledger.step == {
        "exec_ok": 0.02,
        "step_cost": -0.02,
    }  # an answer is never new_info
    for reply in (first, described, queried, last):
        ledger = reply.info.ledger
        assert (ledger.correctness, ledger.progress, ledger.potential) == (0.0, 0.0, 0.0)
        assert ledger.total == ledger.operational
    assert env.verdicts is None
    with pytest.raises(Conflict, match="answered"):
        env.step("ANSWER: again")


def test_budget_jail_and_cuts_apply(env: SQLEnvironment) -> None:
    env.reset(question_id="open-1", step_budget=4)
    assert env.step("QUERY: DELETE FROM orders").info.error_code == "sql_denied"
    assert env.step("QUERY: SELECT name FROM sqlite_master").info.error_code == "sql_denied"
    long = env.step(
        "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50) "
        "SELECT i FROM n"
    )
    assert long.observation.result.endswith("20\n(first 20 rows; there are more)")
    last = env.step("DESCRIBE: nowhere")
    assert (last.done, last.info.outcome) == (True, Outcome.BUDGET)


def test_only_its_id_selects_it(tmp_path: Path) -> None:
    bank = QuestionBank.load(write_open(write_data(tmp_path), ASKED))
    assert len(bank) == 11
    assert bank.counts == {"eval": 4, "train": 6, "open": 1}
    assert {bank.pick(db_id="shop", seed=seed).question_id for seed in range(200)} == {
        f"shop-{n}" for n in range(1, 8)
    }
    with pytest.raises(UnknownQuestion):
        bank.pick(split="open")
    with pytest.raises(UnknownQuestion, match=r"'open-1' is open"):
        bank.with_gold("open-1")
    assert bank.with_gold("shop-1").gold_answer == 5


def test_sql_answers_are_refused(env: SQLEnvironment) -> None:
    with pytest.raises(InvalidRequest, match="answer_form"):
        env.reset(question_id="open-1", answer_form="sql")


def test_questions_with_gold_are_unaffected(tiny_data: Path, tmp_path: Path) -> None:
    actions = ["DESCRIBE: customers", "QUERY: SELECT count(*) FROM customers", "ANSWER: 5"]

    def replies(data_dir: Path) -> list[StepResult]:
        with SqlRunner() as runner:
            env = SQLEnvironment(QuestionBank.load(data_dir), runner)
            return [env.reset(question_id="shop-1", episode_id="e"), *map(env.step, actions)]

    both = write_open(write_data(tmp_path), ASKED)
    assert [one.model_dump_json() for one in replies(both)] == [
        one.model_dump_json() for one in replies(tiny_data)
    ]


def test_the_data_digest_covers_it(tiny_data: Path, tmp_path: Path) -> None:
    both = write_data(tmp_path)
    assert data_digest(both) == data_digest(tiny_data)
    assert load_open_questions(both) == []
    write_open(both, ASKED)
    first = QuestionBank.load(both)
    assert first.data_digest != data_digest(tiny_data)
    write_open(both, {**ASKED, "question_text": "What sells worst?"})
    assert QuestionBank.load(both).data_digest != first.data_digest


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ASKED, "gold_sql": "SELECT 1"}, "gold_sql"),  # would be ignored
        ({"question_id": "open-1"}, "question_text"),
        ({**ASKED, "database_name": "nowhere"}, r"nowhere\.sqlite"),
    ],
)
def test_a_broken_file_is_named(data: Path, row: dict[str, Any], message: str) -> None:
    write_open(data, row)
    with pytest.raises(Exception, match=message):
        QuestionBank.load(data)


def test_ids_are_unique(tmp_path: Path) -> None:
    root = write_open(write_data(tmp_path), {**ASKED, "question_id": "shop-1"})
    with pytest.raises(QuestionLoadError, match="'shop-1'"):
        QuestionBank.load(root)
    assert set(load_splits(root)) == {"eval", "train"}


def test_over_http_it_is_rebuilt_repeated_and_reported(data: Path) -> None:
    with TestClient(create_app(Settings(data_dir=data, sql_workers=1))) as client:
        begun = client.post("/reset", json={"question_id": "open-1", "episode_id": "a"}).json()
        steps = ["DESCRIBE: orders", "ANSWER: mug"]
        replies = [
            client.post("/step", json={"episode_id": "a", "action": action, "step": number})
            for number, action in enumerate(steps)
        ]
        again = client.post("/step", json={"episode_id": "a", "action": steps[1], "step": 1})
        assert again.content == replies[1].content
        rebuilt = client.post(
            "/reset", json={"question_id": "open-1", "episode_id": "b", "actions": steps}
        ).json()
        assert rebuilt["observation"] == replies[1].json()["observation"]
        assert rebuilt["info"]["outcome"] == "answered"
        state = client.get("/state", params={"episode_id": "a"}).json()
        assert (state["question"], state["db_id"], state["outcome"]) == (
            "What sells best?",
            "shop",
            "answered",
        )
        assert client.get("/operator/verdicts/a").json()["verdicts"] is None
        assert client.get("/operator/verdicts").json()["forms"]["text"]["answered"] == 0
        assert 'outcome="answered"} 2.0' in client.get("/metrics").text
        refused = client.post("/reset", json={"db_id": "shop"})
        assert refused.status_code == 404
        assert "splits: none" in refused.json()["error"]["message"]
        assert begun["reward"] is None
        assert client.get("/metadata").json()["questions"] == {"open": 1}


def test_data_behind_a_symbolic_link_are_served(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("links") / "data"
    link.symlink_to(data)
    real = data / "databases" / "shop" / "shop.sqlite"
    real.symlink_to(real.rename(data / "elsewhere.sqlite"))
    with SqlRunner() as runner:
        bank = QuestionBank.load(link)
        env = SQLEnvironment(bank, runner)
        env.reset(question_id="open-1")
        assert env.step("QUERY: SELECT count(*) FROM orders").observation.result == "count(*)\n6"
        assert describe(bank, Settings(data_dir=link)).databases == 1
