"""Columns whose dates are texts in a form whose order is not that of time."""

import re

from env_server.sql.connection import SqlConnection
from env_server.sql.statement import run_query
from shared.sqltext import quote_identifier

LOOKED_AT = 20  # rows of a table
MAX_TABLES, MAX_VM_STEPS = 200, 20_000  # a view may take long
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
# 31.12.1999, 12/31/99, 31 Dec 1999, December 31, 1999
TEXT_DATE = re.compile(
    rf"\d{{1,2}}([./-])\d{{1,2}}\1\d{{2,4}}(?!\d).*"
    rf"|(?:\d{{1,2}}[. -]*)?(?:{_MONTHS})[a-z]*[. ,-]*\d{{1,4}}(?!\d).*",
    re.IGNORECASE,
)


def text_date_columns(trusted: SqlConnection) -> frozenset[str]:
    """Return the names, in lower case, of columns with such a date in a table's first rows."""
    found = set[str]()
    for table in trusted.tables[:MAX_TABLES]:
        statement = f"SELECT * FROM {quote_identifier(table)}"
        first = run_query(trusted, statement, LOOKED_AT, max_vm_steps=MAX_VM_STEPS)
        for name, *cells in zip(first.columns, *first.rows, strict=True):
            if any(isinstance(one, str) and TEXT_DATE.fullmatch(one) for one in cells):
                found.add(name.lower())
    return frozenset(found)
