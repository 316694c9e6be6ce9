"""A user's own SQLite databases and question files become a data directory.

A database is copied in its last committed state, whoever uses it, and never touched.
"""

import csv
import itertools
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import apsw
import pytest

from data.audit import audit
from data.sources import sqlite_files
from data.sources.questions import bare_sql
from data.sources.sqlite_files import copy_database
from shared.dataset import Question, database_path, load_open_questions, load_splits
from shared.errors import DatabaseLoadError
from tests.conftest import question_row
from tests.data.sources.importing import (
    QUESTIONS,
    files_of,
    imported,
    make_database,
    refused,
    run,
    run_import,
    write_questions,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    make_database(folder / "shop.db")
    write_questions(folder / "q.jsonl")
    monkeypatch.chdir(folder)
    return folder


def by_id(data_dir: Path) -> dict[str, Question]:
    return {one.question_id: one for split in load_splits(data_dir).values() for one in split}


def test_question_and_sql_are_enough(home):
    before = files_of(home)
    text = imported("sqlite", "shop.db", "--questions", "q.jsonl")
    assert "make train DATA=shop-data" in text
    splits = load_splits(home / "shop-data")
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 5, "eval": 1}
    found = by_id(home / "shop-data")["q-0002"]  # line 2
    asked = ("What does the cap cost?", "SELECT price FROM item WHERE name = 'cap'")
    assert found == Question(**question_row("q-0002", "shop", *asked, 1.0, "float", "easy", "item"))
    assert not audit(home / "shop-data").errors
    assert {name: files_of(home)[name] for name in before} == before


@pytest.mark.parametrize(
    ("name", "text_key", "sql_key", "more"),
    [
        ("q.json", "question", "query", {"db_id": "shop_1"}),
        ("q.json", "question_text", "gold_sql", {"database_name": "shop"}),
        ("q.csv", "Question", "Query", {"DB_ID": "other"}),
        ("q.tsv", "question", "sql", {}),
        # as Spider's own files: the query, and its parsed form as `sql`
        ("q.json", "question", "query", {"sql": {"select": []}}),
    ],
)
def test_natural_files_just_work(home, name, text_key, sql_key, more):
    rows = [{text_key: text, sql_key: sql, **more} for text, sql in QUESTIONS]
    path = home / name
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if name == "q.tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
    imported("sqlite", "shop.db", "--questions", name, "--out", "out")
    assert sorted(one.gold_sql for one in by_id(home / "out").values()) == sorted(
        sql.rstrip(";") for _, sql in QUESTIONS
    )


@pytest.mark.parametrize("name", ["q.zip", "q.json"])
def test_rows_that_are_counted_from_the_start_again_have_different_ids(home, name):
    parts = [json.dumps([{"question": text, "sql": sql}]) for text, sql in QUESTIONS]
    if name == "q.json":
        (home / name).write_text("\n".join(parts))
    else:
        with zipfile.ZipFile(home / name, "w") as archive:
            for at, part in enumerate(parts):
                archive.writestr(f"{at}.json", part)
    imported("sqlite", "shop.db", "--questions", name, "--out", "out")
    assert sorted(by_id(home / "out")) == [f"q-{at:04}" for at in range(len(QUESTIONS))]


@pytest.mark.parametrize(
    ("sql", "bare"),
    [
        ("-- items; all\nSELECT 1", "SELECT 1"),
        ("/* x\n */ -- y\n SELECT 1 ;;\n", "SELECT 1"),
        ("SELECT 1; /* not closed", "SELECT 1"),
        ("SELECT 'it''s; /*'", "SELECT 'it''s; /*'"),
        ("-- nothing", ""),
    ],
)
def test_comments_around_a_gold_are_left_out(sql, bare):
    assert bare_sql(sql) == bare


def test_the_user_names_the_eval_questions(home):
    (home / "more").mkdir()
    write_questions(home / "more" / "q.jsonl", QUESTIONS[:2])
    write_questions(home / "q.jsonl", QUESTIONS[2:])
    args = ("--questions", "q.jsonl", "--eval-questions", "more/q.jsonl", "--out", "out")
    imported("sqlite", "shop.db", *args)
    splits = load_splits(home / "out")
    assert [one.question_id for one in splits["eval"]] == ["q-eval-0001", "q-eval-0002"]
    assert len(splits["train"]) == 4


def test_of_several_databases_whole_ones_are_held_out(home):
    rows = []
    for name in ("a", "b", "c", "d", "e"):
        make_database(home / "all" / name / f"{name}.sqlite")
        rows += [{"question": t, "query": s, "db_id": name} for t, s in QUESTIONS]
    make_database(home / "all" / "unasked.sqlite")
    (home / "q.json").write_text(json.dumps(rows))
    imported("sqlite", "all", "--questions", "q.json", "--out", "out")
    splits = load_splits(home / "out")
    held_out = {one.database_name for one in splits["eval"]}
    assert len(held_out) == 1
    assert not held_out & {one.database_name for one in splits["train"]}
    assert not database_path(home / "out", "unasked").exists()


