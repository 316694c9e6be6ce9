"""Remarks on the result of an agent's statement: why it found nothing, and where it misleads.

They depend on the statement, the data and the limits alone, never on a gold. sqlglot reads the
statement. What it names is looked up on the agent's own jailed connection, within what the
statement left of its steps; a look-up that fails leaves its remark out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, count
from typing import Any

import sqlglot
from sqlglot import exp

from env_server.sql.connection import SqlConnection
from env_server.sql.jobs import STOPPED, Cell, Row, SqlResult
from env_server.sql.statement import ALL_ROWS, COLUMNS, OUT_OF_MEMORY, LookupStopped, run_query
from shared.sqltext import quote_identifier, quote_text, sql_name

MAX_REMARKS = 2
MAX_BRACKETS = 40  # a statement with more is not read
MAX_LOOKED_UP = 20  # conditions of a statement
FEW = 8  # values of a column that are all listed
NEAR_OF = 1_000  # values among which a similar one is sought
NEAR = 0.75  # least likeness of a value, by difflib's ratio
MAX_VALUE_CHARS = 40
_FLAG = "fraction_was_dropped"
_READ = {"dialect": "sqlite"}
_ORDERED = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_COMPARED = (exp.EQ, exp.NEQ, exp.Is, exp.Like, exp.Glob, exp.In, exp.Between, *_ORDERED)


def remarks_on(
    connection: SqlConnection,
    trusted: SqlConnection,
    sql: str,
    result: SqlResult,
    *,
    empty: bool,
    misleading: bool,
) -> list[str]:
    """Return at most `MAX_REMARKS` remarks on the `result` of a statement: if `empty`, why it found
    nothing; if `misleading`, where it is not what it seems.

    `trusted` reads the names of columns. Raises `LookupStopped`, and `MemoryError`, after which the
    connection must be closed.
    """
    if sql.count("(") > MAX_BRACKETS:
        return []
    try:
        tree = sqlglot.parse_one(sql, **_READ)
    except Exception:  # sqlglot reads less than SQLite, and fails in many ways
        return []
    lookup = _Lookup(connection, trusted, connection.limits.max_vm_steps - result.vm_steps)
    found = chain(
        _why_empty(tree, lookup) if empty else (), _misleading(tree, lookup) if misleading else ()
    )
    remarks = list[str]()
    try:
        for one in found:
            if one not in remarks:
                remarks.append(one)
            if len(remarks) == MAX_REMARKS:
                break
    except RecursionError:  # a statement nested deeper than Python's stack
        pass
    return remarks


class _Lookup:
    """Runs this module's own statements, within `steps` steps in all."""

    def __init__(self, connection: SqlConnection, trusted: SqlConnection, steps: int) -> None:
        self._connection, self._trusted, self._steps = connection, trusted, steps
        self._tables = {name.lower(): name for name in connection.tables}
        self._columns: dict[str, list[str]] = {}

    def rows(self, sql: str, most: int = 1) -> list[Row] | None:
        """Return at most `most` rows; None if the statement fails or too few steps are left."""
        if self._steps < self._connection.limits.handler_vm_steps:
            return None
        result = run_query(self._connection, sql, most, max_vm_steps=self._steps)
        if result.error_code == STOPPED:
            raise LookupStopped
        if result.error == OUT_OF_MEMORY:
            raise MemoryError
        self._steps -= max(result.vm_steps, self._connection.limits.handler_vm_steps)
        return None if result.error is not None else result.rows

    def table(self, name: str) -> str | None:
        return self._tables.get(name.lower())

    def is_empty(self, table: str) -> bool:
        return self.rows(f"SELECT 1 FROM {quote_identifier(table)}") == []

    def columns(self, table: str) -> list[str]:
        if table not in self._columns:
            statement = COLUMNS.format(name=quote_text(table))
            found = run_query(self._trusted, statement, ALL_ROWS)
            self._columns[table] = [str(row[0]) for row in found.rows]
        return self._columns[table]


@dataclass(frozen=True, slots=True)
class _Place:
    """A column of a table."""

    table: str
    column: str

    @property
    def shown(self) -> str:
        return sql_name(self.column)

    @property
    def whole(self) -> str:
        return f"{sql_name(self.table)}.{sql_name(self.column)}"

    def select(self, what: str, where: str = "") -> str:
        """Return a SELECT of this column, which the texts call {c}."""
        column, table = quote_identifier(self.column), quote_identifier(self.table)
        condition = f" WHERE {where.format(c=column)}" if where else ""
        return f"SELECT {what.format(c=column)} FROM {table}{condition}"


