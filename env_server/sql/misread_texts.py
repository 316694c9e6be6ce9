"""Columns whose dates or numbers are texts in a form whose order and sum are not theirs."""

import re

from env_server.sql.sandbox import SqlConnection
from env_server.sql.statement import check_lookup, run_query
from shared.sqltext import quote_identifier

LOOKED_AT = 20  # rows of a table
MAX_TABLES, MAX_VM_STEPS = 200, 20_000  # a view may take long
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY, _TIME = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:,?[ T]+\d{1,2}:\d{2}.*)?"
# 31.12.1999, 12/31/99, 31 Dec 1999, December 31, 1999, each with or without a time
TEXT_DATE = re.compile(
    rf"(?:{_DAY}([./-]){_DAY}\1(?:\d{{4}}|\d{{2}})|{_DAY}\.?[ -]{_MONTH}[ ,-]+\d{{2,4}}"
    rf"|{_MONTH} {_DAY},? \d{{4}}|{_MONTH} \d{{4}}){_TIME}",
    re.IGNORECASE,
)
_MARK, _THREES = "[$€£¥%]", "(?:[,'\u00a0\u202f]\\d{3})"
# 1,250.50, 1.250.000, 3,5, $9, 12 %: SQLite reads 1, 1.25, 3, 0 and 12
TEXT_NUMBER = re.compile(
    rf"[-+]?(?:{_MARK} ?)?(?:\d{{1,3}}{_THREES}+(?:[.,]\d+)?|\d{{1,3}}(?:\.\d{{3}})+,\d+"
    rf"|\d{{1,3}}(?:\.\d{{3}}){{2,}}|\d+,\d+)(?: ?{_MARK})?"
    rf"|[-+]?(?:{_MARK} ?\d+(?:\.\d+)?|\d+(?:\.\d+)? ?{_MARK})"
)
PLAIN_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")  # beside such texts; alone, it is read


def misread_columns(trusted: SqlConnection) -> frozenset[str]:
    """Return the names, in lower case, of columns with such a date or number in a table's first
    rows."""
    found = set[str]()
    for table in trusted.tables[:MAX_TABLES]:
        statement = f"SELECT * FROM {quote_identifier(table)}"
        first = run_query(trusted, statement, LOOKED_AT, max_vm_steps=MAX_VM_STEPS)
        check_lookup(first)
        for name, *cells in zip(first.columns, *first.rows, strict=True):
            texts = [one for one in cells if isinstance(one, str)]
            if any(TEXT_DATE.fullmatch(one) or TEXT_NUMBER.fullmatch(one) for one in texts):
                found.add(name.lower())
    return frozenset(found)
