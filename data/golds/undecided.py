"""Find golds that the data do not decide: another reading of the same values gives another answer.

    numbers as text     '100' sorts below '90', and 'null' above both
    dates as text       '9/1/2020' sorts above '12/1/2020', and strftime finds no date in it
    booleans as text    `WHERE paid` finds no row of 'TRUE', `paid = 'TRUE'` none of 1
    NULLs               `ORDER BY lap LIMIT 1` shows the row without a lap
    text for NULL       `name IS NULL` leaves out the names '-'
    whole numbers       3 / 2 is 1

The query runs again with such values read as what they mean where it sorts, compares or calculates
with them, with NULLs last where it cuts, with such texts as NULL where it asks for NULL, and with
whole numbers divided exactly. If the answer stays the same, the data decide. What a name in double
quotes stands for is decided by itself (`data.golds.quoted`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.cell_formats import is_missing, readings
from data.column_names import Value
from data.golds.meanings import Meaning, meaning_of
from data.golds.quoted import doubtful_name, table_of
from shared.order_by import Row, Unresolved, parse_query, resolve_term
from shared.sqltext import quote_identifier

_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_AGGREGATED = (exp.Min, exp.Max, exp.Sum, exp.Avg)
_CALCULATED = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Sum, exp.Avg, exp.Cast)
_TESTING = (exp.Where, exp.And, exp.Or, exp.Not, exp.If, exp.Sum, exp.Avg)
_DATED = ("date", "datetime", "time", "julianday", "unixepoch", "strftime", "timestrtodate")
_TRUTHS = {"true": 1, "yes": 1, "t": 1, "y": 1, "false": 0, "no": 0, "f": 0, "n": 0}
_WORTH_A_LOOK = re.compile(
    r"[<>/\"]|\border\s+by\b|\b(?:between|min|max|sum|avg|is|cast|where|case|strftime|date|julianday)\b",
    re.IGNORECASE,
)

Run = Callable[[str], Sequence[Row]]
Readers = list[Callable[[object], Value | None]]


def find_undecided(
    sql: str, rows: Sequence[Row], run: Run, connection: apsw.Connection
) -> str | None:
    """Return a line about the first reading with another answer than `rows`, the result of `sql`.

    None if the data decide, or the query can't be rewritten.
    """
    if not _WORTH_A_LOOK.search(sql):
        return None

    def as_known(*cells: Any) -> Any:
        return None if isinstance(cells[0], str) and is_missing(cells[0]) else cells[0]

    connection.create_scalar_function("as_known", as_known, 1, deterministic=True)
    try:
        original = parse_query(sql)
        if doubt := doubtful_name(original, connection) or _senseless(original, connection):
            return doubt
        ordered = original.args.get("order") is not None
        for rewrite in _READINGS:
            query = original.copy()
            readers: Readers = []
            what = rewrite(query, connection, readers)
            if what is None or not same_rows(rows, run(original.sql(dialect="sqlite")), ordered):
                continue
            other = run(query.sql(dialect="sqlite"))
            if not same_rows(rows, other, ordered, readers):
                return f"{what}: then the answer is {short_rows(other)}, not {short_rows(rows)}"
    except (SqlglotError, Unresolved, RecursionError, apsw.SQLError):
        pass
    return None


def _meaning(node: exp.Expression, connection: apsw.Connection) -> tuple[str, Meaning] | None:
    """Return the name and the meaning of a column of texts that are more; None of another node."""
    column = node.unnest()
    if not isinstance(column, exp.Column) or (table := table_of(column, connection)) is None:
        return None
    found = meaning_of(connection, table, column.name)
    return (f"{table}.{column.name}", found) if found else None


def _senseless(query: exp.Query, connection: apsw.Connection) -> str | None:
    """Return a line about dates or times as text that are added, or where no date is found."""
    for node in query.walk():
        value = node.this if isinstance(node, (exp.Sum, exp.Avg, *_COMPARED)) else None
        value = value.this if isinstance(value, exp.Cast) else value
        found = _meaning(value, connection) if isinstance(value, exp.Expression) else None
        if found and found[1].kind in ("date", "time", "word", "range"):
            what = f"{found[0]} holds {found[1].kind}s as text"
            if isinstance(node, exp.Sum | exp.Avg):
                return f"{what}, which can't be added"
            other = node.args.get("expression")
            number = isinstance(other, exp.Literal) and not other.is_string and other.name
            if found[1].kind == "date" and number and len(number) != len("2000"):
                return f"{what}, which can't be compared with {number}"
        for operand in _dates_of(node):
            column = operand.unnest()
            table = table_of(column, connection) if isinstance(column, exp.Column) else None
            if table is not None:
                name, of = quote_identifier(column.name), quote_identifier(table)
                counts = f"SELECT count({name}), count(julianday({name})) FROM {of}"
                filled, dates = (int(str(n)) for n in connection.execute(counts).fetchall()[0])
                if dates < filled / 2:
                    what = f"{dates:,} of {filled:,} values of {table}.{column.name}"
                    return f"{node.sql(dialect='sqlite')} finds a date in {what} only"
    return None


def _dates_of(node: exp.Expression) -> list[exp.Expression]:
    """Return what a function of SQLite's reads as a date; what a sum or a minimum in it is of."""
    name = node.name if isinstance(node, exp.Anonymous) else node.key
    if not isinstance(node, exp.Func) or name.lower() not in (*_DATED, "timetostr"):
        return []
    if any(one.name.lower() in ("unixepoch", "auto") for one in node.find_all(exp.Literal)):
        return []  # of a number
    value = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    if isinstance(node, exp.Anonymous) and name.lower() == "strftime":
        value = node.expressions[-1]
    while isinstance(value, exp.TsOrDsToTimestamp | exp.TsOrDsToDate | exp.Min | exp.Max):
        value = value.this
    return [value] if isinstance(value, exp.Expression) else []


