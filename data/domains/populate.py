"""Fill a domain's tables from a random stream and write them as reproducible SQLite files."""

import random
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import apsw

from data.domains.spec import Domain, Kind, Rows, Value
from shared.sqltext import quote_identifier

PAGE_BYTES = 4096
SQL_TYPES = {
    **dict.fromkeys((Kind.KEY, Kind.REF, Kind.INTEGER), "INTEGER"),
    **{Kind.REAL: "REAL", Kind.DATE: "DATE"},
}  # the others are TEXT
UNREFERENCED_SHARE = 0.1  # of a table's rows, so that NOT EXISTS and outer joins have results


def populate(domain: Domain, rng: random.Random) -> Rows:
    """Return the rows of every table, with keys from 1 upwards.

    Each column draws from its own stream, seeded from `rng`.
    """
    rows: Rows = {}
    for table in domain.tables:
        cells: list[list[Value]] = []
        for column in table.columns:
            stream = random.Random(rng.getrandbits(64))
            if column.values is not None:
                cells.append(column.values(stream, table.rows))
            elif column.references is not None:
                parents = len(rows[column.references])
                cells.append(_references(table.rows, parents, column.null_share, stream))
            else:
                cells.append(list(range(1, table.rows + 1)))
        rows[table.name] = list(zip(*cells, strict=True))
    return rows


def _references(count: int, parents: int, null_share: float, rng: random.Random) -> list[Value]:
    """Draw `count` keys of 1..parents, Zipf-like in a random order; some are never drawn."""
    keys = rng.sample(range(1, parents + 1), parents)
    keys = keys[: parents - round(parents * UNREFERENCED_SHARE)]
    # The offset keeps the most frequent parent within a few times the mean.
    offset = 3 + len(keys) // 4
    cumulative = list(accumulate(1 / (offset + rank) for rank in range(len(keys))))

    def draw() -> Value:
        if null_share and rng.random() < null_share:
            return None
        return rng.choices(keys, cum_weights=cumulative)[0]

    return [draw() for _ in range(count)]


def _fill(connection: apsw.Connection, domain: Domain, rows: Rows) -> None:
    """Create the domain's tables in an empty database and insert `rows`, in one transaction."""
    with connection:
        for table in domain.tables:
            lines = []
            for column in table.columns:
                line = f"  {column.name} {SQL_TYPES.get(column.kind, 'TEXT')}"
                if column.kind is Kind.KEY:
                    line += " PRIMARY KEY"
                if column.references is not None:
                    key = domain.table(column.references).key.name
                    line += f" REFERENCES {column.references}({key})"
                lines.append(line)
            connection.execute(f"CREATE TABLE {table.name} (\n" + ",\n".join(lines) + "\n)")
            marks = ", ".join("?" * len(table.columns))
            insert = f"INSERT INTO {quote_identifier(table.name)} VALUES ({marks})"
            connection.executemany(insert, rows[table.name])


def write_database(domain: Domain, rows: Rows, path: Path) -> None:
    """Write `rows` as the SQLite file `path`; its bytes depend on them and SQLite's version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("journal_mode", "memory")
        connection.pragma("synchronous", "off")
        connection.pragma("foreign_keys", True)
        _fill(connection, domain, rows)


def open_memory(domain: Domain, rows: Rows) -> apsw.Connection:
    """Return an in-memory database of `rows`, for running gold queries without a file."""
    connection = apsw.Connection(":memory:")
    _fill(connection, domain, rows)
    return connection
