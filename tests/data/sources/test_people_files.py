"""Files as people have them: each is read as a person reads it, or named with what to do."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from shared.dataset import database_path, load_splits
from tests.data.sources.importing import run_import, write_questions

FILES = Path(__file__).parent / "files"
DAYS = ["2024-12-31", "2025-01-02", "2024-06-15"]
# file -> its table's columns and rows, and what is said
TABLES: dict[str, tuple[list[tuple[Any, ...]], str]] = {
    "01-sep-line/in/stock.csv": ([("bolt", 40, 1.25), ("nut", 15, 0.4), ("washer", 9, 0.05)], ""),
    "01-sep-line/in/stock2.csv": ([("bolt", 40), ("nut", 15)], ""),
    "01-sep-line/in/stock3.csv": ([(1, 2, 3), (4, 5, 6)], ""),
    "02-title-rows/in/blank.csv": ([("Almdorf", 120), ("Birkau", 80)], ""),
    "02-title-rows/in/comment.csv": ([("Almdorf", 120)], "left out above the header: '# exported"),
    "02-title-rows/in/title_only.csv": (
        [("Almdorf", "Jan", 120), ("Birkau", "Jan", 80), ("Celm", "Feb", 95)],
        "left out above the header: 'Report of the office'",
    ),
    "02-title-rows/in/totals.csv": (
        [("Almdorf", 120), ("Birkau", 80)],
        "a last row of totals is left out: Total, 200",
    ),
    "02-title-rows/in/visits.csv": (
        [("Almdorf", "Jan", 120, 340.5), ("Birkau", "Jan", 80, 210.0), ("Celm", "Feb", 95, 188.25)],
        "a last row of totals is left out: Total, 295, 738.75",
    ),
    "04-delimiter/in/a.csv": ([("Elm; north", 12, "tree"), ("Oak; south", 15, "tree")], ""),
    "04-delimiter/in/b.csv": ([(1, "['a', 'b', 'c']", 3.5), (2, "['d']", 4.25)], ""),
    "04-delimiter/in/c.csv": ([(1, 2, 3), (4, 5, 6)], "is called Field_one"),
    "04-delimiter/in/caret.csv": ([(1, 2, 3)], ""),
    "04-delimiter/in/d.csv": ([(1, "Muster, Eva, Dr.", "Almdorf"), (2, "Probe, Jan", "Celm")], ""),
    "04-delimiter/in/e.csv": ([(1,), (2,)], ""),
    "04-delimiter/in/pipe.csv": ([(1, "x,y", 2)], ""),
    "04-delimiter/in/tilde.txt": ([(1, 2)], ""),
    "06-compressed/in/a.csv.gz": ([(1, 2)], ""),
    "06-compressed/inzip/data.zip": ([(1, 2)], ""),
    "06-compressed/inxlsx/book.xlsx": ([(1, 2)], ""),  # an archive of CSV with another's name
    "07-dates/in/iso.csv": (
        [(1, "2024-12-31T23:30:00Z"), (2, "2025-01-01T00:10:00+02:00"), (3, "2025-01-01 00:00:00")],
        "iso.at stays text: 2 of 3 cells are dates in one spelling, and not '2025-01-01 00:00:00'",
    ),
    "07-dates/in/serial.csv": (
        [(at, day) for at, day in enumerate(DAYS, 1)],
        "serial.day is read as dates: its numbers are Excel's days",
    ),
    "07-dates/in/us.csv": (
        [(1, DAYS[0], "15:05"), (2, DAYS[1], "11:00"), (3, DAYS[2], "09:30")],
        "",
    ),
    "07-dates/in/visit.csv": (
        [
            (1, DAYS[0], "Almdorf"),
            (2, DAYS[1], "Birkau"),
            (3, DAYS[2], "Celm"),
            (4, "2025-03-09", "Dorn"),
        ],
        "visit.day is read as dates",
    ),
    "08-booleans/in/b.csv": ([(1, 1, 1, 1), (2, 0, 0, 0), (3, 1, 1, 1), (4, 1, 0, 0)], ""),
    "08-booleans/in/b.jsonl": ([(1, 1), (2, 0), (3, None)], ""),
    "09-backslash/in/inch.csv": (
        [(1, '5" pipe', 3), (2, '3" hose', 4), (3, '"7" tube', 5), (4, '2" x 4" board', 6)],
        "1 row with a cell that starts with a quote and doesn't end with one (line 4)",
    ),
    "09-backslash/in/inner_quotes.csv": (
        [(1, '7" tube', 5), (2, "nut", 6), (3, 'say "hi" now', 7), (4, "last", 8)],
        "(lines 2, 4), the quote is text",
    ),
    "09-backslash/in/m.csv": (
        [
            (1, 'Foo "Bar" Co', "ok"),
            (2, "plain", None),
            (3, "a, b", "fine"),
            (4, 'He said "x, y" twice', "z"),
        ],
        "",
    ),
    "09-backslash/in/n.csv": ([(1, None), (2, 5), (3, 7)], r"n.score has NULL for '\\N'"),
    "09-backslash/in/open.csv": (
        [(1, "ok"), (2, '"She said'), (3, "fine"), (4, "last")],
        "(line 3), the quote is text",
    ),
    "09-backslash/in/tab.tsv": (
        [
            (1, r"line\nbreak"),
            (2, '"quoted" start'),
            (3, '5" pipe'),
            (4, '"open quote'),
            (5, "last"),
        ],
        "(lines 3, 5), the quote is text",
    ),
    "25-parquet-jsonl/in/dup.jsonl": ([(1, 2), (3, 4)], ""),
    "25-parquet-jsonl/in/pretty.jsonl": ([(1,), (2,)], ""),
    "25-parquet-jsonl/in/arr.jsonl": ([(1,), (2,)], ""),
    "25-parquet-jsonl/in/dates.jsonl": (
        [("2024-12-31 23:30:00", "2024-12-31", "0012"), ("2024-12-31 22:00:00", "2025-01-01", "7")],
        "",
    ),
    "sheets/calc.ods": ([(1, "x"), (2, "y")], ""),
}
# content -> rows, and what is said
FORMS: dict[str, tuple[str | bytes, list[tuple[Any, ...]], str]] = {
    "units": (
        "Town,Mass,Height\n,kg,m\nA,5,1.5\nB,6,2.5\n",
        [("A", 5, 1.5), ("B", 6, 2.5)],
        "1 row of units (line 2), left out: kg, m",
    ),
    "the header again": (
        "a,b\n1,x\na,b\n3,z\n", [(1, "x"), (3, "z")], "1 row like the header (line 3)"
    ),
    "no header": ("1,Ann,2.5\n2,Bob,3.5\n", [(1, "Ann", 2.5), (2, "Bob", 3.5)], "line 1 is a row"),
    "years as names": ("Town,2023,2024\nA,1,2\nB,3,4\n", [("A", 1, 2), ("B", 3, 4)], ""),
    "line breaks": (
        b'id,n\r\n1,a\n2,b\r3,c\r\n4,"x\ny"\r\n',
        [(1, "a"), (2, "b"), (3, "c"), (4, "x\ny")],
        "",
    ),
    "controls": ("id,n\n1,a\0b\n2,c\n\x1a", [(1, "ab"), (2, "c")], "1 control character left out"),
    "empty columns": ("a,,b,\n1,,2,\n,,,\n5,,6,\n", [(1, 2), (5, 6)], ""),
    "keys and values above": (
        "By,Ann\nDate,2026-01-01\n\nTown,Month,Visits\nA,Jan,5\nB,Feb,6\n",
        [("A", "Jan", 5), ("B", "Feb", 6)],
        "left out above the header: 'By Ann / Date 2026-01-01'",
    ),
    "a footnote": (
        "Town,Month,Visits\nA,Jan,5\nB,Feb,6\n\nSource: the office\n",
        [("A", "Jan", 5), ("B", "Feb", 6)],
        "1 row below the table (line 5), left out: 'Source: the office'",
    ),
    "a total and a source, as wide as the table": (
        "Town;Visits;\nA;1.200,5;\nB;6,0;\n;;\nTotal;1.206,5;\nSource: the office;;\n",
        [("A", 1200.5), ("B", 6.0)],
        "1 row below the table (line 6), left out: 'Source: the office'",
    ),
    "decimal commas decide the points": (
        "a;b;c\n2.649;405,02;x\n1.070;118,6;y\n804;58,0;z\n",
        [(2649, 405.02, "x"), (1070, 118.6, "y"), (804, 58.0, "z")],
        "t.a is read as numbers: '2.649' is 2649",
    ),
    "decimal points decide the commas": (
        'a,b\n"2,649",405.02\n804,118.6\n', [(2649, 405.02), (804, 118.6)], "is 2649"
    ),
    "points that nothing decides": ("a\n2.649\n804\n", [(2.649,), (804.0,)], "'2.649' is 2.649"),
    "two colons": ("a::b::c\n1::x y::2\n3::z: w::4\n", [(1, "x y", 2), (3, "z: w", 4)], ""),
    "colons": ("id:v:name\n1:2:x\n3:4:y\n", [(1, 2, "x"), (3, 4, "y")], ""),
    "times of one column": ("09:30\n10:15\n11:00\n", [("09:30",), ("10:15",), ("11:00",)], ""),
    "no total": (
        "Town,Visits\nA,5\nB,6\nTotal,90\n",
        [("A", 5), ("B", 6), ("Total", 90)],
        "the last row may be one of totals: Total, 90",
    ),
    "a cell over lines": (
        'id,addr,n\n1,"Main st, 5\nTown, X\nLand",1\n2,b,2\n',
        [(1, "Main st, 5\nTown, X\nLand", 1), (2, "b", 2)],
        "",
    ),
    "rows behind an open quote": (
        'id,note,n\n1,ok,1\n2,"She said,2\n3,fine,3\n4,x,4\n5,y",5\n',
        [(1, "ok", 1), (2, '"She said', 2), (3, "fine", 3), (4, "x", 4), (5, 'y"', 5)],
        "(line 3), the quote is text",
    ),
    "one column of prose": ("name\nSmith, J\nMiller, K\n", [("Smith, J",), ("Miller, K",)], ""),
    "single quotes": ("id;name\n1;'a; b'\n2;'c'\n", [(1, "a; b"), (2, "c")], ""),
    "spaces": ('a, b\n1, "x, y"\n2, "z"\n', [(1, "x, y"), (2, "z")], ""),
    "UTF-16 without a mark": ("id,n\n1,é\n".encode("utf-16-le"), [(1, "é")], ""),
    "Cyrillic": (
        "имя;город\nИван;Москва\nАнна;Казань\n".encode("cp1251"),
        [("Иван", "Москва"), ("Анна", "Казань")],
        "it is read as cp1251",
    ),
    "Spanish": (
        "año;país\nMuñoz;España\nPeña;México\nNúñez;Canadá\n".encode("cp1252"),
        [("Muñoz", "España"), ("Peña", "México"), ("Núñez", "Canadá")],
        "it is read as cp1252",
    ),
    "Hungarian": (
        "név;város\nLászló;Győr\nErzsébet;Pécs\nJenő;Szűcsi\n".encode("cp1250"),
        [("László", "Győr"), ("Erzsébet", "Pécs"), ("Jenő", "Szűcsi")],
        "it is read as cp1250",
    ),
    "Russian of Unix": (
        "имя;город\nИван;Москва\nАнна;Казань\n".encode("koi8-r"),
        [("Иван", "Москва"), ("Анна", "Казань")],
        "it is read as koi8_r",
    ),
    "R's row names": (
        '"n","k"\n"Ann Lee",1,2\n"Bo",3,4\n',
        [("Ann Lee", 1, 2), ("Bo", 3, 4)],
        "its first column, of R's row names, is called row_name",
    ),
    "R's row names of one column": ('"n"\n"1",5\n"2",6\n', [(1, 5), (2, 6)], "row_name"),
    "R's write.table": (
        '"n" "k"\n"a ""b" 1 "x, y"\n"c" NA "z"\n'.replace('""', '\\"'),
        [('a "b', 1, "x, y"), ("c", None, "z")],
        "row_name",
    ),
    "a title above two columns": ("Prices\nn,k\na,1\nb,2\n", [("a", 1), ("b", 2)], "'Prices'"),
    "what nobody sees": ("i\u200bd,n\n\u200b1,\ufeffa\u00a0\n", [(1, "a")], ""),
    "dates with gaps": (
        "d,n\n2024-01-05,1\nN/A,2\n",
        [("2024-01-05", 1), (None, 2)],
        "d has NULL for 'N/A'",
    ),
    "names of codes": ("phone\n5551234567\n5559876543\n", [("5551234567",), ("5559876543",)], ""),
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(home: Path, table: str = "") -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(next((home / "out").glob("databases/*/*.sqlite"))))
    name = table or str(connection.execute("SELECT name FROM sqlite_master").fetchall()[0][0])
    found = connection.execute(f'SELECT * FROM "{name}"').fetchall()
    connection.close()
    return found


@pytest.mark.parametrize("file", TABLES)
def test_a_file_is_read_as_a_person_reads_it(home: Path, file: str) -> None:
    expected, said = TABLES[file]
    status, text = run_import("csv", FILES / file, "--out", "out")
    assert status == 0, text
    assert rows(home) == expected
    assert said in text


@pytest.mark.parametrize("form", FORMS)
def test_the_table_inside_a_file_is_found(home: Path, form: str) -> None:
    content, expected, said = FORMS[form]
    (home / "t.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    status, text = run_import("csv", "t.csv", "--out", "out")
    assert status == 0, text
    assert rows(home, "t") == expected
    assert said in text


def test_a_workbook_has_a_table_per_sheet(home: Path) -> None:
    status, text = run_import("csv", FILES / "sheets/book.xlsx", "--out", "out")
    assert status == 0, text
    assert rows(home, "book_Sales") == [
        ("A", "2024-12-31", "2024-12-31 10:05:00", 1, 5.0, 3900),
        ("B", "2025-01-02", "2025-01-02 00:00:00", 0, 6.5, 108000),
    ]
    assert rows(home, "book_More_data") == [(1, "é")]
    assert "book.xlsx, Sales: a last row of totals is left out: Total, 11.5" in text


def test_every_file_of_a_folder_is_read_or_named(home: Path) -> None:
    shutil.copytree(FILES / "06-compressed/mixed", home / "mixed")
    shutil.copy(FILES / "15-dumps/in/shop_sqlite.sql", home / "mixed")
    (home / "mixed" / "more").mkdir()
    status, text = run_import("csv", "mixed", "--out", "out")
    assert status == 0, text
    assert [rows(home, name) for name in "abd"] == [[(1, 2)], [(1, 2)], [(1,)]]
    for line in (
        "mixed/c.xlsx is not read: it is no workbook",
        "mixed/notes.txt is not read: it has no table",
        "shop_sqlite.sql is not read: use 'import sqlite'",
        "more is not read: it is a folder",
    ):
        assert line in text
    status, text = run_import("csv", FILES / "15-dumps/in", "--out", "out2")
    assert (status, text.count("\n")) == (1, 1)
    assert "shop_pg.sql is not read: use 'import sqlite'" in text


def test_a_renamed_table_is_renamed_in_golds(home: Path) -> None:
    (home / "2024 stalls.csv").write_text("id,n\n1,5\n2,6\n")
    asked = [
        ("How many?", 'SELECT count(*) FROM "2024 stalls"'),
        ("Sum?", "SELECT sum(n) FROM _2024_stalls"),
    ]
    write_questions(home / "q.jsonl", asked)
    status, text = run_import("csv", "2024 stalls.csv", "--questions", "q.jsonl", "--out", "out")
    assert status == 0, text
    kept = {one.question_text: one for many in load_splits(home / "out").values() for one in many}
    assert (kept["How many?"].gold_answer, kept["Sum?"].gold_answer) == (2, 11)


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        ("shop_sqlite.sql", ""),
        (
            "shop_mysql.sql",
            "shop_mysql.sql is no dump of SQLite: load it into MySQL, and copy that",
        ),
        ("shop_pg.sql", "then import postgres postgresql:///shop"),
    ],
)
def test_dumps(home: Path, dump: str, message: str) -> None:
    write_questions(home / "q.jsonl", [("How many?", "SELECT count(*) FROM item")])
    status, text = run_import(
        "sqlite", FILES / "15-dumps/in" / dump, "--questions", "q.jsonl", "--out", "out"
    )
    assert status == bool(message), text
    assert message in text
    if not message:
        assert rows(home) == [(1, "kettle")]


def test_a_dump_writes_no_other_file(home: Path) -> None:
    (home / "d.sql").write_text("CREATE TABLE item (id);\nVACUUM INTO 'other.db';\n")
    write_questions(home / "q.jsonl", [("How many?", "SELECT count(*) FROM item")])
    status, text = run_import("sqlite", "d.sql", "--questions", "q.jsonl", "--out", "out")
    assert (status, sorted(path.name for path in home.iterdir())) == (1, ["d.sql", "q.jsonl"])
    assert "d.sql is no dump that SQLite reads" in text


@pytest.mark.parametrize(
    ("file", "kept", "said"),
    [
        *((name, 3, "") for name in (
            "alpaca.json", "cr.csv", "ctx.json", "fenced.jsonl", "heads.csv", "heads2.csv",
            "openai.jsonl", "pretty.jsonl", "sep.csv", "smart.csv", "trail.csv", "utf16.csv",
            "wrapped.json",
        )),
        ("cp1252.csv", 3, "note: cp1252.csv is no UTF-8: it is read as cp1252"),
        ("title.csv", 3, "note: title.csv: left out above the header: 'Our questions'"),
        ("nan.json", 1, ""),
        ("two.jsonl", 0, "failing: not one SELECT"),
        ("book.xlsx", 0, "book.xlsx is not read: it is no workbook"),
    ],
)  # fmt: skip
def test_question_files(home: Path, file: str, kept: int, said: str) -> None:
    folder = FILES / "23-question-files"
    asked = ("--questions", folder / "in" / file, "--out", "out")
    status, text = run_import("csv", folder / "shop", *asked)
    assert status == (not kept), text
    assert said in text
    if kept:
        questions = [one for many in load_splits(home / "out").values() for one in many]
        answers = {one.question_text: one.gold_answer for one in questions}
        assert len(answers) == kept
        assert answers.get("What does the Müsli cost?", 4.0) == 4.0
        assert answers.get("How many products are there?", 3) == 3


TWO = "SELECT count(*) FROM product", "SELECT price FROM product WHERE name = 'Tee'"


@pytest.mark.parametrize(
    "rows",
    [
        {"data": [{"Natural Language Query": "n?", "Ground Truth SQL": sql} for sql in TWO]},
        [{"utterances": "n?", "expected_sql": sql} for sql in TWO],
        {str(at): {"question": "n?", "SQL": sql} for at, sql in enumerate(TWO)},
        [{"conversations": [{"from": "human", "value": "n?"},
                            {"from": "gpt", "value": f"So:\n```sql\n{sql}\n```"}]} for sql in TWO],
        [{"messages": [{"role": "user", "content": [{"type": "text", "text": "n?"}]},
                       {"role": "assistant", "content": sql}]} for sql in TWO],
        [{"prompt": [{"role": "user", "content": "n?"}],
          "completion": [{"role": "assistant", "content": sql}]} for sql in TWO],
    ],
)  # fmt: skip
def test_other_forms_of_question_files(home: Path, rows: Any) -> None:
    (home / "product.csv").write_text("id,name,price\n1,Tee,2.5\n2,Brot,3.0\n")
    (home / "q.json").write_text(json.dumps(rows))
    status, text = run_import("csv", "product.csv", "--questions", "q.json", "--out", "out")
    assert status == 0, text
    kept = [one for many in load_splits(home / "out").values() for one in many]
    assert {(one.question_text, one.gold_answer) for one in kept} == {("n?", 2), ("n?", 2.5)}


@pytest.mark.parametrize(
    ("folder", "without", "dropped"),
    [
        # literals in the file's form, and times of several forms
        ("07-dates", "none", {"q-0003", "q-0005", "q-0008", "q-0009"}),
        ("08-booleans", "b.jsonl", {"q-0003"}),  # paid = 'TRUE'
    ],
)
def test_golds_over_dates_and_booleans(
    home: Path, folder: str, without: str, dropped: set[str]
) -> None:
    shutil.copytree(FILES / folder / "in", home / "in", ignore=shutil.ignore_patterns(without))
    status, text = run_import("csv", "in", "--questions", "in/q.jsonl", "--out", "out")
    assert status == 0, text
    report = json.loads((home / "out/import_report.json").read_text())
    assert {(row["question_id"], row["reason"]) for row in report["dropped"]} == {
        (one, "undecided") for one in dropped
    }
    kept = {
        one.gold_sql: one.gold_answer for many in load_splits(home / "out").values() for one in many
    }
    right = {
        "SELECT max(day) FROM visit": "2025-03-09",
        "SELECT count(*) FROM visit WHERE strftime('%Y', day) = '2025'": 2,
        "SELECT count(*) FROM b WHERE paid": 3,
    }
    assert {sql: kept[sql] for sql in right if sql in kept} == {
        sql: answer for sql, answer in right.items() if ("visit" in sql) == (folder == "07-dates")
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the zone is the process's")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_times_of_parquet_are_utc_in_every_zone(
    home: Path, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    source = FILES / "25-parquet-jsonl/in/zoo.parquet"
    status, text = run_import("csv", source, "--out", "out")
    assert status == 0, text
    connection = apsw.Connection(str(database_path(home / "out", "zoo")))
    assert connection.execute("SELECT ts_utc, ts_ber FROM zoo WHERE id <> 2").fetchall() == [
        ("2024-12-31 23:30:00", "2024-12-31 23:30:00"),
        ("2025-06-01 00:00:00", "2025-06-01 00:00:00"),
    ]
    connection.close()


def test_golds_over_dates_and_texts_are_right_or_undecided(home: Path) -> None:
    """31: of 156 golds that sort, sum and compare 26 columns, none is kept with a wrong answer."""
    folder = FILES / "31-text-numbers"
    status, text = run_import(
        "csv", folder / "in", "--questions", folder / "q.jsonl", "--out", "out"
    )
    assert status == 0, text
    kept = {
        one.gold_sql: one.gold_answer for many in load_splits(home / "out").values() for one in many
    }
    report = json.loads((home / "out/import_report.json").read_text())
    undecided = {row["question_id"] for row in report["dropped"] if row["reason"] == "undecided"}
    assert (len(kept), len(undecided)) == (90, 66)
    told = " ".join(report["notes"])
    for table in ("us", "us2", "mixed", "ver", "total", "pct", "kb", "lt"):
        assert f"t_{table}.v stays text: " in told
        assert f"SELECT sum(v) FROM t_{table}" not in kept or table in ("total", "pct")
    for table in ("range", "size", "month", "dur", "ampm", "dmon", "my"):
        assert f"SELECT sum(v) FROM t_{table}" not in kept
    right = {
        "max(v) FROM t_swiss": 12000.0, "sum(v) FROM t_paren": 1269.5,
        "max(v) FROM t_trail": 2000.0, "sum(v) FROM t_uminus": 787.0,
        "avg(v) FROM t_nbsp": 4529.053333333333, "max(v) FROM t_ampm": "15:05",
        "sum(v) FROM t_err": 45, "sum(v) FROM t_plus": 14.5, "max(v) FROM t_dmon": "2025-01-02",
        "sum(v) FROM t_chf": 122.0, "sum(v) FROM t_unit": 122, "max(v) FROM t_rank": 10,
    }  # fmt: skip
    assert {sql: kept[f"SELECT {sql}"] for sql in right} == right