def _read_values(query: exp.Query, connection: apsw.Connection, readers: Readers) -> str | None:
    """Let `query` read texts as what they mean; return of which columns, None if of none."""
    read: dict[str, str] = {}
    for node, operands in reversed(list(_operands(query))):  # inner ones first
        values = [_meant(node, one) for one in operands]
        for name, meaning in filter(None, (_meaning(value, connection) for value in values)):
            counted = meaning.kind == "number" or not isinstance(node, _CALCULATED)
            if counted and not meaning.sorted and meaning.kind != "boolean":
                read[name] = meaning.kind
                function = _function(connection, meaning, readers)
                for one, value in zip(operands, values, strict=True):
                    one.replace(exp.Anonymous(this=function, expressions=[value.copy()]))
                break
    named = [f"{column} holds {kind}s as text" for column, kind in read.items()]
    return "; ".join(named) or None


def _function(connection: apsw.Connection, meaning: Meaning, readers: Readers) -> str:
    """Return the name of a function of SQL that reads values as `meaning` says."""
    name = f"meant_{len(readers)}"
    readers.append(meaning.read)
    read: Any = meaning.read
    connection.create_scalar_function(name, read, 1, deterministic=True)
    return name


def _operands(query: exp.Query) -> Iterator[tuple[exp.Expression, list[exp.Expression]]]:
    """Yield what sorts, compares or calculates, with the values that it does this to."""
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
        elif isinstance(node, exp.Cast) and node.to.this in exp.DataType.NUMERIC_TYPES:
            yield node, [node.this]
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
            sides = (node.this, node.expression)
            yield node, [one for one in sides if not isinstance(one, exp.Literal)]


