"""DESCRIBE and SAMPLE with what is in columns, of tables of any width, and the explanations that an
episode has."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from env_server.describe import PART
from env_server.questions import QuestionBank
from env_server.sql import JobKind, SqlJob, SqlResult
from env_server.sql.limits import MAX_RESULT_BYTES
from env_server.sql.run import SqlRunner
from shared.models import EXPLANATIONS, Explanation
from tests.conftest import make_database
from tests.env_server.in_process import LocalEnvironment

WIDTH = 312


class Counting(SqlRunner):
    """Counts the jobs by their kind."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[str] = []

    def run(self, job: SqlJob) -> SqlResult:
        self.kinds.append(job.kind)
        return super().run(job)


@pytest.fixture(scope="module")
def wide(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> QuestionBank:
    """The shop with a table of 312 columns and one of 60 with long names."""
    data = Path(shutil.copytree(tiny_data, tmp_path_factory.mktemp("wide") / "data"))
    names = [f"pain_{n}" if n % 100 == 7 else f"q{n}" for n in range(1, WIDTH + 1)]
    long = [f'"{n:02} {"long name " * 12}"' for n in range(60)]
    make_database(
        data / "databases" / "shop" / "shop.sqlite",
        f"""CREATE TABLE survey ({", ".join(f"{name} INT" for name in names)});
        INSERT INTO survey VALUES ({", ".join(map(str, range(WIDTH)))});
        CREATE TABLE notes ({", ".join(long)});""",
    )
    return QuestionBank.load(data)


@pytest.fixture
def runner() -> Iterator[Counting]:
    with Counting() as runner:
        yield runner


def started(
    bank: QuestionBank, runner: SqlRunner, explain: list[Explanation] | None = None
) -> LocalEnvironment:
    env = LocalEnvironment(bank, runner, step_budget=30)
    env.reset(question_id="shop-1", explain=explain)
    return env


def test_a_view_that_takes_too_many_steps_to_count_has_its_columns(tiny_data, runner, tmp_path):
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)"
    make_database(
        data / "databases" / "shop" / "shop.sqlite",
        f"""CREATE TABLE numbers AS {numbers} SELECT i FROM n;
        CREATE VIEW pairs AS SELECT a.i AS one, b.i AS other FROM numbers AS a, numbers AS b;""",
    )
    env = started(QuestionBank.load(data), runner)
    for _ in range(2):
        shown = env.step("DESCRIBE: pairs").observation
        assert (shown.error, shown.result.split("\n")[0]) == (
            None,
            "pairs: too many rows to count; values are from 10000 of them",
        )
        assert "\nother BLOB: 1 to 6000; 6000 different" in shown.result
    assert env.step("SAMPLE: pairs").observation.result.startswith("one | other\n1 | 1\n")
    assert runner.kinds.count(JobKind.DESCRIBE) == 1


def shown(env: LocalEnvironment, action: str) -> str:
    observation = env.step(action).observation
    assert observation.error is None
    return observation.result


def test_describe_shows_what_is_in_columns(wide, runner):
    env = started(wide, runner)
    assert shown(env, "DESCRIBE: customers") == (
        "customers: 5 rows\n"
        "customer_id INTEGER primary key: 1, 2, 3, 4, 5\n"
        "name TEXT: 'Ann', 'Bob', 'Müller', 'Zoë'\n"
        "city TEXT: 'Oslo', 'Bergen', 'Tromsø'; 20 % NULL\n"
        "joined_on DATE: '2020-01-31', '2021-03-01', '2022-07-15', '2023-11-05'; 20 % NULL"
    )
    plain = started(wide, runner, [])
    assert shown(plain, "DESCRIBE: customers") == (
        "customers: 5 rows\ncustomer_id INTEGER primary key\nname TEXT\ncity TEXT\njoined_on DATE"
    )


def test_values_are_read_once_per_table_and_server(wide, runner):
    for _ in range(3):
        env = started(wide, runner)
        shown(env, "DESCRIBE: orders")
        shown(env, "DESCRIBE: Orders;")
    assert runner.kinds.count(JobKind.VALUES) <= 1
    assert runner.kinds.count(JobKind.DESCRIBE) <= 1


