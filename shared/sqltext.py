"""Quoting of names and strings for SQL text."""


def quote_identifier(name: str) -> str:
    """Return a table's or column's name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a string as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"
