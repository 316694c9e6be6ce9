"""What a statement names, looked up on the agent's own jailed connection."""

from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from env_server.sql.jobs import Row
from env_server.sql.sandbox import SqlConnection
from env_server.sql.statement import check_lookup, columns_of, run_query
from shared.sqltext import quote_identifier, quote_text, sql_name

READ = {"dialect": "sqlite"}


class Lookup:
    """Runs statements of remarks, within `steps` steps in all."""

    def __init__(self, connection: SqlConnection, trusted: SqlConnection, steps: int) -> None:
        self._connection, self._trusted, self._steps = connection, trusted, steps
        self._tables = {name.lower(): name for name in connection.tables}

    def rows(self, sql: str, most: int = 1) -> list[Row] | None:
        """Return at most `most` rows; None if the statement fails or too few steps are left."""
        if self._steps < self._connection.limits.handler_vm_steps:
            return None
        result = run_query(self._connection, sql, most, max_vm_steps=self._steps)
        check_lookup(result)
        self._steps -= max(result.vm_steps, self._connection.limits.handler_vm_steps)
        return None if result.error is not None else result.rows

    def table(self, name: str) -> str | None:
        return self._tables.get(name.lower())

    def is_empty(self, table: str) -> bool:
        return self.rows(f"SELECT 1 FROM {quote_identifier(table)}") == []

    def columns(self, table: str) -> list[str]:
        known = self._trusted.columns_by_table
        if table not in known:
            found = columns_of(self._trusted, table)
            if found.error is not None:
                return []
            known[table] = [str(row[0]) for row in found.rows]
        return known[table]


@dataclass(frozen=True, slots=True)
class Place:
    table: str
    column: str

    @property
    def shown(self) -> str:
        return sql_name(self.column)

    @property
    def whole(self) -> str:
        return f"{sql_name(self.table)}.{sql_name(self.column)}"

    @property
    def quoted(self) -> str:
        return quote_identifier(self.column)

    @property
    def distinct(self) -> str:
        return self.select(f"DISTINCT {self.quoted}", f"{self.quoted} IS NOT NULL")

    def select(self, what: str, where: str = "") -> str:
        condition = f" WHERE {where}" if where else ""
        return f"SELECT {what} FROM {quote_identifier(self.table)}{condition}"


class Scope:
    """The tables of one SELECT, without those of the queries around and inside it."""

    def __init__(self, select: exp.Select, names: "Names", lookup: Lookup) -> None:
        self.tables: dict[str, str] = {}  # by the name that the statement uses for it
        first = select.args.get("from_") or select.args.get("from")
        joined = [join.this for join in select.args.get("joins") or []]
        for source in [*([first.this] if first else []), *joined]:
            if (table := names.table(source)) is not None:
                self.tables[source.alias_or_name.lower()] = table
        self._names, self._lookup = names, lookup

    def place(self, node: exp.Expression | None) -> Place | None:
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
            Place(table, column)
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
        return node.sql(**READ) if node is not None and plain else None


class Names:
    """What the names in a whole statement may stand for."""

    def __init__(self, tree: exp.Expression, lookup: Lookup) -> None:
        self._tree, self._lookup = tree, lookup
        self._defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}

    def table(self, source: exp.Expression) -> str | None:
        """Return the database's table that a source is, if it is one."""
        if not isinstance(source, exp.Table):
            return None
        defined = not source.db and source.name.lower() in self._defined
        return None if defined else self._lookup.table(source.name)

    def is_text(self, name: str) -> bool:
        """Return whether a name in double quotes can only be read as a text."""
        return self._columns is not None and name.lower() not in self._columns

    @cached_property  # few statements need it, and each walk of a tree takes time
    def _columns(self) -> set[str] | None:
        """What a name may be beside a text, in lower case; None if that is not known."""
        tables = [self.table(source) for source in self._tree.find_all(exp.Table)]
        aliases = list(self._tree.find_all(exp.TableAlias))
        # a query in place of a table shows columns of the tables above or aliases; a WITH table,
        # perhaps others
        if None in tables or any(alias.args.get("columns") for alias in aliases):
            return None
        known = {alias.name.lower() for alias in aliases}
        known |= {one.alias.lower() for one in self._tree.find_all(exp.Alias)}
        known |= {"rowid", "_rowid_", "oid"}
        for table in filter(None, tables):
            known |= {column.lower() for column in self._lookup.columns(table)}
        return known
