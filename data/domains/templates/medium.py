"""Medium forms: two conditions, groups, lists, nesting, joins of two tables."""

from typing import Any

from data.domains.spec import Column, Draft, Kind
from data.domains.templates.asker import (
    ATTRIBUTES,
    MIN_MATCHES,
    NUMBERS,
    Asker,
    Link,
    additive,
    literal,
    need,
    number,
)
from data.domains.templates.easy import Template, as_plural, sum_of
from data.domains.words import LISTS, indefinite, plural

FILTERS = (Kind.CATEGORY, *NUMBERS, Kind.DATE)
MAX_LIST = 5  # names of a list answer


def count_two(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    first = ask.condition(table, Kind.CATEGORY)
    second = ask.condition(table, *FILTERS, but=(first.column,))
    need(len(ask.matching(table, first, second)) >= MIN_MATCHES)
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {first.where()} AND {second.where()}"
    return ask.draft(table, sql, "count_two", first=first.having, second=second.having)


def count_either(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    condition = ask.condition(table, Kind.CATEGORY)
    column = condition.column
    known = ask.known(table, column)
    values = sorted({str(cell) for cell in known if not condition.test(cell)})
    need(len(values) >= 2)
    first = next(cell for cell in known if condition.test(cell))
    second = ask.one(values)
    where = f"{column.name} = {literal(first)} OR {column.name} = {literal(second)}"
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {where}"
    fields = {"column": ask.phrase(column), "first": ask.quote(first), "second": ask.quote(second)}
    return ask.draft(table, sql, "count_either", **fields)


def aggregate_where(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    condition = ask.condition(table, Kind.CATEGORY, Kind.DATE, but=(column,))
    function, fields = aggregate(ask, column)
    sql = f"SELECT {function} FROM {table.name} WHERE {condition.where()}"
    return ask.draft(table, sql, "aggregate_where", condition=condition, **fields)


def aggregate(ask: Asker, column: Column, prefix: str = "") -> tuple[str, dict[str, Any]]:
    """Pick an aggregate of a number column; return its SQL and the fields of the question."""
    name, amount = prefix + column.name, ask.amount(column)
    choices = [("highest", f"MAX({name})"), ("lowest", f"MIN({name})")]
    if "year" not in column.name:
        choices.append(("average", f"ROUND(AVG({name}), 2)"))
    if additive(column):
        word = "total" if "total" not in amount else "sum of the"
        choices.append((word, sum_of(name, column.kind)))
    word, function = ask.rng.choice(choices)
    rounding = ", rounded to 2 decimals" if "AVG" in function else ""
    return function, {"aggregate": f"{word} {amount}", "rounding": rounding}


def group_top(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.CATEGORY, complete=True)
    top = ask.rng.random() < 0.65
    most, many = ("most", "most") if top else ("least", "fewest")
    sql = _first_group(table.name, column.name, f"COUNT(*) {'DESC' if top else 'ASC'}")
    return ask.draft(table, sql, "group_top", most=most, many=many, column=ask.phrase(column))


def _first_group(table: str, column: str, order: str) -> str:
    return f"SELECT {column} FROM {table} GROUP BY {column} ORDER BY {order} LIMIT 1"


def group_extreme(ask: Asker) -> Draft:
    """Ask for the group with the highest or lowest average of a number."""
    table = ask.table(Kind.CATEGORY, NUMBERS)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    averaged = ask.complete(table, ask.column(table, *NUMBERS))
    need("year" not in averaged.name)
    top = ask.rng.random() < 0.6
    word, order = ("highest", "DESC") if top else ("lowest", "ASC")
    fields = {"column": ask.phrase(column), "number": ask.amount(averaged)}
    sql = _first_group(table.name, column.name, f"AVG({averaged.name}) {order}")
    return ask.draft(table, sql, "group_extreme", word=word, **fields)


def having_count(ask: Asker) -> Draft:
    """Count the groups with more than, or at least, a number of rows."""
    table, column = ask.any_column(Kind.CATEGORY, complete=True)
    cells = ask.known(table, column)
    sizes = sorted(cells.count(value) for value in sorted(set(map(str, cells))))
    need(len(sizes) >= 4)
    limit = ask.one([size for size in sizes[:-1] if size > 1])
    more = ask.rng.random() < 0.6
    passing = sum(size > limit if more else size >= limit for size in sizes)
    need(MIN_MATCHES <= passing < len(sizes))
    bound = f"more than {limit}" if more else f"at least {limit}"
    having = f"COUNT(*) {'>' if more else '>='} {limit}"
    groups = f"SELECT {column.name} FROM {table.name} GROUP BY {column.name} HAVING {having}"
    columns = as_plural(ask.phrase(column))
    sql = f"SELECT COUNT(*) FROM ({groups})"
    return ask.draft(table, sql, "having_count", columns=columns, limit=bound)


def names_where(ask: Asker) -> Draft:
    """Ask for the names of the two to five rows that meet a condition."""
    table = ask.table(Kind.NAME)
    name = ask.column(table, Kind.NAME)
    conditions = [ask.condition(table, *FILTERS)]
    if len(ask.matching(table, *conditions)) > MAX_LIST:
        conditions.append(ask.condition(table, *FILTERS, but=(conditions[0].column,)))
    names = [row[table.columns.index(name)] for row in ask.matching(table, *conditions)]
    need(MIN_MATCHES <= len(names) <= MAX_LIST and len(set(names)) == len(names))
    having = " and ".join(condition.having for condition in conditions)
    where = " AND ".join(condition.where() for condition in conditions)
    sql = f"SELECT {name.name} FROM {table.name} WHERE {where}"
    return ask.draft(table, sql, "names_where", names=plural(ask.phrase(name)), having=having)


def top_names(ask: Asker) -> Draft:
    """Ask for the names of the first few rows by a number or a date, in order."""
    table, name, column = ask.named_column(*NUMBERS, Kind.DATE, complete=True)
    count = ask.rng.randint(2, 4)
    top = ask.rng.random() < 0.6
    words = ("latest", "earliest") if column.kind is Kind.DATE else ("highest", "lowest")
    word = words[not top]
    names = plural(ask.phrase(name))
    shown = LISTS["number_words"][count] if ask.rng.random() < 0.5 else count
    fields = {"names": names, "count": shown, "word": word, "column": ask.amount(column)}
    order = f"{column.name} {'DESC' if top else 'ASC'}"
    sql = f"SELECT {name.name} FROM {table.name} ORDER BY {order} LIMIT {count}"
    return ask.draft(table, sql, "top_names", **fields)


def above_average(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    need("year" not in column.name)
    upper, lower = ("above", "higher than", ">"), ("below", "lower than", "<")
    above, than, sign = upper if ask.rng.random() < 0.6 else lower
    average = f"(SELECT AVG({column.name}) FROM {table.name})"
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} {sign} {average}"
    amount = ask.amount(column)
    return ask.draft(table, sql, "above_average", column=amount, above=above, than=than)


def count_between(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS, Kind.DATE)
    if column.kind is Kind.DATE:
        dates = sorted({str(cell) for cell in ask.known(table, column)})
        need(len(dates) >= 8)
        low, high = sorted(ask.rng.sample(dates, 2))
    else:
        low, high = sorted((ask.threshold(table, column), ask.threshold(table, column)))  # type: ignore[assignment]
    inside = sum(low <= cell <= high for cell in ask.known(table, column))  # type: ignore[operator]
    need(low != high and inside >= MIN_MATCHES)
    fields = {"column": ask.amount(column), "low": number(low), "high": number(high)}
    where = f"{column.name} BETWEEN {literal(low)} AND {literal(high)}"
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {where}"
    return ask.draft(table, sql, "count_between", **fields)


def count_year(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.DATE)
    years = [str(cell)[:4] for cell in ask.known(table, column)]
    year = ask.one(years)
    need(MIN_MATCHES <= years.count(year) < len(years))
    where = f"strftime('%Y', {column.name}) = '{year}'"
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {where}"
    return ask.draft(table, sql, "count_year", column=ask.phrase(column), year=year)


def null_count(ask: Asker) -> Draft:
    columns = [
        (table, column)
        for table in ask.domain.tables
        for column in table.columns
        if column.kind not in (Kind.KEY, Kind.REF, Kind.NAME)
        and MIN_MATCHES <= ask.cells(table, column).count(None) < len(ask.rows[table.name]) - 1
    ]
    table, column = ask.one(columns)
    phrase = ask.phrase(column)
    missing = ask.rng.random() < 0.7
    state = "missing" if missing else "known"
    wording = f"null_count_{state}"
    # 'without goals' would mean none, not an unknown number
    if column.kind in (*NUMBERS, Kind.CATEGORY):
        phrase, wording = ask.amount(column), f"null_count_amount_{state}"
    where = f"{column.name} {'IS NULL' if missing else 'IS NOT NULL'}"
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {where}"
    return ask.draft(table, sql, wording, column=phrase)


def lookup_two(ask: Asker) -> Draft:
    table, name, first = ask.named_column(*ATTRIBUTES)
    second = ask.column(table, *ATTRIBUTES, but=(first,))
    value, row = ask.named_row(table, name)
    need(None not in [row[table.columns.index(column)] for column in (first, second)])
    amounts = {"first": ask.amount(first), "second": ask.amount(second)}
    columns = f"{first.name}, {second.name}"
    sql = f"SELECT {columns} FROM {table.name} WHERE {name.name} = {literal(value)}"
    return ask.draft(table, sql, "lookup_two", value=ask.quote(value), **amounts)


# Over a child table and the parent table that it refers to


def _named_parent(ask: Asker, link: Link, most: int | None = None) -> tuple[str, str]:
    """Pick a parent with two to `most` children; return its name and the condition on it."""
    name = ask.column(link.parent, Kind.NAME)
    value, row = ask.named_row(link.parent, name)
    key = row[link.parent.columns.index(link.parent.key)]
    children = ask.cells(link.child, link.ref).count(key)
    need(MIN_MATCHES <= children <= (most or children))
    return value, f"{link.parent.name}.{name.name} = {literal(value)}"


def join_count(ask: Asker) -> Draft:
    link = ask.link(parent_kinds=(Kind.NAME,))
    value, where = _named_parent(ask, link)
    sql = f"SELECT COUNT(*) FROM {link.join} WHERE {where}"
    parent = ask.role(link)
    return ask.draft(link.tables, sql, "join_count", parent=parent, value=ask.quote(value))


def join_count_where(ask: Asker) -> Draft:
    link = ask.link(parent_kinds=(Kind.CATEGORY,))
    condition = ask.condition(link.parent, Kind.CATEGORY)
    key = link.parent.columns.index(link.parent.key)
    keys = {row[key] for row in ask.matching(link.parent, condition)}
    need(sum(cell in keys for cell in ask.cells(link.child, link.ref)) >= MIN_MATCHES)
    fields = {"parents": link.parent.plural, "a_parent": indefinite(ask.role(link))}
    sql = f"SELECT COUNT(*) FROM {link.join} WHERE {condition.where(f'{link.parent.name}.')}"
    return ask.draft(link.tables, sql, "join_count_where", condition=condition, **fields)


def join_lookup(ask: Asker) -> Draft:
    link = ask.link(child_kinds=(Kind.NAME,))
    name = ask.column(link.child, Kind.NAME)
    column = ask.column(link.parent, *ATTRIBUTES, Kind.NAME, Kind.NAME)
    value, _ = ask.named_row(link.child, name)
    by_name = ("join_lookup_name",) if column.kind is Kind.NAME else ()
    fields = {"column": ask.amount(column), "parent": ask.role(link), "value": ask.quote(value)}
    where = f"{link.child.name}.{name.name} = {literal(value)}"
    sql = f"SELECT {link.parent.name}.{column.name} FROM {link.join} WHERE {where}"
    return ask.draft(link.tables, sql, "join_lookup", *by_name, **fields)


def join_aggregate(ask: Asker) -> Draft:
    link = ask.link(child_kinds=NUMBERS, parent_kinds=(Kind.NAME,))
    column = ask.column(link.child, *NUMBERS)
    value, where = _named_parent(ask, link)
    function, fields = aggregate(ask, column, f"{link.child.name}.")
    fields |= {"parent": ask.role(link), "value": ask.quote(value)}
    sql = f"SELECT {function} FROM {link.join} WHERE {where}"
    return ask.draft(link.tables, sql, "join_aggregate", **fields)


def join_names(ask: Asker) -> Draft:
    """Ask for the names of a named parent's two to five children."""
    link = ask.link(child_kinds=(Kind.NAME,), parent_kinds=(Kind.NAME,))
    name = ask.column(link.child, Kind.NAME)
    value, where = _named_parent(ask, link, MAX_LIST)
    names, parent, value = plural(ask.phrase(name)), ask.role(link), ask.quote(value)
    sql = f"SELECT {link.child.name}.{name.name} FROM {link.join} WHERE {where}"
    return ask.draft(link.tables, sql, "join_names", names=names, parent=parent, value=value)


def parent_top(ask: Asker) -> Draft:
    link = ask.link(parent_kinds=(Kind.NAME,))
    name = ask.column(link.parent, Kind.NAME)
    fields = {"name": ask.phrase(name), "parent": link.parent.singular}
    sql = (
        f"SELECT {link.parent.name}.{name.name} FROM {link.join} "
        f"GROUP BY {link.parent.name}.{link.parent.key.name} ORDER BY COUNT(*) DESC LIMIT 1"
    )
    return ask.draft(link.tables, sql, "parent_top", **fields)


def without_children(ask: Asker) -> Draft:
    """Count the parents that no child refers to."""
    link = ask.link()
    ask.complete(link.child, link.ref)
    referenced = f"SELECT {link.ref.name} FROM {link.child.name}"
    where = f"{link.parent.key.name} NOT IN ({referenced})"
    sql = f"SELECT COUNT(*) FROM {link.parent.name} WHERE {where}"
    children = link.child.plural
    return ask.draft((link.parent, link.child), sql, "without_children", children=children)


MEDIUM: tuple[Template, ...] = (
    count_two, count_either, aggregate_where, group_top, group_extreme, having_count, names_where,
    top_names, above_average, count_between, count_year, null_count, lookup_two, join_count,
    join_count_where, join_lookup, join_aggregate, join_names, parent_top, without_children,
)  # fmt: skip