@pytest.mark.parametrize("explain", [None, []])
def test_every_column_of_a_wide_table_can_be_reached(wide, runner, explain):
    for table in ("survey", "notes"):
        env, seen, action = started(wide, runner, explain), list[str](), f"DESCRIBE: {table}"
        while action:
            text = shown(env, action)
            assert len(text.encode()) <= MAX_RESULT_BYTES
            lines = text.split("\n")
            seen += [line for line in lines[1:] if not line.startswith("(columns ")]
            action = lines[1].split('"')[1] if "from there on" in lines[1] else ""
        assert len(seen) == len(set(seen)) == (WIDTH if table == "survey" else 60)


def test_a_wide_table_is_shown_in_parts(wide, runner):
    env = started(wide, runner)
    first = shown(env, "DESCRIBE: survey").split("\n")
    rest = '"DESCRIBE: survey word" shows those with a word in their names)'
    assert first[:3] == [
        "survey: 1 rows",
        f'(columns 1 to {PART} of 312; "DESCRIBE: survey 41" shows those from there on, {rest}',
        "q1 INT: 0",
    ]
    last = shown(env, "DESCRIBE: survey 310").split("\n")
    named = [f"q{n} INT: {n - 1}" for n in (310, 311, 312)]
    assert last[1:] == [f"(columns 310 to 312 of 312; {rest}", *named]
    found = shown(env, 'DESCRIBE: survey "Pain"').split("\n")
    assert found[1:] == [
        f"(4 columns of 312; {rest}",
        *(f"pain_{n} INT: {n - 1}" for n in (7, 107, 207, 307)),
    ]
    reads = runner.kinds.count(JobKind.VALUES)
    shown(env, "DESCRIBE: survey pain_3")
    assert runner.kinds.count(JobKind.VALUES) == reads  # whatever words an agent chooses
    for action, problem in (
        ("DESCRIBE: survey 313", "survey has columns 1 to 312, not 313"),
        ("DESCRIBE: survey 0", "survey has columns 1 to 312, not 0"),
        ("DESCRIBE: survey zzz", "no column of survey has 'zzz' in its name"),
        ("SAMPLE: surveys 3", "no such table: surveys 3; the tables are "),
    ):
        assert (env.step(action).observation.error or "").startswith(problem)
    sampled = shown(env, "SAMPLE: survey").split("\n")
    assert sampled[0].split(" | ")[-1] == f"q{PART}"
    assert sampled[-1].startswith(f'(columns 1 to {PART} of 312; "SAMPLE: survey 41" shows')
    assert shown(env, "SAMPLE: survey pain").split("\n")[1] == "6 | 106 | 206 | 306"
    error = env.step("QUERY: SELECT * FROM survey").observation.error
    assert error == "too many columns in result set; name the columns you need, at most 200"


def test_a_remark_is_no_information_and_no_part_of_an_answer(wide, runner):
    env = started(wide, runner)
    query = "QUERY: SELECT name FROM customers WHERE city = '{}'"
    first = env.step(query.format("oslo"))
    assert first.observation.result == "name\n(no rows)\n(note: city has no 'oslo'; it has 'Oslo')"
    again = env.step(query.format("bergen"))
    assert "it has 'Bergen'" in again.observation.result
    assert "new_info" not in again.info.ledger.step  # the same result, with another remark
    plain = started(wide, runner, [])
    for sql in ("oslo", "bergen"):
        alike = plain.step(query.format(sql))
        assert alike.observation.result == "name\n(no rows)"
        rewards = first.info.ledger if sql == "oslo" else again.info.ledger
        assert alike.info.ledger == rewards


def test_each_explanation_is_a_choice(wide, runner):
    actions = {
        "values": ("DESCRIBE: products", "'lamp'"),
        "empty": ("QUERY: SELECT title FROM products WHERE title = 'LAMP'", "it has 'lamp'"),
        "errors": ("QUERY: SELECT titel FROM products", "did you mean title?"),
        "remarks": ('QUERY: SELECT "titel" FROM products', "was read as the text"),
    }
    assert [*actions] == [*EXPLANATIONS]
    for chosen in EXPLANATIONS:
        env = started(wide, runner, [chosen])
        for name, (action, words) in actions.items():
            observation = env.step(action).observation
            said = words in f"{observation.result}{observation.error or ''}"
            assert said == (name == chosen), (chosen, name)
