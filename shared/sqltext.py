"""Names and strings in SQL text: quoting, and reading what was quoted."""

import re
from collections.abc import Iterable

# words that SQLite, or sqlglot, cannot read as a name everywhere, and those of joins
RESERVED = re.compile(
    "ADD|ALL|ALTER|AND|AS|AUTOINCREMENT|BETWEEN|CASE|CAST|CHECK|COLLATE|COMMIT|"
    "CONSTRAINT|CREATE|CROSS|CURRENT_DATE|CURRENT_TIME|CURRENT_TIMESTAMP|DEFAULT|"
    "DEFERRABLE|DELETE|DISTINCT|DROP|ELSE|ESCAPE|EXCEPT|EXISTS|FOR|FOREIGN|FROM|"
    "FULL|GLOB|GROUP|HAVING|IF|IN|INDEX|INDEXED|INNER|INSERT|INTERSECT|INTO|IS|"
    "ISNULL|JOIN|LEFT|LIKE|LIMIT|NATURAL|NOT|NOTHING|NOTNULL|NULL|OFFSET|ON|OR|"
    "ORDER|OUTER|PRIMARY|RAISE|REFERENCES|REGEXP|RETURNING|RIGHT|ROLLBACK|SELECT|"
    "SET|TABLE|THEN|TO|TRANSACTION|UNION|UNIQUE|UPDATE|USING|VALUES|WHEN|WHERE|"
    "WINDOW|WITH",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_OR_COMMENT = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_LISTED = re.compile(r'("(?:[^"]|"")*"|.+?)(?:, |$)')


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def unquote_identifier(text: str) -> str:
    """Return the name that an identifier stands for, as SQLite reads its quotes or brackets."""
    if len(text) < 2 or text[0] + text[-1] not in ('""', "''", "``", "[]"):
        return text
    return text[1:-1] if text[0] == "[" else text[1:-1].replace(text[0] * 2, text[0])


def sql_name(name: str) -> str:
    """Return a name as SQL needs it: in quotes only if it is no plain ASCII word, or reserved."""
    plain = _PLAIN.fullmatch(name) and not RESERVED.fullmatch(name)
    return name if plain else quote_identifier(name)


def needs_quotes(name: str) -> bool:
    """Return whether SQLite reads a name only in quotes; letters of all languages need none."""
    return not name.isidentifier() or bool(RESERVED.fullmatch(name))


def join_names(names: Iterable[str]) -> str:
    """Return names as SQL needs them, such as `id, "Home Town"`. `split_names` reads it."""
    return ", ".join(map(sql_name, names))


def split_names(text: str) -> list[str]:
    """Return the names that `join_names` joined."""
    return [unquote_identifier(match[1]) for match in _LISTED.finditer(text)]


def on_one_line(sql: str) -> str:
    """Return a statement without its comments and line breaks."""
    bare = _QUOTED_OR_COMMENT.sub(lambda found: found[1] or " ", sql)
    return re.sub(r"\s*\n\s*", " ", bare).strip()


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def find_table(argument: str, tables: list[str]) -> str | None:
    """Return the table that an agent names, whatever its letter case, quotes or final semicolon."""
    text = argument.strip().rstrip(";").strip()
    for name in (text, unquote_identifier(text)):
        if name in tables:
            return name
        if found := next((table for table in tables if table.lower() == name.lower()), None):
            return found
    return None
