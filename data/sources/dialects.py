"""Translate golds to SQLite's SQL, also where sqlglot would keep what means something else there.

What PostgreSQL itself answers decides whether a translation is right.
"""

from collections.abc import Collection, Mapping
from typing import cast

from sqlglot import exp

from shared.sql_parser import parse_sql

Names = Mapping[tuple[str, str], str]  # schema, "" for any, and table -> the table's name in SQLite
_PARTS = {
    **{"YEAR": "%Y", "MONTH": "%m", "DAY": "%d", "HOUR": "%H", "MINUTE": "%M", "SECOND": "%S"},
    **{"DOW": "%w", "DOY": "%j", "ISODOW": "%u", "WEEK": "%V", "ISOYEAR": "%G", "EPOCH": "%s"},
}
_STARTS = {
    **{"YEAR": "%Y-01-01 00:00:00", "MONTH": "%Y-%m-01 00:00:00", "DAY": "%Y-%m-%d 00:00:00"},
    **{"HOUR": "%Y-%m-%d %H:00:00", "MINUTE": "%Y-%m-%d %H:%M:00"},
}
_TIMES = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
_TRUTHS = {"t": 1, "true": 1, "yes": 1, "f": 0, "false": 0, "no": 0}


def to_sqlite(
    sql: str,
    names: Names,
    booleans: Collection[str],
    dialect: str = "postgres",
    columns: Mapping[str, str] = {},
) -> str:
    """Return `sql` in SQLite's dialect: tables and columns by new names, `booleans` as 1 and 0.
    Of SQLite's own SQL, old names are given in lower case. Raises sqlglot's errors."""
    tree = parse_sql(sql, dialect)
    fold = str.lower if dialect == "sqlite" else str
    for table in tree.find_all(exp.Table, exp.Column):
        column = isinstance(table, exp.Column)
        name = fold(table.table if column else table.name)
        if new := names.get((table.db, name)) or names.get(("", name)):
            table.set("table" if column else "this", exp.to_identifier(new))
        table.set("db", None)
        if column and (new := columns.get(fold(table.name))):
            table.set("this", exp.to_identifier(new))
    if dialect == "postgres":
        tree = tree.transform(lambda node: _mapped(node, booleans))
    return str(tree.sql(dialect="sqlite"))


def _mapped(node: exp.Expression, booleans: Collection[str]) -> exp.Expression:
    match node:
        case exp.Like(this=text, expression=exp.Literal(this=pattern)) if "\\" not in pattern:
            glob = "".join(f"[{char}]" if char in "*?[" else char for char in pattern)
            glob = glob.replace("%", "*").replace("_", "?")
            return exp.Glob(this=text, expression=exp.Literal.string(glob))
        case exp.Cast(this=value, to=kind) if kind.this == exp.DType.USERDEFINED:
            return cast(exp.Expression, value)  # an enum's, which is text
        case exp.Cast(this=value, to=kind) if kind.this in _TIMES:
            return exp.func("datetime", value)
        case exp.Extract(this=part, expression=value) if part.name.upper() in _PARTS:
            return exp.cast(_strftime(_PARTS[part.name.upper()], value), "INTEGER")
        case exp.TimestampTrunc(this=value) if node.unit.name.upper() in _STARTS:
            return _strftime(_STARTS[node.unit.name.upper()], value)
        case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
            interval, sign = node.expression, "-" if isinstance(node, exp.Sub) else "+"
            shift = f"{sign}{interval.name} {interval.unit.name}".lower()
            return exp.func("datetime", node.this, exp.Literal.string(shift))
        case exp.Sub(this=end, expression=start) if _is_day(end) or _is_day(start):
            days = exp.Sub(this=exp.func("julianday", end), expression=exp.func("julianday", start))
            return exp.cast(days, "INTEGER")
        case exp.EQ(this=value, expression=exp.Any(this=exp.Paren(this=exp.Array() as array))):
            return exp.In(this=value, expressions=array.expressions)
        case exp.Left(this=value, expression=size):
            return exp.func("substr", value, exp.Literal.number(1), size)
        case exp.EQ(this=exp.Column() as column, expression=exp.Literal(this=text)) if (
            column.name.lower() in booleans and text.lower() in _TRUTHS
        ):
            return exp.EQ(this=column, expression=exp.Literal.number(_TRUTHS[text.lower()]))
    return node


def _strftime(form: str, value: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="strftime", expressions=[exp.Literal.string(form), value])


def _is_day(node: exp.Expression) -> bool:
    return isinstance(node, exp.Cast) and node.to.this == exp.DType.DATE
