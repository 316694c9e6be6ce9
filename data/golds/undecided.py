"""Find golds that the data do not decide: another reading of the same values gives another answer.

    numbers as text     '100' sorts below '90', and 'null' above both
    dates as text       '9/1/2020' sorts above '12/1/2020'
    NULLs               `ORDER BY lap LIMIT 1` shows the row without a lap
    text for NULL       `name IS NULL` leaves out the names '-'

The query runs again with such values read as numbers or dates where it sorts, compares or
aggregates them, with NULLs last where it cuts, and with such texts as NULL where it asks for NULL.
If the answer stays the same, the data decide.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from shared.order_by import Row, Unresolved, parse_query, resolve_term
from shared.sqltext import quote_identifier

MISSING = frozenset(("", "-", "--", "?", "na", "n/a", "nan", "null", "none", "unknown"))
LEAST_SHARE = 0.9  # of a column's texts, but for MISSING, that are numbers, or dates
SAMPLE = 1_000  # different texts of a column that are looked at
_NUMBER = re.compile(r"\s*[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?\s*%?\s*")
_DATE_FORMS = (
    *("%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%m-%d-%Y", "%d-%m-%Y", "%d.%m.%Y"),
    *("%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%B %Y", "%b %Y"),
    *("%m/%d/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y %H:%M:%S"),
)
_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_AGGREGATED = (exp.Min, exp.Max, exp.Sum, exp.Avg)
_WORTH_A_LOOK = re.compile(r"[<>]|\border\s+by\b|\b(?:between|min|max|sum|avg|is)\b", re.IGNORECASE)
_HAS_COLUMN = "SELECT 1 FROM pragma_table_info(?) WHERE name = ? COLLATE NOCASE"

Run = Callable[[str], Sequence[Row]]


def find_undecided(
    sql: str, rows: Sequence[Row], run: Run, connection: apsw.Connection
) -> str | None:
    """Return a line about the first reading with another answer than `rows`, the result of `sql`.

    None if the data decide, or the query can't be rewritten.
    """
    if not _WORTH_A_LOOK.search(sql):
        return None
    functions: dict[str, Any] = {"as_number": as_number, "as_date": as_date, "as_known": as_known}
    for name, function in functions.items():
        connection.create_scalar_function(name, function, 1, deterministic=True)
    try:
        original = parse_query(sql)
        ordered = original.args.get("order") is not None
        for rewrite in (_read_values, _put_nulls_last, _read_missing):
            query = original.copy()
            what = rewrite(query, connection)
            if what is None or not same_rows(rows, run(original.sql(dialect="sqlite")), ordered):
                continue
            other = run(query.sql(dialect="sqlite"))
            if not same_rows(rows, other, ordered):
                return f"{what}: then the answer is {short_rows(other)}, not {short_rows(rows)}"
    except (SqlglotError, Unresolved, RecursionError, apsw.SQLError):
        pass
    return None


def as_number(cell: object) -> float | None:
    """Return a number, or the number that a text is: '1,234.5', '12 %'; else None."""
    if isinstance(cell, str):
        if not any(map(str.isdigit, cell)) or not _NUMBER.fullmatch(cell):
            return None
        return float(cell.replace(",", "").replace("%", ""))
    return cell if isinstance(cell, int | float) else None


@lru_cache(maxsize=1 << 16)
def as_date(cell: object) -> str | None:
    """Return a date as ISO text if it is written in another way, other text as it is."""
    if not isinstance(cell, str):
        return None
    for form in _DATE_FORMS:
        try:
            return datetime.strptime(cell.strip(), form).isoformat()
        except ValueError:
            continue
    return cell


def as_known(cell: object) -> object:
    """Return a value, but NULL for a text that stands for it."""
    return None if isinstance(cell, str) and cell.strip().lower() in MISSING else cell


def _read_values(query: exp.Query, connection: apsw.Connection) -> str | None:
    """Let `query` read texts as numbers or dates; return of which columns, None if of none."""
    read: dict[str, str] = {}

    def reader(node: exp.Expression) -> str | None:
        column = node.unnest()
        if not isinstance(column, exp.Column):
            return None
        if (table := table_of(column, connection)) is None:
            return None
        if kind := _kind(connection, table, column.name):
            read[f"{table}.{column.name}"] = kind
        return kind

    for node, operands in reversed(list(_operands(query))):  # inner ones first
        kinds = [kind for one in operands if (kind := reader(_meant(node, one)))]
        if kinds:
            for one in operands:
                value = exp.Anonymous(this=f"as_{kinds[0]}", expressions=[_meant(node, one).copy()])
                one.replace(value)
    named = [f"{column} holds {kind}s as text" for column, kind in read.items()]
    return "; ".join(named) or None


def _operands(query: exp.Query) -> Iterator[tuple[exp.Expression, list[exp.Expression]]]:
    """Yield what sorts, compares or aggregates, with the values that it does this to."""
    for node in query.walk():
        if isinstance(node, exp.Ordered):
            yield node, [node.this]
        elif isinstance(node, exp.Between):
            yield node, [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, _COMPARED) or (isinstance(node, exp.EQ) and node.find(exp.Subquery)):
            yield node, [node.this, node.expression]  # x = (SELECT max(x) ...)
        elif isinstance(node, _AGGREGATED) and not node.expressions:
            distinct = isinstance(node.this, exp.Distinct)
            yield node, list(node.this.expressions) if distinct else [node.this]


def _meant(node: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return what a term of ORDER BY stands for: an alias or a number is a column of the result."""
    select = node.find_ancestor(exp.Select)
    if not isinstance(node, exp.Ordered) or select is None:
        return value
    meant = resolve_term(select, value)  # a copy, which belongs to no query
    return next((one for one in select.find_all(type(meant)) if one == meant), meant)


