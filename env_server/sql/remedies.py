"""What an error of an agent's statement should have been, in one line: names that need quotes,
names that are nearly right, and SQLite's way of what other dialects write."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from env_server.sql.connection import SqlConnection
from env_server.sql.limits import MAX_TABLES_NAMED
from env_server.sql.statement import ALL_ROWS, COLUMNS, NO_COLUMN, TOO_WIDE, run_query
from shared.sqltext import RESERVED, quote_identifier, quote_text, sql_name

Columns = Mapping[str, list[str]]  # by table

NAMED = 2  # names in one remedy
NEAR = 0.75  # least likeness of a name to be suggested, by difflib's ratio
NO_TABLE, NO_FUNCTION = "no such table: ", "no such function: "
_NEAR_TOKEN = re.compile(r'near "(.*?)": syntax error', re.DOTALL)
_PART_OF_DATE = "use strftime('{0}', x), a text: CAST(strftime('{0}', x) AS INTEGER) is a number"
_MOVED_DATE = "use date(x, '+1 day') or date(x, '-1 month')"
_FUNCTIONS = {
    "year": _PART_OF_DATE.format("%Y"),
    "month": _PART_OF_DATE.format("%m"),
    **dict.fromkeys(("day", "dayofmonth"), _PART_OF_DATE.format("%d")),
    "hour": _PART_OF_DATE.format("%H"),
    **dict.fromkeys(("dayofweek", "weekday"), _PART_OF_DATE.format("%w")),
    "quarter": "use (CAST(strftime('%m', x) AS INTEGER) + 2) / 3",
    "date_trunc": "use date(x, 'start of month') or date(x, 'start of year')",
    **dict.fromkeys(("datediff", "date_diff"), "use julianday(a) - julianday(b), in days"),
    **dict.fromkeys(("dateadd", "date_add", "date_sub"), _MOVED_DATE),
    **dict.fromkeys(("date_format", "to_char", "format_date"), "use strftime('%Y-%m', x)"),
    **dict.fromkeys(("to_date", "str_to_date", "to_timestamp"), "use date(x) of a text"),
    **dict.fromkeys(("now", "getdate", "curdate", "sysdate"), "use date('now')"),
    **dict.fromkeys(("len", "char_length", "character_length"), "use length(x)"),
    **dict.fromkeys(("isnull", "nvl"), "use ifnull(x, y)"),
    **dict.fromkeys(("strpos", "locate", "charindex", "position"), "use instr(text, part)"),
    **dict.fromkeys(("split_part", "substring_index"), "use substr(x, 1, instr(x, part) - 1)"),
    **dict.fromkeys(("regexp", "regexp_like", "rlike"), "use LIKE '%part%'"),
    **dict.fromkeys(("array_agg", "listagg"), "use group_concat(x)"),
    **dict.fromkeys(("to_number", "int", "convert"), "use CAST(x AS INTEGER)"),
    "left": "use substr(x, 1, n)",
    "right": "use substr(x, -n)",
    "greatest": "use max(x, y)",
    "least": "use min(x, y)",
    **dict.fromkeys(
        ("stddev", "stddev_pop", "stdev", "std"), "use sqrt(avg(x * x) - avg(x) * avg(x))"
    ),
    **dict.fromkeys(("variance", "var_pop", "var"), "use avg(x * x) - avg(x) * avg(x)"),
}
# Where SQLite finds a syntax error in another dialect's form.
_FORMS = [
    (re.compile(pattern, re.IGNORECASE), remedy)
    for pattern, remedy in (
        (r"\w\s*::\s*\w", "use CAST(x AS type)"),
        (r"\bILIKE\b", "use LIKE, which ignores the case of ASCII letters"),
        (r"\bSELECT\s+(?:DISTINCT\s+)?TOP\b", "use LIMIT n at the end"),
        (r"\bFETCH\s+(?:FIRST|NEXT)\b", "use LIMIT n at the end"),
        (r"\bEXTRACT\s*\(", _PART_OF_DATE.format("%Y")),
        (r"\bINTERVAL\b", _MOVED_DATE),
        (r"\b(?:DATE|TIMESTAMP)\s+'", "write a date as a text: '2024-01-31'"),
        (r"\bSIMILAR\s+TO\b|[^!]~", "use LIKE '%part%'"),
        (r"\bQUALIFY\b", "filter on a window function in an outer SELECT"),
        (r"[=<>]\s*(?:ANY|ALL)\s*\(", "use IN (SELECT ...), or compare with its max() or min()"),
    )
]
_TEXTS = re.compile(r"'(?:[^']|'')*'")


def remedy_of(trusted: SqlConnection, sql: str, error: str) -> str:
    """Return what to write instead of a statement that failed with `error`; "" if unknown.

    `trusted` reads the names of the tables' columns.
    """
    if error.startswith(TOO_WIDE):
        return f"name the columns you need, at most {trusted.limits.max_columns}"
    token = _NEAR_TOKEN.search(error)
    unread = token is not None or error.startswith("unrecognized token")
    if error.startswith(NO_FUNCTION):
        name = error.removeprefix(NO_FUNCTION).split(";")[0].strip().lower()
        return _FUNCTIONS.get(name, "")
    if not (unread or error.startswith((NO_TABLE, NO_COLUMN))):
        return ""
    columns = {table: _columns(trusted, table) for table in trusted.tables[:MAX_TABLES_NAMED]}
    outside = _TEXTS.sub("''", sql)
    if quoted := list(_unquoted(outside, columns, token[1] if token else "")):
        names = " and ".join(map(quote_identifier, quoted[:NAMED]))
        return f"write {names}, in double quotes"
    if unread:
        forms = (remedy for form, remedy in _FORMS if form.search(outside))
        return next(forms, _nearest(token[1], columns) if token else "")
    name = error.partition(": ")[2].split(";")[0].strip()
    if error.startswith(NO_TABLE):
        return _nearest(name, columns)
    return _column(name.rpartition(".")[2].strip('"'), outside, columns)


def _columns(trusted: SqlConnection, table: str) -> list[str]:
    found = run_query(trusted, COLUMNS.format(name=quote_text(table)), ALL_ROWS)
    return [str(row[0]) for row in found.rows]


def _unquoted(sql: str, columns: Columns, token: str) -> Iterator[str]:
    """Yield the names that need quotes and stand in a statement without them, also squeezed into
    one word: parts_catalog for "Parts Catalog". `token` is where a syntax error was found."""
    every = dict.fromkeys([*columns, *(name for names in columns.values() for name in names)])
    plain = {name.lower() for name in every}
    words = {_squeezed(word): word for word in re.findall(r"\w+", sql) if word.lower() not in plain}
    for name in every:
        if sql_name(name) == name:
            continue
        if RESERVED.fullmatch(name):  # the word also stands where it is no name
            source = re.search(rf"\b(?:FROM|JOIN|,)\s+{name}\b", sql, re.IGNORECASE)
            if name.lower() == token.lower() and (source is None or name in columns):
                yield name
            continue
        text = r"\s+".join(map(re.escape, name.split()))
        bare = re.search(rf"""(?<![\w"`\[]){text}(?![\w"`\]])""", sql, re.IGNORECASE)
        if bare or _squeezed(name) in words:
            yield name


def _squeezed(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name.lower()))


def _nearest(name: str, names: Iterable[str]) -> str:
    by_case = {one.lower(): one for one in names}
    near = get_close_matches(name.lower(), by_case, NAMED, NEAR)
    return f"did you mean {' or '.join(sql_name(by_case[one]) for one in near)}?" if near else ""


def _column(name: str, sql: str, columns: Columns) -> str:
    """Return where the column is, or which names of the tables in the statement are near it."""
    holders = [table for table, names in columns.items() if name.lower() in map(str.lower, names)]
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    elsewhere = [table for table in holders if table.lower() not in words]
    if elsewhere and len(elsewhere) == len(holders):
        return f"{sql_name(name)} is a column of {' and '.join(map(sql_name, elsewhere[:NAMED]))}"
    named = [table for table in columns if table.lower() in words] or list(columns)
    near = _nearest(name, [one for table in named for one in columns[table]])
    return near or _FUNCTIONS.get(name.lower(), "")  # also where it is written without brackets
