"""What to write instead of a statement that failed, in one line: names that need quotes, names that
are nearly right, and SQLite's way of what other dialects write."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from env_server.sql.limits import MAX_TABLES_NAMED
from env_server.sql.sandbox import SqlConnection
from env_server.sql.statement import NO_COLUMN, TOO_WIDE, columns_of
from shared.sqltext import RESERVED, quote_identifier, sql_name

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
    **dict.fromkeys(("dayofweek", "weekday"), f"{_PART_OF_DATE.format('%w')}, 0 for Sunday"),
    "quarter": "use (CAST(strftime('%m', x) AS INTEGER) + 2) / 3",
    "date_trunc": "use date(x, 'start of month') or date(x, 'start of year')",
    **dict.fromkeys(("datediff", "date_diff"), "use julianday(a) - julianday(b), in days"),
    **dict.fromkeys(("dateadd", "date_add", "date_sub"), _MOVED_DATE),
    **dict.fromkeys(("date_format", "to_char", "format_date"), "use strftime('%Y-%m', x)"),
    **dict.fromkeys(("to_date", "str_to_date", "to_timestamp"), "use date(x) of a text"),
    **dict.fromkeys(("now", "getdate", "curdate", "sysdate"), "use date('now')"),
    **dict.fromkeys(("len", "char_length", "character_length"), "use length(x)"),
    "nvl": "use ifnull(x, y)",
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
        ("stddev", "stddev_pop", "stdev", "std"),
        "use sqrt(avg(x * x) - avg(x) * avg(x)), of a whole population",
    ),
    **dict.fromkeys(
        ("variance", "var_pop", "var"), "use avg(x * x) - avg(x) * avg(x), of a whole population"
    ),
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
        (r"\bINTERVAL\s+['\d]", _MOVED_DATE),
        (r"\b(?:DATE|TIMESTAMP)\s+'", "write a date as a text: '2024-01-31'"),
        (r"\bSIMILAR\s+TO\b|[^!]~", "use LIKE '%part%'"),
        (r"\bQUALIFY\b", "filter on a window function in an outer SELECT"),
        (r"[=<>]\s*(?:ANY|ALL)\s*\(", "use IN (SELECT ...), or compare with its max() or min()"),
    )
]
_QUOTED_OR_COMMENT = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_READ_UNQUOTED = re.compile(r"[^\W\d][\w$]*")  # by SQLite


def remedy_of(trusted: SqlConnection, sql: str, error: str) -> str:
    """Return what to write instead of a statement that failed with `error`; "" if unknown."""
    if error.startswith(TOO_WIDE):
        return f"name the columns you need, at most {trusted.limits.max_columns}"
    if error.startswith(NO_FUNCTION):
        return _FUNCTIONS.get(error.removeprefix(NO_FUNCTION).strip().lower(), "")
    token = _NEAR_TOKEN.search(error)
    if token is None and not error.startswith((NO_TABLE, NO_COLUMN, "unrecognized token")):
        return ""
    columns = {
        table: [str(row[0]) for row in columns_of(trusted, table).rows]
        for table in trusted.tables[:MAX_TABLES_NAMED]
    }
    name = token[1] if token else error.partition(": ")[2].strip()
    outside = _QUOTED_OR_COMMENT.sub(" ", sql)
    mentioned = _mentioned(sql, columns)
    if quoted := _unquoted(name.rpartition(".")[2], outside, columns, mentioned):
        return f"write {quote_identifier(quoted)}, in double quotes"
    if error.startswith(NO_TABLE):
        return _nearest(name, columns)
    if error.startswith(NO_COLUMN):
        return _column(name, mentioned, columns)
    form = next((remedy for form, remedy in _FORMS if form.search(sql)), "")
    source = token and re.search(rf"\b(?:FROM|JOIN)\s+{re.escape(name)}(?!\w)", outside, re.I)
    return form or (_nearest(name, columns) if source else "")


def _unquoted(word: str, sql: str, columns: Columns, mentioned: Sequence[str]) -> str:
    """Return the name that needs quotes and stands in a statement without them, of which SQLite
    complains by `word`: one of its words, or all of them in one, as parts_catalog for "Parts
    Catalog". "" if there is none.

    Of several the longest is returned, those of the `mentioned` tables before others.
    """
    every = [*columns, *(name for names in columns.values() for name in names)]
    near = {name for table in mentioned for name in (table, *columns[table])}
    found = []
    for name in dict.fromkeys(every):
        if _READ_UNQUOTED.fullmatch(name) and not RESERVED.fullmatch(name):
            continue
        words = re.findall(r"\w+", name.lower())
        text = r"\s+".join(map(re.escape, name.split()))
        same = _squeezed(word) == _squeezed(name) != ""
        if not any(map(str.isalpha, name)) or not (same or word.lower() in words):
            continue
        if RESERVED.fullmatch(name):  # as a source, it must be a table
            source = re.search(rf"\b(?:FROM|JOIN)\s+{text}\b", sql, re.IGNORECASE)
            keyword = re.search(rf"\b{text}\s+BY\b", sql, re.IGNORECASE)
            written = keyword is None and (source is None or name in columns)
        else:
            bare = re.search(rf"(?<!\w){text}(?!\w)", sql, re.IGNORECASE)
            written = same or bare is not None
        if written:
            found.append((name in near, len(name), name))
    return max(found)[2] if found else ""


def _mentioned(sql: str, columns: Columns) -> list[str]:
    """Return the tables that a statement names, in quotes or not."""
    return [
        table
        for table in columns
        if re.search(rf"(?<!\w){re.escape(table)}(?!\w)", sql, re.IGNORECASE)
    ]


def _squeezed(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name.lower()))


def _nearest(name: str, names: Iterable[str]) -> str:
    by_case = {one.lower(): one for one in names}
    near = get_close_matches(name.lower(), by_case, NAMED, NEAR)
    return f"did you mean {' or '.join(sql_name(by_case[one]) for one in near)}?" if near else ""


def _column(written: str, mentioned: Sequence[str], columns: Columns) -> str:
    """Return where the column is, or which names of the tables in the statement are near it."""
    qualifier, _, name = written.rpartition(".")
    name = name.strip('"')
    holders = [table for table, names in columns.items() if name.lower() in map(str.lower, names)]
    elsewhere = [table for table in holders if qualifier or table not in mentioned]
    if elsewhere and len(elsewhere) == len(holders):
        return f"{sql_name(name)} is a column of {' and '.join(map(sql_name, elsewhere[:NAMED]))}"
    near = _nearest(name, [one for table in mentioned or columns for one in columns[table]])
    return near or _FUNCTIONS.get(name.lower(), "")  # also where it is written without brackets