def test_a_folder_that_holds_its_own_import_is_imported_again(home):
    (home / "folder.db").mkdir()
    for _ in range(2):
        imported("sqlite", ".", "--questions", "q.jsonl", "--out", "home-data")
    assert {one.database_name for one in by_id(home / "home-data").values()} == {"shop"}


@pytest.mark.parametrize("option", ["--questions", "--eval-questions"])
def test_a_question_file_in_the_output_is_not_replaced(home, option):
    imported("sqlite", "shop.db", "--questions", "q.jsonl", "--out", "out")
    write_questions(home / "out" / "mine.jsonl")
    before = files_of(home)
    args = (option, "out/mine.jsonl", "--out", "out", "--force")
    text = refused("sqlite", "shop.db", *args)
    assert "mine.jsonl overlap: name another directory" in text
    assert files_of(home) == before


def test_lines_without_sql_become_open_questions(home):
    (home / "mine.txt").write_text("How many items are there?\n\n  Which\u00a0one is dear? \n")
    asked = ("--questions", "mine.txt")
    text = imported("sqlite", "shop.db", *asked, "--eval-questions", "q.jsonl")
    assert "improve --labels agreement --data shop-data" in text
    found = [(one.question_id, one.question_text) for one in load_open_questions(Path("shop-data"))]
    assert found == [
        ("mine-0001", "How many items are there?"),
        ("mine-0003", "Which one is dear?"),
    ]
    assert {name: len(rows) for name, rows in load_splits(Path("shop-data")).items()} == {"eval": 6}
    make_database(home / "other.db")
    for words, message in (
        (("shop.db", "other.db", *asked), "mine.txt names no databases: import one"),
        (("shop.db", "--eval-questions", "mine.txt"), "mine.txt has no SQL"),
    ):
        status, text = run_import("sqlite", *words, "--out", "other")
        assert (status, message in text, Path("other").exists()) == (1, True, False)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "q.txt", "q.txt holds no question: write one per line"),
        ("question,sql\na,b\n", "q.txt", "JSON or CSV with SQL needs another suffix"),
        ('[{"question": "?"}]', "q.txt", "q.txt line 1 is no question"),
        (None, "q.txt", "cannot read q.txt"),
        ("question;answer\na;b\n", "q.csv", "q.csv line 2: no text in 'query' (or sql, "),
        ("", "q.csv", "q.csv holds no question"),
        ('{"question": "x"', "q.jsonl", "q.jsonl is not JSON: line 1: "),
        ('"a"', "q.json", "q.json line 1: not an object but str"),
        ("question,sql\n\udc81,SELECT 1\n", "q.csv", "q.csv is not UTF-8 ("),
        ('{"question": "?", "sql": "SELECT nope FROM item"}', "q.jsonl", "no such column: nope"),
        ("[1, 2]", "q.json", "q.json row 0: not an object but int"),
        (None, "q.jsonl", "q.jsonl is missing"),
    ],
)  # fmt: skip
def test_bad_question_files_are_one_error(home, content, name, message):
    (home / "q.jsonl").unlink()
    if content is not None:
        (home / name).write_text(content, errors="surrogateescape")
    before = files_of(home)
    status, text = run_import("sqlite", "shop.db", "--questions", name, "--out", "new/out")
    assert status == 1
    assert message in text
    assert not (home / "new").exists()
    assert files_of(home) == before
    assert not any("partial" in path.name for path in home.iterdir())


def test_bad_databases_are_one_error(home):
    (home / "text.db").write_text("id,name\n")
    (home / "empty.db").touch()
    (home / "torn.db").write_bytes((home / "shop.db").read_bytes()[:5000])
    (home / "folder").mkdir()
    (home / "links").mkdir()
    (home / "links" / "x.db").symlink_to("../shop.db")
    for name, message in {
        "text.db": "text.db is not a SQLite database: for CSV use 'import csv'",
        "empty.db": "empty.db has no table",
        "torn.db": "torn.db is ",
        "absent.db": "no database at absent.db",
        "folder": "no SQLite file (.sqlite, .sqlite3, .db, .db3, or a dump: .sql) below folder",
        "links": "outside links: copy the file into its place",
    }.items():
        text = refused("sqlite", name, "--questions", "q.jsonl", "--out", "out")
        assert message in text
        assert "partial" not in text
        assert not (home / "out").exists()


