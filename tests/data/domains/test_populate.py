"""Populated tables: keys, skewed references and reproducible files."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import apsw

from data.domains import values
from data.domains.populate import populate, write_database
from data.domains.spec import Column, Domain, Kind, Table

PEOPLE = Table(
    "people",
    "person",
    "people",
    (
        Column("person_id", Kind.KEY),
        Column("name", Kind.NAME, values.person_names()),
        Column("boss_id", Kind.REF, references="people", null_share=0.1),
    ),
    60,
)
VISITS = Table(
    "visits",
    "visit",
    "visits",
    (
        Column("visit_id", Kind.KEY),
        Column("person_id", Kind.REF, references="people"),
        Column("guide_id", Kind.REF, references="people", null_share=0.3),
        Column("day", Kind.DATE, values.dates("2023-01-01", "2023-12-31")),
        Column("fee", Kind.REAL, values.prices(2, 30, null=0.1)),
    ),
    3000,
)
DOMAIN = Domain("park", "A park", (PEOPLE, VISITS))


def test_one_stream_gives_the_same_rows() -> None:
    rows = populate(DOMAIN, random.Random(1))
    assert rows == populate(DOMAIN, random.Random(1))
    assert rows != populate(DOMAIN, random.Random(2))
    assert [len(rows[table.name]) for table in DOMAIN.tables] == [60, 3000]
    assert [row[0] for row in rows["people"]] == list(range(1, 61))


def test_a_column_keeps_its_cells_when_another_changes() -> None:
    columns = list(VISITS.columns)
    columns[3] = replace(columns[3], values=values.dates("1999-01-01", "1999-12-31"))
    changed = replace(DOMAIN, tables=(PEOPLE, replace(VISITS, columns=tuple(columns))))
    before, after = populate(DOMAIN, random.Random(1)), populate(changed, random.Random(1))
    assert [row[4] for row in before["visits"]] == [row[4] for row in after["visits"]]


def test_references_prefer_some_parents_and_skip_a_tenth() -> None:
    rows = populate(DOMAIN, random.Random(3))
    counts = Counter(row[1] for row in rows["visits"])
    assert set(counts) <= set(range(1, 61))
    assert len(counts) == 54
    most, mean = max(counts.values()), 3000 / 54
    assert 1.5 * mean < most < 6 * mean
    guides = [row[2] for row in rows["visits"]]
    assert 0.25 < guides.count(None) / len(guides) < 0.35
    assert {row[1] for row in rows["visits"]} != set(guides) - {None}


def test_a_table_that_refers_to_itself_is_a_forest() -> None:
    rows = populate(DOMAIN, random.Random(4))
    assert rows["people"][0][2] is None
    assert all(boss is None or boss < key for key, _, boss in rows["people"])  # type: ignore[operator]


def test_files_are_reproducible_and_sound(tmp_path: Path) -> None:
    rows = populate(DOMAIN, random.Random(5))
    first, second = tmp_path / "a" / "park.sqlite", tmp_path / "b" / "park.sqlite"
    write_database(DOMAIN, rows, first)
    second.parent.mkdir()
    second.write_bytes(b"something else was here")
    write_database(DOMAIN, rows, second)
    assert first.read_bytes() == second.read_bytes()
    connection = apsw.Connection(str(first))
    assert list(connection.execute("PRAGMA foreign_key_check")) == []
    assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
    assert list(connection.execute("SELECT * FROM visits ORDER BY visit_id")) == rows["visits"]
    keys = {
        (row[2], row[3], row[4]) for row in connection.execute("PRAGMA foreign_key_list(visits)")
    }
    assert keys == {("people", "person_id", "person_id"), ("people", "guide_id", "person_id")}
    connection.close()
