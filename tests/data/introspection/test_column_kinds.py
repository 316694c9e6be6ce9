"""What each column of a database is for, however odd the schema, and how names are read."""

import random
from pathlib import Path

import pytest

from data.domains.spec import Kind
from data.golds.check_gold import open_readonly
from data.introspection.column_kinds import Schema, introspect
from data.introspection.names import nouns_of, phrase_of, singular, words_of
from data.introspection.tables import MAX_SAMPLE
from tests.data.sources.importing import make_database

ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "


def read(folder: Path, script: str) -> Schema:
    path = make_database(folder / "one.db", script)
    return introspect("one", open_readonly(path), random.Random(1))


def filled(table: str, columns: str, values: str, count: int = 20) -> str:
    """Return SQL that makes a table and fills it; `i` counts its rows from 1."""
    rows = ROWS.format(count=count)
    return f"CREATE TABLE {table} ({columns}); INSERT INTO {table} {rows} SELECT {values} FROM n;"


def kinds(schema: Schema, table: str) -> dict[str, Kind]:
    return {column.name: column.kind for column in schema.domain.table(table).columns}


def test_kinds_follow_from_keys_and_cells(tmp_path):
    schema = read(
        tmp_path,
        filled(
            "shop",
            "shop_id INTEGER PRIMARY KEY, name TEXT, city TEXT, staff TEXT, area REAL, "
            "floors INTEGER, opened TEXT, zip INTEGER, type INTEGER, is_open INT, seen_at TEXT, "
            "us_date TEXT, password TEXT, photo BLOB, mixed, same TEXT, absent TEXT, "
            "highest INTEGER, founded INTEGER",
            "i, 'Shop ' || i, 'City ' || (i % 4), 10 + i, i * 1.5, i % 5, "
            "printf('2024-01-%02d', i), 1000 + i, i % 9, i % 2, "
            "printf('2024-01-%02d 10:00:00', i), i || '/12/2020', 'p' || i, x'00', "
            "iif(i % 2, i, 'x'), 'same', NULL, i, 1900 + i",
        ),
    )
    assert kinds(schema, "shop") == {
        "name": Kind.NAME,
        "city": Kind.CATEGORY,
        "staff": Kind.TEXT,  # text with digits is no number
        "area": Kind.REAL,
        "floors": Kind.INTEGER,
        "opened": Kind.DATE,
        "zip": Kind.TEXT,
        "type": Kind.TEXT,
        "seen_at": Kind.DATE,
    }
    reasons = {one: why for why, columns in schema.left_out.items() for one in columns}
    assert {one.removeprefix("shop."): why.split(" (")[0] for one, why in reasons.items()} == {
        "shop_id": "ids",
        "is_open": "flags",
        "us_date": "dates that are not all in ISO's form or NULL",
        "password": "secrets",
        "photo": "BLOBs",
        "mixed": "texts and numbers in one column",
        "same": "no two different values",
        "absent": "no two different values",
        "highest": "names that make no noun",
        "founded": "years under another name",
    }


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("boss INTEGER", "i / 2 + 1", None),
        ("boss INTEGER REFERENCES worker", "i / 2 + 1", None),
        ("advisor INTEGER", "1000 + i", None),
        ("partitionid INTEGER", "i % 9", None),
        ("created INTEGER", "1700000000000 + i", None),
        ("launch REAL", "1990.0 + i", None),
        ("rank INTEGER", "i", Kind.TEXT),
        ("start_year INTEGER", "1990 + i", Kind.TEXT),
        ("number INTEGER", "i", Kind.TEXT),
        ("number_children INTEGER", "i", Kind.INTEGER),
        ("total_number INTEGER", "i", Kind.INTEGER),
        ("month INTEGER", "i % 12 + 1", Kind.TEXT),
        ("signup_date INTEGER", "20240100 + i", None),
        ("signup_date REAL", "20240100.0 + i", None),
        ("salary INTEGER", "20240099 + i", Kind.INTEGER),
        ("smoker TEXT", "substr('Yn', 1 + i % 2, 1)", None),
        ("smoker TEXT", "iif(i % 2, 'TRUE', 'False')", None),
        ("smoker TEXT", "iif(i % 2, 'yes', 'rarely')", Kind.CATEGORY),
    ],
)
def test_what_is_no_amount_is_not_averaged(column, value, kind, tmp_path):
    columns = f"id INTEGER PRIMARY KEY, name TEXT, {column}"
    schema = read(tmp_path, filled("worker", columns, f"i, 'Worker ' || i, {value}"))
    found = kinds(schema, "worker").get(column.split()[0])
    assert found in (kind, Kind.REF) if kind is None else found is kind


