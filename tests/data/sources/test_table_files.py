"""A folder of table files becomes a database, with types that hold every cell."""

from datetime import time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from data.sources.duck_tables import SAMPLE
from data.sources.text_and_sheets import _cell_text
from shared.dataset import database_path, load_splits
from tests.data.sources.importing import QUESTIONS, files_of, imported, query, refused, run_import

ITEMS = "id,name,price\n1,pen,9.5\n2,cup,9.5\n3,cap,1\n4,jug,12.0\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(home: Path, sql: str = "SELECT * FROM t") -> list[tuple[Any, ...]]:
    """Return rows of the database that shop/ became."""
    return query(database_path(home / "shop-data", "shop"), sql)


def test_a_folder_with_questions_can_be_trained_on(home):
    (home / "shop" / "item.csv").write_text(ITEMS)
    # beside the tables, and not one of them: it has the SQL
    rows = "\n".join(f'"{text}","{sql}"' for text, sql in QUESTIONS)
    (home / "shop" / "q.csv").write_text(f"question,sql\n{rows}\n")
    text = imported("csv", "shop", "--questions", "shop/q.csv")
    assert "make train DATA=shop-data" in text
    assert "id INTEGER, name TEXT, price REAL" in text
    assert set(load_splits(home / "shop-data")) == {"train", "eval"}
    assert table(home, "SELECT name FROM sqlite_master") == [("item",)]


def test_without_questions_the_database_is_written(home):
    (home / "shop" / "item.csv").write_text(ITEMS)
    text = imported("csv", "shop")
    assert "wrote 0 questions on 1 database" in text
    assert "python -m trainer play --db shop-data/databases/shop/shop.sqlite" in text
    made = "questions shop-data/databases/shop/shop.sqlite --out shop-data-questions"
    assert f"python -m data {made}" in text
    assert not (home / "shop-data" / "questions").exists()
    assert table(home, "SELECT sum(price), typeof(price) FROM item") == [(32.0, "real")]


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "-20", ""], "INTEGER", [1, -20, None]),
        (["1", "2.5", "-.5", "1e3"], "REAL", [1.0, 2.5, -0.5, 1000.0]),
        (["1", " 2", "NA", "null"], "INTEGER", [1, 2, None, None]),
        (["007", "12"], "TEXT", ["007", "12"]),  # a postal code
        (["1", "12345678901234567890"], "TEXT", ["1", "12345678901234567890"]),
        (["-9223372036854775808", "9223372036854775807"], "INTEGER", [-(2**63), 2**63 - 1]),
        (["12e4567", "1"], "TEXT", ["12e4567", "1"]),  # infinite as a number
        (["2024-01-31", ""], "TEXT", ["2024-01-31", None]),
        (["NA", "x"], "TEXT", ["NA", "x"]),
        (["", ""], "TEXT", [None, None]),
        (['"a\nb"', '"say ""hi"", now"'], "TEXT", ["a\nb", 'say "hi", now']),
    ],
)
def test_types_are_inferred(home, cells, kind, values):
    (home / "shop" / "t.csv").write_text("n,x\n" + "".join(f"0,{cell}\n" for cell in cells))
    imported("csv", "shop")
    assert [row[1] for row in table(home)] == values
    assert table(home, "PRAGMA table_info(t)")[1][2] == kind


@pytest.mark.parametrize(
    ("first", "last", "read"),
    [
        ("", "31.12.2024", "2024-12-31"),
        ("", "5 %", 5),
        ("no", "yes", 1),
        ("2024-01-05", "N/A", None),
        ("a", "5 %", "5 %"),
    ],
)
def test_rows_behind_the_first_ones_decide_too(home, first, last, read):
    (home / "shop" / "t.csv").write_text("n,x\n" + f"0,{first}\n" * SAMPLE + f"0,{last}\n")
    imported("csv", "shop")
    assert table(home, "SELECT x FROM t ORDER BY rowid DESC LIMIT 1") == [(read,)]


@pytest.mark.parametrize(
    ("text", "columns", "row"),
    [
        ("\ufeffid;Naïve name\n1;a,b\n", ["id", "Naïve_name"], (1, "a,b")),
        ("id\tname\r\n1\tx\r\n\r\n", ["id", "name"], (1, "x")),
        (",name\n0,x\n", ["column_1", "name"], (0, "x")),  # as pandas writes an index
        ("id\n1\n", ["id"], (1,)),
        ("id;name\r1;a,b\r", ["id", "name"], (1, "a,b")),
    ],
)
def test_forms_of_csv(home, text, columns, row):
    (home / "shop" / "t.csv").write_text(text, encoding="utf-8", newline="")
    imported("csv", "shop")
    assert [info[1] for info in table(home, "PRAGMA table_info(t)")] == columns
    assert table(home) == [row]


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8-sig", None),
        ("utf-16", None),  # as Excel writes "Unicode text", with a byte order mark
        ("cp1252", "note: t.csv is no UTF-8: it is read as cp1252"),
    ],
)
def test_encodings_are_told(home, encoding, said):
    content = '"id",name\n1,José €\n'.encode(encoding)
    (home / "shop" / "t.csv").write_bytes(content)
    text = imported("csv", "shop")
    assert said in text if said else "note:" not in text
    assert table(home, "SELECT id, name FROM t") == [(1, "José €")]


