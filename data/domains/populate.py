"""Fill a domain's tables from a random stream, and write them as a SQLite file with reproducible
bytes."""

import random
from itertools import accumulate
from pathlib import Path

import apsw

from data.domains.spec import Column, Domain, Kind, Rows, Table, Value
from shared.sqltext import quote_identifier

PAGE_BYTES = 4096
# of a table's rows that no REF column points to, so that joins and NOT EXISTS have zero rows
UNREFERENCED_SHARE = 0.1
MIN_PARENTS = 5  # tables with fewer rows have every row referenced


def populate(domain: Domain, rng: random.Random) -> Rows:
    """Rows of every table, keys from 1 upwards. Each column draws from a stream of its own, seeded
    by `rng`."""
    rows: Rows = {}
    for table in domain.tables:
        cells = [
            _column_cells(table, column, rows, random.Random(rng.getrandbits(64)))
            for column in table.columns
        ]
        rows[table.name] = list(zip(*cells, strict=True))
    return rows


def _column_cells(table: Table, column: Column, rows: Rows, rng: random.Random) -> list[Value]:
    if column.kind is Kind.KEY:
        return list(range(1, table.rows + 1))
    if column.kind is Kind.REF:
        if column.references == table.name:
            return _own_references(table.rows, column.null_share, rng)
        if column.references not in rows:
            raise ValueError(
                f"{table.name}.{column.name} refers to {column.references}, which is not an earlier table"
            )
        return _references(table.rows, len(rows[column.references]), column.null_share, rng)
    if column.values is None:
        raise ValueError(f"{table.name}.{column.name} has no maker")
    cells = column.values(rng, table.rows)
    if len(cells) != table.rows:
        raise ValueError(
            f"{table.name}.{column.name}: its maker gave {len(cells)} cells for {table.rows} rows"
        )
    return cells


def _references(count: int, parents: int, null_share: float, rng: random.Random) -> list[Value]:
    """`count` keys of 1..parents, Zipf-like in a random order of the parents, some of whom are
    never drawn."""
    keys = rng.sample(range(1, parents + 1), parents)
    if parents >= MIN_PARENTS:
        keys = keys[: parents - max(1, round(parents * UNREFERENCED_SHARE))]
    # The offset keeps the commonest parent within a few times the mean, so that counts spread
    # without one giant.
    offset = 3 + len(keys) // 4
    cumulative = list(accumulate(1 / (offset + rank) for rank in range(len(keys))))
    return [
        None
        if null_share and rng.random() < null_share
        else rng.choices(keys, cum_weights=cumulative)[0]
        for _ in range(count)
    ]


def _own_references(count: int, null_share: float, rng: random.Random) -> list[Value]:
    """A forest: each row refers to an earlier row of its own table or to nothing; the first refers
    to nothing."""
    return [
        None
        if row == 0 or rng.random() < null_share
        else 1 + int(row * rng.random() * rng.random())
        for row in range(count)
    ]


def create_sql(table: Table, domain: Domain) -> str:
    """The CREATE TABLE statement, with its primary and foreign keys declared."""
    lines = []
    for column in table.columns:
        line = f"  {column.name} {column.kind.sql_type}"
        if column.kind is Kind.KEY:
            line += " PRIMARY KEY"
        if column.references is not None:
            line += f" REFERENCES {column.references}({domain.table(column.references).key.name})"
        lines.append(line)
    return f"CREATE TABLE {table.name} (\n" + ",\n".join(lines) + "\n)"


def fill(connection: apsw.Connection, domain: Domain, rows: Rows) -> None:
    """Create the domain's tables in an empty database and insert `rows`, all in one transaction."""
    with connection:
        for table in domain.tables:
            connection.execute(create_sql(table, domain))
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(
                f"INSERT INTO {quote_identifier(table.name)} VALUES ({marks})", rows[table.name]
            )


def write_database(domain: Domain, rows: Rows, path: Path) -> None:
    """Write `rows` as the SQLite file `path`, replacing what is there. One SQLite version always
    gives one file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("journal_mode", "memory")
        connection.pragma("synchronous", "off")
        connection.pragma("foreign_keys", True)
        fill(connection, domain, rows)
    finally:
        connection.close()


def open_memory(domain: Domain, rows: Rows) -> apsw.Connection:
    """An in-memory database of `rows`, for running gold queries without a file."""
    connection = apsw.Connection(":memory:")
    fill(connection, domain, rows)
    return connection