PARENT = filled("country", "id INTEGER PRIMARY KEY, name TEXT", "i, 'Land ' || i")


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("id", "land INTEGER REFERENCES country(id)"),
        ("id", "country_id INTEGER"),  # undeclared, but all of its values are keys
        ("id", "country_id TEXT"),
        ("CountryId", "CountryId INTEGER"),
        ("countryid", "countryid INTEGER"),
        ("country_id", "country_id INTEGER"),
    ],
)
def test_references_are_found(tmp_path, key, column):
    city = f"number INTEGER PRIMARY KEY, {column}, name TEXT"
    parent = PARENT.replace("id INTEGER", f"{key} INTEGER")
    schema = read(tmp_path, parent + filled("city", city, "i, i, 'Town ' || i"))
    (ref,) = schema.domain.table("city").of_kind(Kind.REF)
    assert ref.references == "country"
    assert schema.domain.table("country").key.name == key
    index = schema.domain.table("city").columns.index(ref)
    assert {row[index] for row in schema.rows["city"]} == set(range(1, 21))  # keys, not their text


@pytest.mark.parametrize(
    ("column", "value"),
    [("country_id INTEGER", "i + 1"), ("land_id INTEGER", "i"), ("population INTEGER", "i")],
)
def test_uncertain_references_are_none(tmp_path, column, value):
    city = f"id INTEGER PRIMARY KEY, {column}, name TEXT"
    schema = read(tmp_path, PARENT + filled("city", city, f"i, {value}, 'Town ' || i"))
    assert not schema.domain.table("city").of_kind(Kind.REF)


@pytest.mark.parametrize("column", ["land TEXT REFERENCES country(id)", "country_id TEXT"])
@pytest.mark.parametrize("some", ["CAST('k' || i AS BLOB)", "CAST(x'e9' AS TEXT) || i"])
@pytest.mark.parametrize("unreadable", ["country", "city"])
def test_columns_that_cannot_be_read_are_no_references(tmp_path, column, some, unreadable):
    key = f"iif(i > 10, {some}, 'k' || i)" if unreadable == "country" else "'k' || i"
    value = f"iif(i > 15, {some}, 'k' || i)" if unreadable == "city" else "'k' || (1 + i % 9)"
    parent = filled("country", "id TEXT PRIMARY KEY, name TEXT", f"{key}, 'Land ' || i")
    city = f"id INTEGER PRIMARY KEY, {column}, name TEXT"
    schema = read(tmp_path, parent + filled("city", city, f"i, {value}, 'Town ' || i"))
    assert not schema.domain.table("city").of_kind(Kind.REF)
    assert len(schema.rows["city"]) == 20


def test_odd_schemas_are_read(tmp_path):
    script = (
        "CREATE TABLE empty (a INTEGER, b TEXT);"
        "CREATE VIEW broken AS SELECT * FROM nowhere;"
        "CREATE VIRTUAL TABLE words USING fts5(body);"
        + filled("pairs", "a INTEGER, b INTEGER, note TEXT, PRIMARY KEY (a, b)", "i % 7, i, i % 3")
        + filled("pure", "k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID; --", "0", 1).split("--")[0]
        + f"INSERT INTO pure {ROWS.format(count=1500)} SELECT 'k' || i, i FROM n;"
        + filled('"1"', '"2" INTEGER, "" TEXT', "i, 't' || i")
        + filled("latin", "name TEXT, size INTEGER", "CAST(x'e9' AS TEXT) || i, i")
    )
    schema = read(tmp_path, script)
    assert {table.name for table in schema.domain.tables} == {"pairs", "pure", '"1"', "latin"}
    assert kinds(schema, "pairs") == {"note": Kind.CATEGORY}
    assert kinds(schema, "latin") == {"size": Kind.INTEGER}  # text that is not UTF-8
    assert not kinds(schema, '"1"')
    assert len(schema.rows["pure"]) == MAX_SAMPLE


