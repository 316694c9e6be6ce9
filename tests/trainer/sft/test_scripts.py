"""Scripts of demonstrations from gold queries, and the sources that name them."""

from pathlib import Path
from typing import Any

import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.dataset import Question, load_questions
from shared.models import Outcome
from tests.trainer.small_data import make_data
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.rollout.loop import play_scripted
from trainer.sft.scripts import Script, compared_tables, one_line, oracle_script
from trainer.sft.sources import balanced, check_source, training_questions


def question(**changes: Any) -> Question:
    values = {
        "question_id": "train-shop-0",
        "question_text": "Which buyers?",
        "database_name": "shop",
        "gold_sql": "SELECT a.name\nFROM orders AS a JOIN buyers b ON a.b = b.id\n"
        "WHERE b.town = 'New\nYork' ;",
        "gold_answer": ["Ann", "Bo"],
        "answer_type": "list",
        "difficulty": "easy",
        "tables_involved": ["orders", "buyers"],
    }
    return Question(**{**values, **changes})


def test_the_oracle_describes_all_tables_and_samples_those_compared_with_text() -> None:
    assert oracle_script(question()) == (
        "DESCRIBE: orders",
        "DESCRIBE: buyers",
        "SAMPLE: buyers",
        "QUERY: SELECT a.name FROM orders AS a JOIN buyers b ON a.b = b.id "
        "WHERE b.town = 'New\nYork'",
        'ANSWER: ["Ann", "Bo"]',
    )
    table = question(gold_answer=[["Ann", 3], ["Bo", None]])
    assert oracle_script(table)[-1] == 'ANSWER: [["Ann", 3], ["Bo", null]]'


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT COUNT(*) FROM t WHERE age > 3", []),
        ('SELECT COUNT(*) FROM t WHERE name = "x"', ["t"]),
        ("SELECT a FROM t WHERE name LIKE '%x%'", ["t"]),
        ("SELECT a FROM t WHERE name IN ('x', 'y')", ["t"]),
        ("SELECT T2.a FROM t AS T1 JOIN u AS T2 ON T1.i = T2.i WHERE T2.name = 'x'", ["u"]),
        ("SELECT a FROM t WHERE i IN (SELECT i FROM u WHERE name = 'x')", ["u"]),
        ("SELECT a FROM T WHERE name = 'x' EXCEPT SELECT a FROM u WHERE name = 'y'", ["t", "u"]),
        ("SELECT 'x' FROM t", []),
    ],
)
def test_tables_whose_text_is_compared(sql: str, tables: list[str]) -> None:
    assert compared_tables(sql, ["t", "u"]) == tables


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT  a\n FROM t WHERE b = 'x  ''\n y' ;\n", "SELECT a FROM t WHERE b = 'x  ''\n y'"),
        ("SELECT a -- it isn't b\nFROM t WHERE b = 'x  y'; -- all",
         "SELECT a FROM t WHERE b = 'x  y'"),
        ("/* a\n-- b */ SELECT a/**/FROM t", "SELECT a FROM t"),
        ("SELECT '--  a', \"/* b  */\" - -1\nFROM [--  t]",
         "SELECT '--  a', \"/* b  */\" - -1 FROM [--  t]"),
    ],
)  # fmt: skip
def test_a_query_is_put_on_one_line_without_comments_outside_its_quoted_text(
    sql: str, line: str
) -> None:
    assert one_line(sql) == line


def test_any_first_part_is_balanced_over_databases() -> None:
    scripts = [
        Script("oracle", f"{database}-{number}", database, ("ANSWER: 1",))
        for database, count in (("a", 50), ("b", 5), ("c", 20))
        for number in range(count)
    ]
    order = balanced(scripts, seed=0)
    assert sorted(map(str, order)) == sorted(map(str, scripts))
    assert sorted(one.database for one in order[:9]) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert order == balanced(scripts[::-1], seed=0) != balanced(scripts, seed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gold", "no source of demonstrations 'gold': use oracle, run:DIR"),
        ("oracle:DIR", "no source of demonstrations 'oracle:DIR'"),
        ("run", "no source of demonstrations 'run'"),
        ("run:/missing", "has no episodes.jsonl: name the folder of a run"),
    ],
)
def test_bad_sources_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_source(text)


def test_questions_of_a_development_split_are_not_taught(tmp_path: Path) -> None:
    config = GRPOConfig().override(data_dir=make_data(tmp_path / "data"))
    path = Path(config.questions_path)
    path.write_text(path.read_text().replace("train-shop-0", "spider-dev-0"))
    with pytest.raises(ConfigError, match="published development split"):
        training_questions(config)


def test_the_oracle_answers_the_shipped_questions() -> None:
    data_dir, config = Path("data"), GRPOConfig.preset("offline")
    questions = load_questions(data_dir / "questions" / "questions_train.json")[::8]
    scripts = {one.question_id: oracle_script(one) for one in questions}
    with in_process(create_app(Settings(data_dir=data_dir, sql_workers=1))).sync() as client:
        rows = play_scripted(scripts, None, config, client)
    assert sum(row.outcome == Outcome.CORRECT for row in rows) >= 0.95 * len(rows)