class _Scope:
    """The tables of one SELECT, without those of the queries around and inside it."""

    def __init__(self, select: exp.Select, names: "_Names", lookup: _Lookup) -> None:
        self.tables: dict[str, str] = {}  # by the name that the statement uses for it
        first = select.args.get("from_") or select.args.get("from")
        joined = [join.this for join in select.args.get("joins") or []]
        for source in [*([first.this] if first else []), *joined]:
            if (table := names.table(source)) is not None:
                self.tables[source.alias_or_name.lower()] = table
        self._names, self._lookup = names, lookup

    def place(self, node: exp.Expression | None) -> _Place | None:
        """Return the column that a node names; None if it is none, or not certainly that of one
        table."""
        if not isinstance(node, exp.Column):
            return None
        if node.table:
            table = self.tables.get(node.table.lower())
            tables = [table] if table else []
        else:
            tables = list(self.tables.values())
        found = [
            _Place(table, column)
            for table in tables
            for column in self._lookup.columns(table)
            if column.lower() == node.name.lower()
        ]
        return found[0] if len(found) == 1 else None

    def text(self, node: exp.Expression | None) -> str | None:
        """Return the text that a node is, also a name in double quotes that is no column."""
        if isinstance(node, exp.Literal) and node.is_string:
            return str(node.this)
        quoted = isinstance(node, exp.Column) and not node.table and node.this.quoted
        return node.name if quoted and node is not None and self._names.is_text(node.name) else None

    def literal(self, node: exp.Expression | None) -> str | None:
        """Return a text or number as SQL writes it; None for anything else."""
        if (text := self.text(node)) is not None:
            return quote_text(text)
        number = node.this if isinstance(node, exp.Neg) else node
        plain = isinstance(number, exp.Literal) and not number.is_string
        return node.sql(**_READ) if node is not None and plain else None


class _Names:
    """What the names in a whole statement may stand for."""

    def __init__(self, tree: exp.Expression, lookup: _Lookup) -> None:
        self._lookup = lookup
        self._defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        sources = list(tree.find_all(exp.Table))
        tables = [self.table(source) for source in sources]
        self._known = {alias.name.lower() for alias in tree.find_all(exp.TableAlias)}
        self._known |= {one.alias.lower() for one in tree.find_all(exp.Alias)}
        self._known |= {"rowid", "_rowid_", "oid"}
        for table in filter(None, tables):
            self._known |= {column.lower() for column in lookup.columns(table)}
        # a query in place of a table shows columns of the tables above or aliases; a WITH table,
        # perhaps others
        renamed = any(alias.args.get("columns") for alias in tree.find_all(exp.TableAlias))
        self._all_known = None not in tables and not renamed

    def table(self, source: exp.Expression) -> str | None:
        """Return the database's table that a source is, if it is one."""
        if not isinstance(source, exp.Table):
            return None
        defined = not source.db and source.name.lower() in self._defined
        return None if defined else self._lookup.table(source.name)

    def is_text(self, name: str) -> bool:
        """Return whether a name in double quotes can only be read as a text."""
        return self._all_known and name.lower() not in self._known


# -- nothing found


