"""Load files whose columns have types into DuckDB: Parquet, and JSON objects."""

from pathlib import Path

import duckdb

from data.cell_formats import Column
from data.sources.delimited_text import MAX_LINE_CHARS, as_utf8
from data.sources.duck_tables import Duck, Loaded, check_width, text_column
from data.sources.text_and_sheets import Found
from shared.errors import DataError
from shared.sqltext import quote_identifier

JSON = (".json", ".jsonl", ".ndjson")
TYPED = (*JSON, ".parquet")
# DuckDB's types as SQLite's; all others become text
INTEGERS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER"),
)
REALS = ("FLOAT", "DOUBLE", "DECIMAL")
WIDE = ("UBIGINT", "HUGEINT", "UHUGEINT")  # and DECIMAL(n,0): whole numbers of up to 39 digits


def load_typed(duck: Duck, found: Found, scratch: Path) -> list[Loaded]:
    """Load a Parquet file, or one of JSON objects, into the table t; return its columns."""
    if found.suffix in JSON:
        return _load_json(duck, found, scratch)
    table = duck.read_parquet(str(found.path))
    check_width(found.shown, len(table.columns))
    table.create("t")
    kinds = map(str, table.types)
    return [_typed_column(duck, *one) for one in zip(table.columns, kinds, strict=True)]


def _typed_column(duck: Duck, name: str, declared: str) -> Loaded:
    cell, kind = quote_identifier(name), declared.partition("(")[0]
    if kind in WIDE or (kind == "DECIMAL" and declared.endswith(",0)")):
        fits = f"bool_and({cell} BETWEEN {-(2**63)} AND {2**63 - 1})"
        if duck.execute(f"SELECT coalesce({fits}, true) FROM t").fetchall() == [(False,)]:
            note = "stays text: its numbers have more digits than SQLite keeps"
            return Loaded(name, "TEXT", f"CAST({cell} AS VARCHAR)", None, note)
        kind = "BIGINT"
    if kind in INTEGERS:
        return Loaded(name, "INTEGER", f"CAST({cell} AS BIGINT)")
    if kind in REALS:
        number = f"CAST({cell} AS DOUBLE)"
        return Loaded(name, "REAL", f"CASE WHEN NOT isnan({number}) THEN {number} END")
    if kind == "BLOB":
        return Loaded(name, "BLOB", cell)
    if kind == "VARCHAR":
        return _cleaned(text_column(duck, cell, name) or Loaded(name, "TEXT", cell))
    if "TIME ZONE" in kind or "TZ" in kind:
        # in UTC, whatever the machine's zone
        cell = f"make_timestamp(epoch_us(CAST({cell} AS TIMESTAMPTZ)))"
    return Loaded(name, "TEXT", f"CAST({cell} AS VARCHAR)")


def _cleaned(column: Loaded) -> Loaded:
    """Let a text column lose what nobody sees, which files of text have lost before."""
    texts = column.kind == "TEXT" and column.read is None
    return column._replace(read=Column().read) if texts else column


def _load_json(duck: Duck, found: Found, scratch: Path) -> list[Loaded]:
    """Load the objects of a file, one per line, in an array or in an object, as columns of text."""
    path = scratch / "utf8"
    as_utf8(found.path, path, found.shown)
    read = (
        "read_json(?, records = true, maximum_depth = 1, sample_size = -1, "
        "map_inference_threshold = -1, maximum_object_size = ?)"
    )
    for _ in range(2):
        try:
            objects = duck.sql(f"FROM {read}", params=[str(path), 4 * MAX_LINE_CHARS])
        except duckdb.BinderException as error:
            remedy = "write an array of objects, or one object per line"
            raise DataError(f"{found.shown} holds no objects: {remedy}") from error
        names = objects.columns
        check_width(found.shown, len(names))
        duck.execute("DROP TABLE IF EXISTS raw")
        objects.create("raw")
        cells = list(map(quote_identifier, names))
        tests = [f"coalesce(json_type({cell}->0) = 'OBJECT', false)" for cell in cells]
        wrapped = duck.execute(f"SELECT {', '.join(tests)} FROM raw LIMIT 2").fetchall()
        if len(wrapped) != 1 or sum(wrapped[0]) != 1:
            break
        cell, path = cells[wrapped[0].index(True)], scratch / "unwrapped"
        duck.execute(
            f"COPY (SELECT unnest(CAST({cell} AS JSON[])) FROM raw) TO '{path}' "
            "(FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01')"
        )
    parts = ", ".join(f"json_type({cell}) = 'OBJECT'" for cell in cells)
    kinds = duck.execute(f"SELECT {parts} FROM raw LIMIT 2").fetchall()
    if len(kinds) == 1 < len(cells) and all(kinds[0]):  # as pandas' to_json writes by default
        remedy = "write an array of objects (in pandas, orient='records')"
        raise DataError(f"{found.shown} holds columns, not rows: {remedy}")
    texts = (f"CASE WHEN json_type({cell}) <> 'NULL' THEN {cell}->>'$' END" for cell in cells)
    shown = ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts))
    duck.execute(f"CREATE TABLE t AS SELECT {shown} FROM raw ORDER BY rowid; DROP TABLE raw")
    loaded = (text_column(duck, f"c{at}", name) for at, name in enumerate(names))
    return [_cleaned(column) for column in loaded if column]
