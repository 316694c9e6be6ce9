"""Why a result is empty: what in a statement's conditions no row can meet."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, count

from sqlglot import exp

from env_server.sql.describe_values import FEW, MAX_VALUE_CHARS
from env_server.sql.jobs import Cell, Row
from env_server.sql.lookup import Lookup, Names, Place, Scope
from env_server.sql.misleading import ORDERED
from shared.sqltext import quote_identifier, quote_text, sql_name

MAX_LOOKED_UP = 20  # conditions of a statement
NEAR_OF = 1_000  # values among which a similar one is sought
NEAR = 0.75  # least likeness of a value, by difflib's ratio


def why_empty(tree: exp.Expression, lookup: Lookup) -> Iterator[str]:
    """Yield what in the conditions of a statement no row can meet."""
    names, looked_up = Names(tree, lookup), count()
    for select in tree.find_all(exp.Select):
        if select.find_ancestor(exp.Not) is not None:
            continue
        scope = Scope(select, names, lookup)
        empty = [table for table in scope.tables.values() if lookup.is_empty(table)]
        yield from (f"{sql_name(table)} has no rows" for table in empty)
        where = select.args.get("where")
        roots = [where.this] if where and not empty else []
        roots += [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
        for root in roots if not empty else ():
            yield from _unmet(root, scope, lookup, looked_up)


def _unmet(
    node: exp.Expression, scope: Scope, lookup: Lookup, looked_up: Iterator[int]
) -> Iterator[str]:
    """Yield what no row can meet in a condition: of an OR, only if all of it is so."""
    if isinstance(node, (exp.And, exp.Paren)):
        for child in node.iter_expressions():
            yield from _unmet(child, scope, lookup, looked_up)
    elif isinstance(node, exp.Or):
        sides = [list(_unmet(one, scope, lookup, looked_up)) for one in node.iter_expressions()]
        if all(sides):
            yield from chain.from_iterable(sides)
    elif not isinstance(node, exp.Not) and next(looked_up) < MAX_LOOKED_UP:
        yield from _impossible(node, scope, lookup)


def _impossible(node: exp.Expression, scope: Scope, lookup: Lookup) -> Iterator[str]:
    left, right = node.this, node.args.get("expression")
    if isinstance(node, (exp.EQ, exp.NEQ)) and isinstance(right, exp.Null):
        sign, word = ("=", "IS") if isinstance(node, exp.EQ) else ("<>", "IS NOT")
        if (place := scope.place(left)) is not None:
            yield f"{place.shown} {sign} NULL is never true: write {place.shown} {word} NULL"
        return
    if isinstance(node, exp.EQ):
        first, second = scope.place(left), scope.place(right)
        if first and second:
            yield from _no_shared_value(first, second, lookup)
            return
        place, value = (first, right) if first else (second, left)
        if place and (literal := scope.literal(value)) is not None:
            yield from _absent(place, [literal], scope.text(value), lookup)
    elif isinstance(node, exp.In) and (place := scope.place(left)):
        literals = [scope.literal(one) for one in node.expressions]
        if node.expressions and None not in literals:
            text = scope.text(node.expressions[0])
            yield from _absent(place, list(filter(None, literals)), text, lookup)
    elif isinstance(node, exp.Like) and (place := scope.place(left)):
        if (text := scope.text(right)) is not None:
            pattern = quote_text(text)
            if lookup.rows(place.select("1", f"{place.quoted} LIKE {pattern}")) == []:
                part = text.strip("%_")
                yield _lacks(place, f"{place.shown} is never like {pattern}", part, lookup)
    elif (order := ORDERED.get(type(node))) is not None and (place := scope.place(left)):
        if (literal := scope.literal(right)) is not None:
            yield from _range(place, f"{order} {literal}", lookup)
    elif isinstance(node, exp.Between) and (place := scope.place(left)):
        low, high = (scope.literal(node.args.get(end)) for end in ("low", "high"))
        if low is not None and high is not None:
            yield from _range(place, f"between {low} and {high}", lookup)


def _no_shared_value(first: Place, second: Place, lookup: Lookup) -> Iterator[str]:
    if first == second:
        return
    a, b = quote_identifier(first.column), quote_identifier(second.column)
    tables = f"{quote_identifier(first.table)} AS a, {quote_identifier(second.table)} AS b"
    if lookup.rows(f"SELECT 1 FROM {tables} WHERE a.{a} = b.{b}") == []:
        yield f"{first.whole} and {second.whole} have no value in common"


def _absent(
    place: Place, literals: Sequence[str], text: str | None, lookup: Lookup
) -> Iterator[str]:
    """Yield a remark if the column has none of the values."""
    if lookup.rows(place.select("1", f"{place.quoted} IN ({', '.join(literals)})")) == []:
        named = " or ".join(literals[:2]) + (" ..." if len(literals) > 2 else "")
        yield _lacks(place, f"{place.shown} has no {named}", text, lookup)


def _lacks(place: Place, problem: str, text: str | None, lookup: Lookup) -> str:
    """Return a problem with a column's value, and the values that come nearest, if any is found."""
    shown = _nearest(place, text, lookup)
    return f"{problem}; {shown}" if shown else problem