def test_questions_on_other_databases_are_named(home):
    make_database(home / "zoo.db")
    rows = [{"question": t, "sql": s, "db_id": "shop"} for t, s in QUESTIONS]
    rows += [{"question": "?", "sql": "SELECT 1", "db_id": "moon"}, {"question": "?", "sql": "S"}]
    make_database(home / "moon")  # not among those that are named
    (home / "empty.db").touch()
    rows += [{"question": "?", "sql": "SELECT 1", "db_id": "empty"}]
    (home / "q.json").write_text(json.dumps(rows))
    args = ("--questions", "q.json", "--out", "out")
    text = imported("sqlite", "shop.db", "zoo.db", "empty.db", *args)
    assert "no database 'moon' among those to import; needed by 1 question" in text
    assert "problem: empty.db has no table; needed by 1 question" in text
    assert "q.json row 7: no text in 'db_id'" in text
    assert [path.name for path in (home / "out" / "databases").iterdir()] == ["shop"]


def test_the_pages_example_works(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "own-data.md").read_text(encoding="utf-8")
    script = page.partition("```bash\n")[2].partition("```")[0]
    files = script.partition("python -m")[0]
    commands = [line.split() for line in script.splitlines() if line.startswith("python -m data")]
    subprocess.run(["bash", "-e", "-c", files], check=True, cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    for _python, _m, _data, *words in commands:
        status, text = run(*words)
        assert status == 0, text
    splits = load_splits(tmp_path / "shop-data")
    assert {name: len(found) for name, found in splits.items()} == {"train": 8, "eval": 2}
    assert "8 to train on and 2 to measure on" in page
    assert "make train DATA=shop-data" in script


def count(path: Path) -> int:
    """Return the number of items, as a server reads them: without looking at a -wal."""
    connection = apsw.Connection(
        f"file:{path}?mode=ro&immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    found = next(connection.execute("SELECT count(*) FROM item"))[0]
    connection.close()
    return int(found)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return make_database(tmp_path / "own" / "shop.db")


def copied(shop: Path) -> Path:
    """Return a copy of the database, made without any change beside it."""
    before = files_of(shop.parent)
    target = shop.parents[1] / "copy" / "shop.sqlite"
    copy_database(shop, target)
    assert files_of(shop.parent) == before
    assert [path.name for path in target.parent.iterdir()] == ["shop.sqlite"]
    return target


def test_rows_that_are_only_in_the_wal_are_copied(shop):
    writer = apsw.Connection(str(shop))
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("INSERT INTO item VALUES (5, 'mug', 3)")
    writer.execute("BEGIN; INSERT INTO item VALUES (6, 'pot', 3)")  # not committed
    assert count(copied(shop)) == 5
    (link := shop.parents[1] / "link.db").symlink_to(shop)
    copy_database(link, target := shop.parents[1] / "linked.sqlite")
    assert count(target) == 5
    writer.close()


def test_a_locked_database_is_copied_as_committed(shop):
    writer = apsw.Connection(str(shop))
    writer.execute("PRAGMA cache_size = 1; BEGIN EXCLUSIVE")
    rows = ((n, "x" * 500, 1) for n in range(10, 500))  # spilled into the file before the commit
    writer.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)
    assert Path(f"{shop}-journal").exists()
    assert count(copied(shop)) == 4
    writer.execute("COMMIT")
    assert count(copied(shop)) == 494
    writer.close()


def test_rows_that_are_changed_before_a_commit_are_copied_as_they_were(shop):
    writer = apsw.Connection(str(shop))
    rows = ((n, "x" * 500, 1) for n in range(10, 500))
    writer.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)
    writer.execute("PRAGMA cache_size = 1; BEGIN EXCLUSIVE; UPDATE item SET name = 'new'")
    assert b"new" in shop.read_bytes(), "spilled"
    assert b"new" not in copied(shop).read_bytes()
    writer.close()


def test_a_file_without_a_journal_keeps_its_bytes(shop):
    os.chmod(shop, 0o444)
    os.chmod(shop.parent, 0o555)
    assert copied(shop).read_bytes() == shop.read_bytes()
    os.chmod(shop.parent, 0o755)


def test_a_file_that_never_rests_is_an_error(shop, monkeypatch):
    copy, times = shutil.copyfile, itertools.count(1)

    def copyfile(source: str, target: str) -> None:
        copy(source, target)
        os.utime(shop, ns=(0, next(times)))  # written to meanwhile

    monkeypatch.setattr(sqlite_files, "WAIT_S", 0)
    monkeypatch.setattr(shutil, "copyfile", copyfile)
    with pytest.raises(DatabaseLoadError, match=r"shop\.db is being written to: .*\.backup"):
        copy_database(shop, shop.parents[1] / "copy.sqlite")


def test_a_users_notes_survive_an_import_and_other_data_are_not_replaced(home):
    asked = ("sqlite", "shop.db", "--questions", "q.jsonl", "--out", "out")
    imported(*asked)
    notes = home / "out" / "databases" / "shop" / "shop.notes.toml"
    notes.write_text("[tables]\n")
    for more in ([], ["--force"]):
        imported(*asked, *more)
        assert notes.read_text() == "[tables]\n"
    code, said = run("questions", "shop.db", "--out", "out")
    assert code == 1
    assert "holds data of another kind (sqlite)" in " ".join(said.split())
