"""Open questions: hosted like any other, selected by id only, and not judged."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from env_server.app import create_app
from env_server.questions import QuestionBank
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql.run import SqlRunner
from shared.errors import DatabaseLoadError, InvalidRequest, QuestionLoadError, UnknownQuestion
from shared.models import Outcome, ResetRequest
from tests.conftest import SHOP, make_database, write_data
from tests.env_server.in_process import LocalEnvironment

ASKED = {"question_id": "open-1", "question_text": "What sells best?", "database_name": "shop"}


def write_open(root: Path, *rows: dict[str, Any]) -> Path:
    (root / "questions").mkdir(exist_ok=True)
    (root / "questions" / "open_questions.json").write_text(json.dumps(rows))
    return root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_database(tmp_path / "databases" / "shop" / "shop.sqlite", SHOP)
    return write_open(tmp_path, ASKED)


@pytest.fixture
def env(data: Path, runner: SqlRunner) -> LocalEnvironment:
    return LocalEnvironment(QuestionBank.load(data), runner)


def test_an_answer_ends_the_episode_and_only_the_operational_layer_pays(env):
    first = env.reset(question_id="open-1", step_budget=5)
    assert first.observation.question == "What sells best?"
    assert first.observation.schema_info == "Tables: customers, products, orders"
    described = env.step("DESCRIBE: products")
    assert described.info.ledger.step == {"exec_ok": 0.02, "new_info": 0.01, "step_cost": -0.02}
    queried = env.step("QUERY: SELECT title FROM products ORDER BY price DESC LIMIT 1")
    assert queried.observation.result == "title\ndesk"
    last = env.step("ANSWER: the mug")
    assert (last.done, last.info.outcome) == (True, Outcome.ANSWERED)
    assert last.info.ledger.step == {"exec_ok": 0.02, "step_cost": -0.02}
    for reply in (first, described, queried, last):
        ledger = reply.info.ledger
        assert (ledger.correctness, ledger.progress, ledger.potential) == (0.0, 0.0, 0.0)
        assert ledger.total == ledger.operational
    assert env.episode.effect.correct is None
    with pytest.raises(InvalidRequest, match="answer_form"):
        env.reset(question_id="open-1", answer_form="sql")


def test_only_its_id_selects_it(tmp_path):
    bank = QuestionBank.load(write_open(write_data(tmp_path), ASKED))
    assert bank.counts == {"eval": 4, "train": 6, "open": 1}
    requests = [ResetRequest(db_id="shop", seed=seed) for seed in range(200)]
    drawn = {bank.question_for(request, "id").question_id for request in requests}
    assert drawn == {f"shop-{n}" for n in range(1, 8)}
    with pytest.raises(UnknownQuestion):
        bank.question_for(ResetRequest(split="open"), "id")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ASKED, "gold_sql": "SELECT 1"}, "gold_sql"),  # would be ignored
        ({"question_id": "open-1"}, "question_text"),
        ({**ASKED, "database_name": "nowhere"}, r"nowhere\.sqlite"),
    ],
)
def test_a_broken_file_is_named(data, row, message):
    write_open(data, row)
    with pytest.raises(Exception, match=message):
        QuestionBank.load(data)


def test_over_http_it_is_rebuilt_and_not_judged(data):
    with TestClient(create_app(Settings(data_dir=data, sql_workers=1))) as client:
        actions = ["DESCRIBE: orders", "ANSWER: mug"]
        body = {"question_id": "open-1", "episode_id": "a", "actions": actions}
        assert client.post("/reset", json=body).json()["info"]["outcome"] == "answered"
        assert client.post("/reset", json={"db_id": "shop"}).status_code == 404
        assert client.get("/metadata").json()["questions"] == {"open": 1}


def test_data_behind_a_symbolic_link_are_served(data, runner, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "data"
    link.symlink_to(data)
    real = data / "databases" / "shop" / "shop.sqlite"
    real.symlink_to(real.rename(data / "elsewhere.sqlite"))
    bank = QuestionBank.load(link)
    env = LocalEnvironment(bank, runner)
    env.reset(question_id="open-1")
    assert env.step("QUERY: SELECT count(*) FROM orders").observation.result == "count(*)\n6"
    assert describe(bank, Settings(data_dir=link)).databases == 1


@pytest.mark.parametrize("name", ["../shop", "/etc", "a/b", "a\\b", "..", ".", "", "a\nb"])
def test_a_database_name_is_one_folders(data, name):
    path = data / "questions" / "open_questions.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([rows[0] | {"database_name": name}]))
    with pytest.raises(QuestionLoadError, match=r"database_name.* is no name of a folder"):
        QuestionBank.load(data)


@pytest.mark.parametrize("linked", ["shop.sqlite", "descriptions.json", "the folder"])
def test_a_link_that_leaves_the_data_directory_is_refused(data, tmp_path_factory, linked):
    outside = tmp_path_factory.mktemp("outside")
    folder = data / "databases" / "shop"
    (folder / "descriptions.json").write_text("{}")
    place = folder if linked == "the folder" else folder / linked
    place.symlink_to(place.rename(outside / "private"))
    with pytest.raises(DatabaseLoadError, match=f"outside {data}: copy the file"):
        QuestionBank.load(data)
    assert QuestionBank.load(data, follow_links=True).databases == ["shop"]