def test_rows_of_another_length_are_reported(home):
    (home / "shop" / "t.csv").write_text("id,name,n\n1,a,1\n2\n3,b,2,c\n\n4,c,3,,\n5,d,4, \n")
    text = refused("csv", "shop")
    assert "(line 4), left out: quote cells" in text
    assert "1 of 5 are too many: correct them, or pass --skip-bad-rows" in text
    text = imported("csv", "shop", "--skip-bad-rows")
    assert table(home) == [(1, "a", 1), (2, None, None), (4, "c", 3), (5, "d", 4)]
    assert "t.csv: 1 row of fewer cells than the header's 3 (line 3), the others are NULL" in text
    assert "problem: t.csv: 1 row of more cells than the header's 3 (line 4), left out" in text


def test_names_become_plain_and_distinct(home):
    """So that a query needs no quotes: models, and people, forget them."""
    header = "id,Name,name,name_2,Rent (EUR),Größe?,order,,%,a b,a_b"
    (home / "shop" / "2024 Stalls.csv").write_text(f"{header}\n1,a,b,c,d,e,f,g,h,i,j\n")
    text = imported("csv", "shop")
    sql = "SELECT id, Name, name_2, name_2_2, Rent_EUR, Größe, order_, column_8, column_9, "
    assert table(home, f"{sql} a_b_2, a_b FROM _2024_Stalls") == [(1, *"abcdefghij")]
    assert "note: 2024 Stalls.csv: its table is called _2024_Stalls" in text
    assert "2024 Stalls.csv: 'name' is called name_2, 'name_2' is called name_2_2, 'Rent" in text


def test_the_old_name_of_a_column_is_no_text(home):
    """SQLite reads a name in double quotes that no column has as a text."""
    (home / "shop" / "t.csv").write_text("id,Group\n1,a\n2,b\n")
    sql = """SELECT count(*) FROM t WHERE ""Group"" = 'a'"""
    asked = f'How many?,"{sql}"\nAll?,SELECT count(*) FROM t\nIds?,SELECT id FROM t\n'
    (home / "q.csv").write_text(f"question,sql\n{asked}")
    text = imported("csv", "shop", "--questions", "q.csv")
    assert 'no such column: "Group"' in text


def test_json_lines_and_parquet_are_tables_too(home):
    lines = (
        '{"id": 1, "name": "007", "price": 2.5, "sold": true, "tags": ["a", "b"]}',
        '{"id": 9007199254740993, "name": null, "price": 3, "on": "2024-01-31T10:00:00Z", '
        '"large": 18446744073709551616}',
    )
    (home / "shop" / "a.jsonl").write_text("\n".join(lines) + "\n")
    duckdb.sql(
        "SELECT 1::UTINYINT AS id, 'x' AS name, 2.50::DECIMAL(9, 2) AS price, true AS sold, "
        "DATE '2024-01-31' AS day, 'NaN'::DOUBLE AS nothing, '\\x00'::BLOB AS photo, "
        "18446744073709551615::UBIGINT AS large, 300::UBIGINT AS hits, "
        "9007199254740993::DECIMAL(38, 0) AS key"
    ).write_parquet(str(home / "shop" / "b.parquet"))
    text = imported("csv", "shop")
    assert table(home, "SELECT * FROM a") == [
        (1, "007", 2.5, 1, '["a","b"]', None, None),
        (2**53 + 1, None, 3.0, None, None, "2024-01-31T10:00:00Z", "18446744073709551616"),
    ]
    assert table(home, "SELECT * FROM b") == [
        (*(1, "x", 2.5, 1, "2024-01-31", None, b"\0", "18446744073709551615"), *(300, 2**53 + 1))
    ]
    assert "id INTEGER, name TEXT, price REAL, sold INTEGER, tags TEXT, on_ TEXT" in " ".join(
        text.replace("│", " ").split()
    )


