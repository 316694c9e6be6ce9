"""`python -m data questions`: a database becomes a data directory with questions about it."""

import re
from pathlib import Path

import pytest

from data.audit import audit
from shared.dataset import Question, load_splits
from tests.data.introspection.test_column_kinds import filled
from tests.data.sources.importing import files_of, make_database, run

COUNTRIES = filled(
    "country",
    "id INTEGER PRIMARY KEY, name TEXT, continent TEXT, area REAL, founded INTEGER",
    "i, 'Land ' || char(64 + i), substr('AsiaPeruMali', 1 + 4 * (i % 3), 4), i * 12.5, 1800 + i",
)
CITIES = filled(
    "city",
    'id INTEGER PRIMARY KEY, country_id INTEGER REFERENCES country, "order" TEXT, name TEXT, '
    "people INTEGER, opened TEXT",
    "i, 1 + i % 9, substr('northsouthwest', 1 + 5 * (i % 3), 5), 'Town ' || i, 1000 * (i % 23), "
    "printf('20%02d-03-%02d', i % 20, 1 + i % 28)",
    60,
)
EMPLOYEES = filled(
    "employee",
    "id INTEGER PRIMARY KEY, name TEXT, team TEXT, age INTEGER",
    "i, 'E ' || i, substr('salesstock', 1 + 5 * (i % 2), 5), 20 + i",
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_database(tmp_path / "world.db", COUNTRIES + CITIES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def questions(directory: Path) -> list[Question]:
    return [one for split in load_splits(directory).values() for one in split]


def test_a_database_gives_clean_questions_to_train_and_measure_on(world):
    before = files_of(world)
    status, text = run("questions", "world.db", "--count", 100, "--out", world / "world-data")
    assert status == 0
    assert "make train DATA=world-data" in text
    splits = load_splits(world / "world-data")
    for one in splits["train"][:3]:
        assert f"  {one.question_text} {one.answer_text}\n" in text
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 80, "eval": 20}
    result = audit(world / "world-data")
    assert not result.findings  # no guessable, tied, constant or leaked one, and no note
    assert {name: files_of(world)[name] for name in before} == before
    made = questions(world / "world-data")
    assert {name for one in made for name in one.tables_involved} == {"city", "country"}
    assert any("JOIN" in one.gold_sql for one in made)
    assert any('"order"' in one.gold_sql for one in made)
    kinds = {one.answer_type for one in splits["train"]}
    assert kinds == {one.answer_type for one in splits["eval"]}  # one measures what one trains on
    texts = [one.question_text for one in made]
    assert not any(re.search("founded|first .*date", text) for text in texts)


@pytest.mark.parametrize(
    ("script", "never"),
    [
        (filled("maker", "id INTEGER PRIMARY KEY, name TEXT, maker TEXT, size INTEGER",
                "i, 'M ' || i, 'x' || i % 4, i"), r"\bmaker\b.*\bmakers?\b.*maker"),
        (filled("visit", "id INTEGER PRIMARY KEY, name TEXT, visited TEXT",
                "i, 'V ' || i, printf('2024-01-%02d 10:%02d:00', i % 28 + 1, i)"),
         r"\d\d:\d\d"),
        (filled("item", "id INTEGER PRIMARY KEY, name TEXT, weight REAL, size REAL",
                "i, 'Item ' || i, iif(i % 3, i * 2.5, 9e999), iif(i % 4, i * 1.5, -9e999)"),
         r"\b[Ii]nf"),
        (filled("shop", "id INTEGER PRIMARY KEY, name TEXT, price REAL",
                "i, 'S ' || i, i * 1.23456"),
         r"\d\.\d{3}|^(?!.*, rounded to 2 decimals).*(sum of|total price|[Aa]dd up)"),
        (filled("lives_in", "id INTEGER PRIMARY KEY, name TEXT, floor INTEGER",
                "i, 'L ' || i, i") + filled("flat", "id INTEGER PRIMARY KEY, name TEXT, size REAL",
                "i, 'F ' || i, i * 1.5"), "lives-in"),
        # an order has several rows: they are no orders
        (filled("orders", "order_id INTEGER, customer TEXT, price REAL, paid TEXT", "i / 3, "
                "'C ' || i % 7, i * 1.5, CASE WHEN i % 3 THEN NULL ELSE 'x' || i END"),
         r"orders(?! record)"),
        # a number that repeats, beside a key
        (filled("rooms", "room_id INTEGER PRIMARY KEY, room_number INTEGER, wing TEXT, price REAL",
                "i, i % 7, CASE WHEN i % 2 THEN 'south' ELSE 'north' END, i * 1.5"), "record"),
        # `projects of employees` could be those that they lead, or those that they work on
        (EMPLOYEES + filled("project", "id INTEGER PRIMARY KEY, title TEXT, lead_id REFERENCES "
                "employee", "i, 'P ' || i, 1 + i % 7"), r"^(?!.*\blead\b)(?=.*employee).*project"),
        (EMPLOYEES + filled("project", "id INTEGER PRIMARY KEY, title TEXT, employee_id REFERENCES "
                "employee", "i, 'P ' || i, 1 + i % 7") + filled("shift", "employee_id REFERENCES "
                "employee, project_id REFERENCES project", "i, 1 + i * 3 % 20"),
         "(?=.*employee).*project"),
    ],
)  # fmt: skip
def test_questions_are_worded_as_people_ask(world, script, never):
    make_database(world / "own.db", script)
    assert run("questions", "own.db", "--count", 60)[0] == 0
    texts = [one.question_text for one in questions(world / "own-data")]
    assert len(texts) >= 10
    assert not [text for text in texts if re.search(never, text)]


def test_a_question_for_a_date_has_no_time_in_its_answer(world):
    """`2024-01-02` would be judged wrong."""
    columns = "id INTEGER PRIMARY KEY, name TEXT, visited TEXT, end_time TEXT, born TEXT"
    time = "datetime('2024-01-01 10:00', i || ' hour')"
    script = filled("visitor", columns, f"i, 'V ' || i, {time}, {time}, date({time})", 40)
    make_database(world / "own.db", script)
    assert run("questions", "own.db", "--count", 120)[0] == 0
    made = questions(world / "own-data")
    timed = [one.question_text for one in made if ":" in one.answer_text]
    assert timed
    assert not [text for text in timed if "date" in text]
    assert [one for one in made if "born date" in one.question_text and "20" in one.answer_text]


def test_the_seed_decides(world):
    made = []
    for seed, out in ((1, "a"), (1, "b"), (2, "c")):
        assert run("questions", "world.db", "--count", 20, "--seed", seed, "--out", out)[0] == 0
        files = files_of(world / out)
        made.append({name: files[name] for name in files if name != "import_report.json"})
    assert made[0] == made[1] != made[2]


def test_a_small_database_says_how_many_questions_it_gives_and_why(world):
    make_database(
        world / "small.db",
        "CREATE TABLE pet (name TEXT, age INTEGER, photo BLOB);"
        "INSERT INTO pet VALUES ('Rex', 3, x'00'), ('Tom', 4, x'00'), ('Ida', 9, x'00');",
    )
    status, text = run("questions", "small.db")
    assert status == 0
    assert re.search(r"small: \d+ of 300 questions, as it has 1 table of .* 2 usable columns", text)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE empty (a INTEGER, b TEXT)",
        "CREATE TABLE one (a INTEGER); INSERT INTO one VALUES (1)",
        "CREATE TABLE nulls (a TEXT); INSERT INTO nulls VALUES (NULL), (NULL)",
    ],
)
def test_a_database_without_a_question_is_an_error(world, script):
    make_database(world / "none.db", script)
    status, text = run("questions", "none.db")
    assert status == 1
    assert "no questions can be made" in text
    assert not (world / "none-data").exists()


def test_several_databases_hold_out_whole_ones_and_name_the_unusable(world):
    folder = world / "several"
    folder.mkdir()
    for name in ("a", "b", "c"):
        make_database(folder / f"{name}.db", COUNTRIES + CITIES.replace("Town", name))
    (folder / "broken.db").write_bytes(b"SQLite format 3\0" + b"x" * 200)
    status, text = run("questions", folder, "--count", 20)
    assert status == 0
    assert "broken" in text
    splits = load_splits(world / "several-data")
    found = {split: {one.database_name for one in rows} for split, rows in splits.items()}
    assert len(found["train"]) == 2
    assert len(found["eval"]) == 1
    assert not found["train"] & found["eval"]
