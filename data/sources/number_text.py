"""How the cells of a text column write numbers: the column's type, and how DuckDB reads it.

A column is INTEGER or REAL if all its cells are numbers of one form (1234.5, 1,234.5, 1.234,5 or
1 234,5), none or all of them with a percent sign or the same currency sign. Cells of `MISSING` are
NULL then. Leading zeros, a plus sign or an integer of more than 64 bits make it text: a code.
"""

from typing import Any, NamedTuple

import duckdb

MISSING = ("", "-", "na", "n/a", "#n/a", "nan", "null", "none")
SIGNS = "[$€£¥₹%]"
SPACE = " \t\u00a0\u202f"
_INTEGER = r"-?(?:0|[1-9]\d*)"


class Form(NamedTuple):
    """A way to write numbers: what all cells match, what separates thousands, and decimals."""

    pattern: str
    thousands: str
    decimal: str
    example: str


def _grouped(thousands: str, decimal: str) -> str:
    return rf"-?(?:0|[1-9]\d{{0,2}}(?:{thousands}\d{{3}})*|[1-9]\d*)(?:{decimal}\d+)?"


_GAPS = " \u00a0\u202f'’"
_GAP = f"[{_GAPS}]"
PLAIN = Form(rf"(?:{_INTEGER}(?:\.\d*)?|-?\.\d+)(?:[eE][+-]?\d+)?", "", ".", "")
FORMS = (
    Form(_grouped(",", r"\."), ",", ".", "1,234.5"),
    Form(_grouped(r"\.", ","), ".", ",", "1.234,5"),
    Form(_grouped(_GAP, ","), _GAPS, ",", "1 234,5"),
    Form(_grouped(_GAP, r"\."), _GAPS, ".", "1 234.5"),
)


class Column(NamedTuple):
    """A column's type in SQLite, the SQL of its values in DuckDB, and what a user should know."""

    kind: str
    values: str
    note: str = ""


def column_of(duck: duckdb.DuckDBPyConnection, table: str, name: str) -> Column:
    """Return how to read a text column of a table, by all its cells."""
    as_text = Column("TEXT", f"nullif({name}, '')")
    text = f"trim({name}, {_quoted(SPACE)})"
    missing = f"lower({text}) IN ({', '.join(map(_quoted, MISSING))})"
    cells = f"FROM {table} WHERE {name} IS NOT NULL AND NOT {missing}"
    sign = f"regexp_extract({text}, {_quoted(SIGNS)})"
    count, sign, other = _row(duck, f"SELECT count(*), min({sign}), max({sign}) {cells}")
    if not count or sign != other:
        return as_text
    bare = text
    if sign:  # before a number, after its minus, or behind it
        ends = rf"^(-?)[{sign}]\s*|\s*[{sign}]$"
        bare = rf"trim(regexp_replace({text}, {_quoted(ends)}, '\1'), {_quoted(SPACE)})"
    matches = [
        f"bool_and(regexp_full_match({bare}, {_quoted(form.pattern)}))" for form in (PLAIN, *FORMS)
    ]
    plain, *fits = _row(duck, f"SELECT {', '.join(matches)} {cells}")
    forms = [form for form, fit in zip(FORMS, fits, strict=True) if fit]
    if plain:
        forms = [PLAIN]
    if not forms:
        return as_text
    if FORMS[0] in forms and FORMS[1] in forms:
        remedy = "write decimals with a point, and thousands without separators"
        return as_text._replace(note=f"stays text, as 1,234 may be 1.234 or 1234: {remedy}")
    number = bare
    if forms[0].thousands:
        number = f"translate({number}, {_quoted(forms[0].thousands)}, '')"
        number = f"replace({number}, {_quoted(forms[0].decimal)}, '.')"
    whole = f"regexp_full_match({number}, {_quoted(_INTEGER)})"
    integers, large, finite = _row(
        duck,
        f"SELECT bool_and({whole}), bool_or({whole} AND try_cast({number} AS BIGINT) IS NULL), "
        f"bool_and(isfinite(try_cast({number} AS DOUBLE))) {cells}",
    )
    if large or not finite:
        return as_text
    kind, cast = ("INTEGER", "BIGINT") if integers else ("REAL", "DOUBLE")
    notes = [f"is read with numbers as {forms[0].example}"] if forms[0].example else []
    notes += [f"loses its sign {sign}: 5 {sign} is 5"] if sign else []
    values = f"CASE WHEN NOT {missing} THEN CAST({number} AS {cast}) END"
    return Column(kind, values, ", and ".join(notes))


def _row(duck: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    return duck.execute(sql).fetchall()[0]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