def test_times_of_a_sheet_keep_milliseconds():
    for lap, text in (
        (time(0, 1, 23, 456_000), "00:01:23.456"),
        (time(9, 30), "09:30:00"),
        (timedelta(hours=26, microseconds=999_999), "26:00:01"),
    ):
        assert _cell_text(lap, timed=False) == text


def test_all_json_lines_decide_the_columns(home):
    lines = ['{"id": 1}'] * 30_000 + ['{"id": "last", "more": 1}']
    (home / "shop" / "a.ndjson").write_text("\n".join(lines))
    imported("csv", "shop")
    assert table(home, "SELECT * FROM a ORDER BY rowid DESC LIMIT 2") == [("last", 1), ("1", None)]


def test_all_files_problems_are_reported_at_once(home):
    (home / "shop" / "a.csv").write_text("")
    (home / "shop" / "b.csv").write_bytes(b"id\n\x81\n")
    (home / "shop" / "c.csv").write_text("id\n1\n")
    (home / "shop" / "d.jsonl").write_text('{"id": 1}\n{"id": \n')
    (home / "shop" / "e.parquet").write_text("no")
    text = refused("csv", "shop")
    for part in ("a.csv is empty", "b.csv is not UTF-8 (", "d.jsonl: ", "e.parquet: "):
        assert f"shop/{part}" in text
    assert "c.csv" not in text
    assert not (home / "shop-data").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "file at shop: name a folder that has some"),
        ({"t.csv": "id\n" + "\x01" * 99}, "shop/t.csv is no text: 99 of 102 characters are contr"),
        ({"my t.csv": "id\n1\n", "My_T.tsv": "id\n"}, "My_T.tsv and my t.csv would become one"),
        ({"t.json": '{"a": {"0": 1}, "b": {"0": "x"}}'}, "shop/t.json holds columns, not rows"),
        ({"t.json": '[["a", "b"], [1, 2]]'}, "shop/t.json holds no objects: write an array of"),
        ({"sqlite_t.csv": "id\n1\n"}, "shop/sqlite_t.csv: object name reserved"),
    ],
)
def test_bad_csv_is_one_error(home, files, message):
    for name, text in files.items():
        (home / "shop" / name).write_text(text)
    before = files_of(home)
    text = refused("csv", "shop")
    assert message in text
    assert files_of(home) == before
    assert [path.name for path in home.iterdir()] == ["shop"]


def test_a_link_out_of_the_folder_is_not_followed(home):
    (home / "private.csv").write_text("word\nsecret\n")
    (home / "shop" / "t.csv").symlink_to("../private.csv")
    text = refused("csv", "shop")
    assert "shop/t.csv is a link to " in text
    assert "outside shop: copy the file into its place" in text
    (home / "shop" / "t.csv").unlink()
    (home / "shop" / "t.csv").write_text(ITEMS)
    (home / "shop" / "u.csv").symlink_to("t.csv")
    (home / "named.csv").symlink_to("private.csv")
    assert run_import("csv", "shop")[0] == 0, "a link inside it is"
    assert run_import("csv", "named.csv")[0] == 0, "and one that the user names"


@pytest.mark.parametrize("out", [".", "item.csv", "item.csv/out"])
def test_a_csv_file_is_not_replaced(home, out, monkeypatch):
    (home / "shop" / "item.csv").write_text(ITEMS)
    monkeypatch.chdir(home / "shop")
    text = refused("csv", ".", "--out", out, "--force")
    assert "item.csv overlap: name another directory" in text
    assert files_of(home) == {"shop/item.csv": ITEMS.encode()}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_of_very_many_columns_is_refused_at_once(home, suffix):
    path, names = home / "shop" / f"wide.{suffix}", [f"c{n}" for n in range(501)]
    cells = ", ".join(f"{n} AS {name}" for n, name in enumerate(names))
    if suffix == "csv":
        path.write_text(f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
    elif suffix == "jsonl":
        path.write_text("{" + ", ".join(f'"{name}": 1' for name in names) + "}\n")
    else:
        duckdb.execute(f"COPY (SELECT {cells}) TO '{path}'")
    status, text = run_import("csv", "shop")
    assert status == 1
    assert "has 501 columns, more than 500: leave some out" in " ".join(text.split())


def test_a_small_file_of_large_cells_takes_bounded_memory(home, monkeypatch):
    path = home / "shop" / "large.parquet"
    rows = "SELECT repeat('a', 1000000) AS x FROM range(100)"
    duckdb.execute(f"COPY ({rows}) TO '{path}' (COMPRESSION zstd)")
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("data.sources.duck_tables.MEMORY", "50MB")
    status, text = run_import("csv", "shop")
    assert status == 1
    assert "large.parquet takes over 50MB of memory to read: split it" in " ".join(text.split())
