"""sqlglot's parser with a bound on its work, the same on every machine.

It tries joins nested and goes back, so each further JOIN without ON doubles its time: 30 of them,
in 350 bytes, would take hours.
"""

from functools import cache
from typing import Any

from sqlglot import Dialect, exp
from sqlglot.errors import SqlglotError

_READ = (exp.Column, exp.Star, exp.AggFunc, exp.Window, exp.Query)
MOVES_PER_TOKEN = 10  # of 4,237 golds of Spider and BIRD, none takes over 2.5


class TooMuchWork(SqlglotError):  # type: ignore[misc]
    """A statement that takes too long to parse."""


@cache
def _bounded(parser: type[Any]) -> type[Any]:
    class Bounded(parser):  # type: ignore[misc]
        moves_left = 0

        def _advance(self, times: int = 1) -> None:
            self.moves_left -= 1
            if self.moves_left < 0:
                raise TooMuchWork("the statement takes too long to parse: it needs fewer joins")
            super()._advance(times)

    return Bounded


def parse_sql(sql: str, dialect: str = "sqlite") -> exp.Expression:
    """Return the tree of the first statement of a text. Raises `SqlglotError`."""
    language = Dialect.get_or_raise(dialect)
    tokens = language.tokenize(sql)
    parser: Any = _bounded(language.parser_class)(dialect=language)
    parser.moves_left = MOVES_PER_TOKEN * (len(tokens) + 1)
    found = parser.parse(tokens, sql)
    if not found or found[0] is None:
        raise SqlglotError("no statement was found")
    tree: exp.Expression = found[0]
    return tree


def is_constant(sql: str) -> bool:
    """Return whether no column of a result is read from a table: it is written in the statement."""
    try:
        tree = parse_sql(sql)
    except (SqlglotError, RecursionError):  # sqlglot reads less than SQLite
        return False
    defined = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    tables = (one.name.lower() for one in tree.find_all(exp.Table))
    return defined.issuperset(tables) or _shows_none(tree)


def _shows_none(tree: exp.Expression) -> bool:
    if isinstance(tree, exp.SetOperation):
        return _shows_none(tree.left) and _shows_none(tree.right)
    return isinstance(tree, exp.Query) and not any(one.find(*_READ) for one in tree.selects)