def test_a_sample_of_a_large_table_keeps_its_null_and_its_repeated_name(tmp_path):
    script = filled("item", "name TEXT, size INTEGER", "'Item ' || i, i", 5_000)
    script += "UPDATE item SET size = NULL WHERE rowid = 3;"
    script += "INSERT INTO item SELECT name, 1 FROM item WHERE rowid <= 5000;"
    schema = read(tmp_path, script)
    rows = schema.rows["item"]
    assert MAX_SAMPLE <= len(rows) <= 2 * MAX_SAMPLE + 1
    assert any(size is None for _, size in rows)
    names = [name for name, _ in rows]
    assert all(names.count(name) > 1 for name in names[:50])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id INTEGER PRIMARY KEY", "(i - 1000) * 9200000000000000"),  # over 2**63 apart
        ("id INTEGER PRIMARY KEY", "i + (i = 1999) * 4000000000000000000"),  # one far away
        ("_rowid_ TEXT", "'x'"),  # no row id, though SQLite's name for it
        ("_rowid_ TEXT, Rowid TEXT, OID TEXT", "'x', 'y', 'z'"),
    ],
)
def test_a_large_table_is_sampled_whatever_its_row_ids(tmp_path, column, value):
    schema = read(tmp_path, filled("item", f"{column}, size INTEGER", f"{value}, i", 2_000))
    assert len({row[-1] for row in schema.rows["item"]}) == MAX_SAMPLE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("car_makers", "car makers"),
        ("LName", "last name"),
        ("unit price (EUR)", "unit price eur"),
        ("order_qty", "order quantity"),
        ("Straße", "straße"),
        ("?", "unnamed"),
    ],
)
def test_words(name, words):
    assert words_of(name) == words.split()


@pytest.mark.parametrize(
    ("many", "one"),
    [("countries", "country"), ("movies", "movie"), ("people", "person"), ("series", "series")],
)
def test_singulars(many, one):
    assert singular(many) == one
    assert singular(one) == one


@pytest.mark.parametrize(
    ("words", "nouns"),
    [
        ("countries", ("country", "countries")),
        ("staff", ("staff", "staff")),
        ("types of restaurant", ("type of restaurant", "types of restaurant")),
        ("has pet", ("has-pet record", "has-pet records")),
        ("hiring", ("hiring record", "hiring records")),
        ("客户", ("客户 record", "客户 records")),
    ],
)
def test_nouns_of_tables(words, nouns):
    assert nouns_of(words.split()) == nouns


@pytest.mark.parametrize(
    ("words", "kind", "phrase"),
    [
        ("number products", Kind.INTEGER, "number of products"),
        ("focal length mm", Kind.REAL, "focal length in mm"),
        ("opened on", Kind.DATE, "opened date"),
        ("date of birth", Kind.DATE, "date of birth"),
        ("number component", Kind.INTEGER, "number of components"),
        ("sales million", Kind.REAL, "amount of sales in million"),
        ("x", Kind.REAL, "x"),
        ("年", Kind.INTEGER, "年"),
        # these read badly
        ("directed by", Kind.TEXT, None),
        ("date first rental", Kind.DATE, None),
        ("day or boarding", Kind.CATEGORY, None),
        ("county represented", Kind.CATEGORY, None),
        ("meter 100", Kind.REAL, None),
        ("weeks on top", Kind.INTEGER, None),
        ("damage millions usd", Kind.REAL, None),
    ],
)
def test_phrases_of_columns(words, kind, phrase):
    assert phrase_of(words.split(), kind) == phrase