def _meant(node: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return what a term of ORDER BY stands for: an alias or a number is a column of the result."""
    select = node.find_ancestor(exp.Select)
    if not isinstance(node, exp.Ordered) or select is None:
        return value
    meant = resolve_term(select, value)  # a copy, which belongs to no query
    return next((one for one in select.find_all(type(meant)) if one == meant), meant)


def _read_booleans(query: exp.Query, connection: apsw.Connection, readers: Readers) -> str | None:
    """Let `query` test texts such as 'TRUE' as 1 and 0."""
    named = []
    for column in list(query.find_all(exp.Column)):
        node, found = column.parent, _meaning(column, connection)
        sides = [node.this, node.expression] if isinstance(node, exp.EQ | exp.NEQ | exp.Is) else []
        number = any(
            isinstance(one, exp.Boolean) or (isinstance(one, exp.Literal) and not one.is_string)
            for one in sides
        )
        if found and found[1].kind == "boolean" and (number or isinstance(node, _TESTING)):
            function = _function(connection, found[1], readers)
            column.replace(exp.Anonymous(this=function, expressions=[column.copy()]))
            named.append(f"{found[0]} holds booleans as text")
    return "; ".join(dict.fromkeys(named)) or None


def _read_literals(query: exp.Query, connection: apsw.Connection, _: Readers) -> str | None:
    """Let `query` compare columns of numbers, booleans and dates with what its texts mean."""
    named = []
    for literal in list(query.find_all(exp.Literal)):
        node = literal.parent
        if not literal.is_string or not isinstance(node, (*_COMPARED, exp.EQ, exp.NEQ, exp.In)):
            continue
        sides = (node.this, node.args.get("expression"))
        column = next((one for one in sides if isinstance(one, exp.Column)), None)
        value = column and _meant_by(literal.name, column, connection)
        if column is not None and value is not None:
            text = isinstance(value, str)
            literal.replace(exp.Literal.string(value) if text else exp.Literal.number(value))
            named.append(f"{column.name} has no {literal.name!r}, but perhaps {value!r}")
    return "; ".join(dict.fromkeys(named)) or None


def _meant_by(text: str, column: exp.Column, connection: apsw.Connection) -> Value | None:
    """Return what a text means that is compared with a column; None if the text itself."""
    found = _meaning(column, connection)
    if found and found[1].kind in ("date", "time"):
        value = found[1].read(text)
        return value if found[1].sorted and value != text else None
    if found or (table := table_of(column, connection)) is None:
        return None
    name, of = quote_identifier(column.name), quote_identifier(table)
    kinds = f"SELECT DISTINCT typeof({name}), {name} IN (0, 1) FROM {of} WHERE {name} IS NOT NULL"
    held = set(connection.execute(kinds).fetchall())
    if not held or not {kind for kind, _ in held} <= {"integer", "real"}:
        return None
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()] if {bit for _, bit in held} == {1} else None
    with suppress(ValueError):
        float(text)  # SQLite, too, reads it as a number
        return None
    return next(iter(readings(text, "number").values()), None)


def _put_nulls_last(query: exp.Query, _connection: apsw.Connection, _: Readers) -> str | None:
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
    named = ", ".join(dict.fromkeys(keys))
    return f"NULLs of {named} sort into the rows shown; they may come last" if keys else None


def _read_missing(query: exp.Query, _connection: apsw.Connection, _: Readers) -> str | None:
    """Let `query` read texts such as '-' as NULL where it asks for NULL."""
    asked = [node for node in query.find_all(exp.Is) if isinstance(node.expression, exp.Null)]
    columns = [node.this for node in asked if isinstance(node.this, exp.Column)]
    for column in columns:
        column.replace(exp.Anonymous(this="as_known", expressions=[column.copy()]))
    names = ", ".join(dict.fromkeys(column.sql(dialect="sqlite") for column in columns))
    return f"{names} has texts that stand for NULL beside NULL" if names else None


def _divide(query: exp.Query, _connection: apsw.Connection, _: Readers) -> str | None:
    """Let `query` divide whole numbers exactly."""
    divisions = [node for node in query.find_all(exp.Div) if not _steps(node)]
    for node in divisions:
        node.set("this", exp.cast(node.this.copy(), "REAL"))
    shown = ", ".join(dict.fromkeys(node.sql(dialect="sqlite") for node in divisions))
    return f"whole numbers are divided, and the result is cut in {shown[:100]}" if shown else None


def _steps(node: exp.Div) -> bool:
    """Return whether a division is to be cut: `year / 10 * 10`, or a group's key."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    back = isinstance(parent, exp.Mul) and node.expression in (parent.this, parent.expression)
    select = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select else None
    keys = [key.unalias() for key in group.expressions] if group else []
    return back or any(one == node for key in keys for one in key.find_all(exp.Div))


_READINGS = _read_values, _read_booleans, _read_literals, _put_nulls_last, _read_missing, _divide


def same_rows(
    left: Sequence[Row], right: Sequence[Row], ordered: bool, readers: Readers | None = None
) -> bool:
    """Return whether both have the same values, text or not, in the same order if it matters."""

    def comparable(cell: object) -> object:
        for read in readers or [] if isinstance(cell, str) else []:
            if (value := read(cell)) is not None and value != cell:
                cell = value
                break
        if isinstance(cell, str):
            cell = next(iter(readings(cell, "number").values()), cell)
        return float(f"{cell:.9g}") if isinstance(cell, int | float) else cell

    first, second = ([tuple(map(comparable, row)) for row in rows] for rows in (left, right))
    return first == second if ordered else Counter(first) == Counter(second)


def short_rows(rows: Sequence[Row]) -> str:
    """Return rows in one short line."""
    text = ", ".join(" | ".join(map(str, row)) for row in rows) or "empty"
    return text if len(text) <= 60 else text[:59] + "…"