def _nearest(place: Place, text: str | None, lookup: Lookup) -> str:
    if text:
        where = f"lower(trim({place.quoted})) = lower(trim({quote_text(text)}))"
        if same := lookup.rows(place.select(place.quoted, where)):
            return f"it has {_listed(same)}"
    few = lookup.rows(place.distinct, FEW + 1)
    if few is None:
        return ""
    if not few:
        return "it has only NULL"
    if any(isinstance(row[0], bytes) for row in few):
        return ""
    short = all(len(_literal(row[0])) <= MAX_VALUE_CHARS for row in few)
    if len(few) <= FEW and short:
        return f"it has {_listed(sorted(few, key=lambda row: (str(type(row[0])), row[0])))}"
    if text is None:
        return _ends(place, lookup)
    if len(text) > 1:
        if holding := _holding(place, text, lookup):
            return f"it has {_listed(holding)}"
        if near := _similar(place, text, lookup):
            return f"it has {_listed(near)}"
    return f"it has values such as {_listed(few[:2])}" if short else ""


def _holding(place: Place, text: str, lookup: Lookup) -> list[Row]:
    """Return values that begin with the text, or else hold it."""
    at = f"instr(lower({place.quoted}), {quote_text(text.lower())})"
    for position in ("= 1", "> 1"):
        where = f"{at} {position} AND length({place.quoted}) <= {MAX_VALUE_CHARS}"
        if found := lookup.rows(place.select(f"DISTINCT {place.quoted}", where), 2):
            return found
    return []


def _similar(place: Place, text: str, lookup: Lookup) -> list[Row]:
    """Return values that are spelled nearly like the text."""
    where = f"typeof({place.quoted}) = 'text' AND length({place.quoted}) <= {MAX_VALUE_CHARS}"
    values = lookup.rows(place.select(f"DISTINCT {place.quoted}", where), NEAR_OF) or []
    by_case = {str(row[0]).lower(): row for row in values}
    return [by_case[one] for one in get_close_matches(text.lower(), by_case, 2, NEAR)]


def _range(place: Place, condition: str, lookup: Lookup) -> Iterator[str]:
    """Yield a remark on an inequality if no value of the column meets it."""
    met = lookup.rows(place.select("1", f"{place.quoted} {condition}"))
    if met == [] and (ends := _ends(place, lookup)):
        yield f"no {place.shown} is {condition}; {ends}"


def _ends(place: Place, lookup: Lookup) -> str:
    ends = lookup.rows(place.select(f"min({place.quoted}), max({place.quoted})"))
    if not ends or any(len(_literal(one)) > MAX_VALUE_CHARS for one in ends[0]):
        return ""
    low, high = map(_literal, ends[0])
    return "it has only NULL" if ends[0][0] is None else f"it has {low} to {high}"


def _listed(rows: Iterable[Row]) -> str:
    return ", ".join(_literal(row[0]) for row in rows)


def _literal(cell: Cell) -> str:
    if isinstance(cell, bytes):
        return "a blob"
    return quote_text(cell) if isinstance(cell, str) else "NULL" if cell is None else repr(cell)