def _put_nulls_last(query: exp.Query, _connection: apsw.Connection) -> str | None:
    """Let `query` sort NULLs last where it cuts; return a line on that, None if it does nowhere."""
    keys = []
    for one in [query, *query.find_all(exp.Select)]:
        order = one.args.get("order")
        if order is None or not one.args.get("limit"):
            continue
        for term in order.expressions:
            if not term.args.get("desc"):
                term.set("nulls_first", False)
                keys.append(term.this.sql(dialect="sqlite"))
    keys = list(dict.fromkeys(keys))
    return (
        f"NULLs of {', '.join(keys)} sort into the rows shown; they may come last" if keys else None
    )


def _read_missing(query: exp.Query, _connection: apsw.Connection) -> str | None:
    """Let `query` read texts such as '-' as NULL where it asks for NULL."""
    asked = [node for node in query.find_all(exp.Is) if isinstance(node.expression, exp.Null)]
    columns = [node.this for node in asked if isinstance(node.this, exp.Column)]
    for column in columns:
        column.replace(exp.Anonymous(this="as_known", expressions=[column.copy()]))
    names = ", ".join(dict.fromkeys(column.sql(dialect="sqlite") for column in columns))
    return f"{names} has texts that stand for NULL beside NULL" if names else None


def _kind(connection: apsw.Connection, table: str, column: str) -> str | None:
    """Return "number" or "date" for a column that holds such values as text; else None."""
    name, quoted = quote_identifier(column), quote_identifier(table)
    texts = f"SELECT DISTINCT {name} FROM {quoted} WHERE typeof({name}) = 'text' LIMIT {SAMPLE}"
    numbers = f"SELECT 1 FROM {quoted} WHERE typeof({name}) IN ('integer', 'real') LIMIT 1"
    try:
        cells = [str(cell) for (cell,) in connection.execute(texts)]
        mixed = bool(cells) and bool(connection.execute(numbers).fetchall())
    except (apsw.Error, UnicodeDecodeError):
        return None
    known = [cell for cell in cells if cell.strip().lower() not in MISSING]
    if cells and not known:
        return "number" if mixed else None
    for kind, read in (("number", as_number), ("date", as_date)):
        right = sum(read(cell) not in (None, cell) for cell in known)
        if known and right >= LEAST_SHARE * len(known):
            return kind
    return None


def same_rows(left: Sequence[Row], right: Sequence[Row], ordered: bool) -> bool:
    first, second = ([tuple(map(_comparable, row)) for row in rows] for rows in (left, right))
    return first == second if ordered else Counter(first) == Counter(second)


def _comparable(cell: object) -> object:
    number = as_number(cell)
    return as_date(cell) or cell if number is None else float(f"{number:.9g}")


def short_rows(rows: Sequence[Row]) -> str:
    text = ", ".join(" | ".join(map(str, row)) for row in rows) or "empty"
    return text if len(text) <= 60 else text[:59] + "…"


def table_of(column: exp.Column, connection: apsw.Connection) -> str | None:
    """Return the table that a column is of; None if it is none's, of a subquery or a WITH table."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        start = select.args.get("from") or select.args.get("from_")
        for source in [start, *(select.args.get("joins") or [])]:
            table = source and source.this
            if not isinstance(table, exp.Table):
                continue
            named = not column.table or column.table.lower() == str(table.alias_or_name).lower()
            if named and connection.execute(_HAS_COLUMN, (table.name, column.name)).fetchall():
                return str(table.name)
        select = select.find_ancestor(exp.Select)
    return None