def _why_empty(tree: exp.Expression, lookup: _Lookup) -> Iterator[str]:
    """Yield what in the conditions of a statement no row can meet."""
    names, looked_up = _Names(tree, lookup), count()
    for select in tree.find_all(exp.Select):
        if select.find_ancestor(exp.Not) is not None:
            continue
        scope = _Scope(select, names, lookup)
        empty = [table for table in scope.tables.values() if lookup.is_empty(table)]
        yield from (f"{sql_name(table)} has no rows" for table in empty)
        where = select.args.get("where")
        roots = [where.this] if where and not empty else []
        roots += [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
        for root in roots if not empty else ():
            yield from _unmet(root, scope, lookup, looked_up)


def _unmet(
    node: exp.Expression, scope: _Scope, lookup: _Lookup, looked_up: Iterator[int]
) -> Iterator[str]:
    """Yield what no row can meet in a condition: of an OR, only if all of it is so."""
    if isinstance(node, (exp.And, exp.Paren)):
        for child in node.iter_expressions():
            yield from _unmet(child, scope, lookup, looked_up)
    elif isinstance(node, exp.Or):
        sides = [list(_unmet(one, scope, lookup, looked_up)) for one in node.iter_expressions()]
        if all(sides):
            yield from chain.from_iterable(sides)
    elif not isinstance(node, exp.Not) and next(looked_up) < MAX_LOOKED_UP:
        yield from _impossible(node, scope, lookup)


def _impossible(node: exp.Expression, scope: _Scope, lookup: _Lookup) -> Iterator[str]:
    left, right = node.this, node.args.get("expression")
    if isinstance(node, (exp.EQ, exp.NEQ)) and isinstance(right, exp.Null):
        sign, word = ("=", "IS") if isinstance(node, exp.EQ) else ("<>", "IS NOT")
        if (place := scope.place(left)) is not None:
            yield f"{place.shown} {sign} NULL is never true: write {place.shown} {word} NULL"
        return
    if isinstance(node, exp.EQ):
        first, second = scope.place(left), scope.place(right)
        if first and second:
            yield from _no_shared_value(first, second, lookup)
            return
        place, value = (first, right) if first else (second, left)
        if place and (literal := scope.literal(value)) is not None:
            yield from _absent(place, [literal], scope.text(value), lookup)
    elif isinstance(node, exp.In) and (place := scope.place(left)):
        literals = [scope.literal(one) for one in node.expressions]
        if node.expressions and None not in literals:
            text = scope.text(node.expressions[0])
            yield from _absent(place, list(filter(None, literals)), text, lookup)
    elif isinstance(node, exp.Like) and (place := scope.place(left)):
        if (text := scope.text(right)) is not None:
            pattern = quote_text(text)
            if lookup.rows(place.select("1", f"{{c}} LIKE {_braced(pattern)}")) == []:
                part = text.strip("%_")
                yield _lacks(place, f"{place.shown} is never like {pattern}", part, lookup)
    elif (order := _ORDERED.get(type(node))) is not None and (place := scope.place(left)):
        if (literal := scope.literal(right)) is not None:
            condition = f"{{c}} {order} {_braced(literal)}"
            if lookup.rows(place.select("1", condition)) == []:
                yield from _range(place, f"{order} {literal}", lookup)
    elif isinstance(node, exp.Between) and (place := scope.place(left)):
        low, high = (scope.literal(node.args.get(end)) for end in ("low", "high"))
        if low is not None and high is not None:
            condition = f"{{c}} BETWEEN {_braced(low)} AND {_braced(high)}"
            if lookup.rows(place.select("1", condition)) == []:
                yield from _range(place, f"between {low} and {high}", lookup)


def _braced(literal: str) -> str:
    """Return a literal for the text of a condition, in which braces are doubled."""
    return literal.replace("{", "{{").replace("}", "}}")


def _no_shared_value(first: _Place, second: _Place, lookup: _Lookup) -> Iterator[str]:
    if first == second:
        return
    a, b = quote_identifier(first.column), quote_identifier(second.column)
    tables = f"{quote_identifier(first.table)} AS a, {quote_identifier(second.table)} AS b"
    if lookup.rows(f"SELECT 1 FROM {tables} WHERE a.{a} = b.{b}") == []:
        yield f"{first.whole} and {second.whole} have no value in common"


def _absent(
    place: _Place, literals: Sequence[str], text: str | None, lookup: _Lookup
) -> Iterator[str]:
    """Yield a remark if the column has none of the values."""
    listed = ", ".join(map(_braced, literals))
    if lookup.rows(place.select("1", f"{{c}} IN ({listed})")) == []:
        named = " or ".join(literals[:2]) + (" ..." if len(literals) > 2 else "")
        yield _lacks(place, f"{place.shown} has no {named}", text, lookup)


def _lacks(place: _Place, problem: str, text: str | None, lookup: _Lookup) -> str:
    """Return a problem with a column's value, and the values that come nearest, if any is found."""
    shown = _nearest(place, text, lookup)
    return f"{problem}; {shown}" if shown else problem


def _nearest(place: _Place, text: str | None, lookup: _Lookup) -> str:
    if text:
        quoted = _braced(quote_text(text))
        same = lookup.rows(place.select("{c}", f"lower(trim({{c}})) = lower(trim({quoted}))"))
        if same:
            return f"it has {_listed(same)}"
    few = lookup.rows(place.select("DISTINCT {c}", "{c} IS NOT NULL"), FEW + 1)
    if few is None:
        return ""
    if not few:
        return "it has only NULL"
    if any(isinstance(row[0], bytes) for row in few):
        return ""
    short = all(len(_literal(row[0])) <= MAX_VALUE_CHARS for row in few)
    if len(few) <= FEW and short:
        return f"it has {_listed(sorted(few, key=lambda row: (str(type(row[0])), row[0])))}"
    if text is None:
        return _ends(place, lookup)
    if len(text) > 1:
        if holding := _holding(place, text, lookup):
            return f"it has {_listed(holding)}"
        if near := _similar(place, text, lookup):
            return f"it has {_listed(near)}"
    return f"it has values such as {_listed(few[:2])}" if short else ""


def _holding(place: _Place, text: str, lookup: _Lookup) -> list[Row]:
    """Return values that begin with the text, or else hold it."""
    for position in ("= 1", "> 1"):
        quoted = _braced(quote_text(text.lower()))
        where = f"instr(lower({{c}}), {quoted}) {position} AND length({{c}}) <= {MAX_VALUE_CHARS}"
        if found := lookup.rows(place.select("DISTINCT {c}", where), 2):
            return found
    return []


def _similar(place: _Place, text: str, lookup: _Lookup) -> list[Row]:
    """Return values that are spelled nearly like the text."""
    where = f"typeof({{c}}) = 'text' AND length({{c}}) <= {MAX_VALUE_CHARS}"
    values = lookup.rows(place.select("DISTINCT {c}", where), NEAR_OF) or []
    by_case = {str(row[0]).lower(): row for row in values}
    return [by_case[one] for one in get_close_matches(text.lower(), by_case, 2, NEAR)]


def _range(place: _Place, condition: str, lookup: _Lookup) -> Iterator[str]:
    """Yield a remark on an inequality that no value of the column meets."""
    if ends := _ends(place, lookup):
        yield f"no {place.shown} is {condition}; {ends}"


def _ends(place: _Place, lookup: _Lookup) -> str:
    ends = lookup.rows(place.select("min({c}), max({c})"))
    if not ends or any(len(_literal(one)) > MAX_VALUE_CHARS for one in ends[0]):
        return ""
    low, high = map(_literal, ends[0])
    return "it has only NULL" if ends[0][0] is None else f"it has {low} to {high}"


def _listed(rows: Iterable[Row]) -> str:
    return ", ".join(_literal(row[0]) for row in rows)


def _literal(cell: Cell) -> str:
    if isinstance(cell, bytes):
        return "a blob"
    return quote_text(cell) if isinstance(cell, str) else "NULL" if cell is None else repr(cell)


# -- misleading results


def _misleading(tree: exp.Expression, lookup: _Lookup) -> Iterator[str]:
    names = _Names(tree, lookup)
    for select in tree.find_all(exp.Select):
        yield from _names_read_as_text(select, _Scope(select, names, lookup))
    if isinstance(tree, exp.Select) and _cuts_fractions(tree, lookup):
        yield "whole numbers were divided, which drops the fraction; to keep it, write 1.0 * a / b"


def _names_read_as_text(select: exp.Select, scope: _Scope) -> Iterator[str]:
    """Yield the names in double quotes, outside comparisons, that are no columns."""
    ordered = [one for name in ("group", "order") if (one := select.args.get(name))]
    for root in [*select.expressions, *ordered]:
        for column in _own(root, exp.Column):
            compared = not isinstance(column.find_ancestor(*_COMPARED, exp.Select), exp.Select)
            if not compared and (text := scope.text(column)) is not None:
                name = quote_identifier(text)
                yield f"{name} is no column: it was read as the text {quote_text(text)}"


def _own(root: exp.Expression, kind: Any) -> list[Any]:
    """Return the nodes of a kind below `root`, without those of queries inside it."""
    nodes = root.walk(prune=lambda node: isinstance(node, exp.Query))
    return [node for node in nodes if isinstance(node, kind)]


def _cuts_fractions(select: exp.Select, lookup: _Lookup) -> bool:
    """Return whether a division in the result's columns had two whole numbers and a remainder.

    Divisions that want whole numbers are left out: (a + 2) / 3, a / 10 * 10, and sort keys.
    """
    divisions = [
        div
        for one in select.expressions
        for div in _own(one, exp.Div)
        if div.find_ancestor(exp.Mul, exp.Ordered, exp.Mod, exp.Select) is div.parent_select
        and not isinstance(div.this.unnest(), (exp.Add, exp.Sub))
    ]
    if not divisions or select.args.get("distinct"):
        return False
    flags = []
    for div in divisions:
        left, right = (side.sql(**_READ) for side in (div.this, div.expression))
        whole = f"typeof({left}) = 'integer' AND typeof({right}) = 'integer'"
        cut = f"({whole} AND ({left}) % ({right}) <> 0)"
        # of a group, any row's
        flags.append(cut if div.find(exp.AggFunc) or not select.args.get("group") else f"max{cut}")
    flag = sqlglot.parse_one(f"SELECT {' OR '.join(flags)} AS {_FLAG}", **_READ).expressions[0]
    asked = select.copy()
    asked.append("expressions", flag)  # the others stay: ORDER BY and GROUP BY may name them
    rows = lookup.rows(f"SELECT max({_FLAG}) FROM ({asked.sql(**_READ)})")
    return rows is not None and rows[0][0] == 1
