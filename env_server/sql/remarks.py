"""Remarks on the result of an agent's statement: why it found nothing, and where it misleads.

They depend on the statement, the data and the limits alone, never on a gold. sqlglot reads the
statement. What it names is looked up on the agent's own jailed connection, within what the
statement left of its steps; a look-up that fails leaves its remark out.
"""

from itertools import chain

from env_server.sql.empty_results import why_empty
from env_server.sql.jobs import SqlResult
from env_server.sql.lookup import Lookup
from env_server.sql.misleading import misleading_in
from env_server.sql.sandbox import SqlConnection
from shared.sql_parser import parse_sql

MAX_REMARKS = 2
MAX_BRACKETS = 40  # a statement with more is not read


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
    nothing; if `misleading`, where it is not what it seems. `trusted` reads the names of columns.
    Raises `LookupStopped`, and `MemoryError`, after which the connection must be closed."""
    if sql.count("(") > MAX_BRACKETS:
        return []
    try:
        tree = parse_sql(sql)
    except Exception:  # sqlglot reads less than SQLite, and fails in many ways
        return []
    lookup = Lookup(connection, trusted, connection.limits.max_vm_steps - result.vm_steps)
    found = chain(
        why_empty(tree, lookup) if empty else (), misleading_in(tree, lookup) if misleading else ()
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
