"""The forms of questions. Easy ones have one table and one clause."""

from collections.abc import Callable
from typing import Any

from data.domains.question_forms.asker import (
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
from data.domains.spec import Column, Draft, Kind
from data.domains.words import LISTS, indefinite, is_plural, plural

Template = Callable[[Asker], Draft]
FILTERS = (Kind.CATEGORY, *NUMBERS, Kind.DATE)
MAX_LISTED, MAX_NAMED = 8, 5  # rows of a list answer, and of one with names


def count_all(ask: Asker) -> Draft:
    table = ask.one(ask.domain.tables)
    return ask.draft(table, f"SELECT COUNT(*) FROM {table.name}")


def count_equal(ask: Asker) -> Draft:
    return _count(ask, Kind.CATEGORY)


def count_compare(ask: Asker) -> Draft:
    return _count(ask, *NUMBERS, Kind.DATE)


def _count(ask: Asker, *kinds: Kind) -> Draft:
    table = ask.table(kinds)
    condition = ask.condition(table, *kinds)
    return ask.draft_count(table, condition.where(), "count", condition=condition)


def extreme_value(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    top = ask.rng.random() < 0.5
    words = ("highest", "maximum", "largest") if top else ("lowest", "minimum", "smallest")
    word = ask.rng.choice(words)
    sql = f"SELECT {'MAX' if top else 'MIN'}({column.name}) FROM {table.name}"
    return ask.draft(table, sql, word=word, column=ask.amount(column))


def average(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    need("year" not in column.name)
    sql = f"SELECT ROUND(AVG({column.name}), 2) FROM {table.name}"
    return ask.draft(table, sql, column=ask.amount(column))


def total(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    need(additive(column))
    phrase = ask.amount(column)
    wordings = ("sum",) if "total" in phrase else ("total", "sum")
    sql = f"SELECT {sum_of(column.name, column.kind)} FROM {table.name}"
    return ask.draft(table, sql, *wordings, column=phrase)


def sum_of(name: str, kind: Kind) -> str:
    """Return a sum as SQL; real sums are rounded: their last digits depend on the row order."""
    return f"ROUND(SUM({name}), 2)" if kind is Kind.REAL else f"SUM({name})"


def lookup(ask: Asker) -> Draft:
    table, name, column = ask.named_column(*ATTRIBUTES)
    value, _ = ask.named_row(table, name)
    amount, phrase = ask.amount(column), ask.phrase(name)
    named = "named" if "name" in phrase else f"with the {phrase}"
    called = "titled" if "title" in phrase else named
    sql = f"SELECT {column.name} FROM {table.name} WHERE {name.name} = {literal(value)}"
    return ask.draft(table, sql, column=amount, value=ask.quote(value), called=called)


def reverse_lookup(ask: Asker) -> Draft:
    """Ask for the name of the row that holds a value that no other row holds."""
    table, name, column = ask.named_column(Kind.TEXT, Kind.DATE, *NUMBERS)
    cells = ask.known(table, column)
    value = ask.one(cells)
    need(cells.count(value) == 1 and len(str(value)) <= 40)
    fields = {"column": ask.amount(column), "value": ask.quote(value), "name": ask.phrase(name)}
    sql = f"SELECT {name.name} FROM {table.name} WHERE {column.name} = {literal(value)}"
    return ask.draft(table, sql, **fields)


def superlative(ask: Asker) -> Draft:
    """Ask for the name of the row with the highest or lowest number, or latest or earliest date."""
    table, name, column = ask.named_column(*NUMBERS, Kind.DATE, complete=True)
    top = ask.rng.random() < 0.5
    if column.kind is Kind.DATE:
        words: tuple[str, ...] = ("latest", "most recent") if top else ("earliest",)
    else:
        words = ("highest", "largest") if top else ("lowest", "smallest")
    word, amount, phrase = ask.rng.choice(words), ask.amount(column), ask.phrase(name)
    order = f"{column.name} {'DESC' if top else 'ASC'}"
    sql = f"SELECT {name.name} FROM {table.name} ORDER BY {order} LIMIT 1"
    return ask.draft(table, sql, word=word, column=amount, name=phrase)


def count_distinct(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.CATEGORY)
    phrase = ask.phrase(column)
    sql = f"SELECT COUNT(DISTINCT {column.name}) FROM {table.name}"
    return ask.draft(table, sql, column=phrase, columns=as_plural(phrase))


def as_plural(phrase: str) -> str:
    return phrase if is_plural(phrase) else plural(phrase)


def list_distinct(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.CATEGORY, complete=True)
    need(2 <= len(set(ask.known(table, column))) <= MAX_LISTED)
    sql = f"SELECT DISTINCT {column.name} FROM {table.name}"
    return ask.draft(table, sql, columns=as_plural(ask.phrase(column)))


def date_edge(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.DATE)
    word = ask.rng.choice(("latest", "most recent", "earliest", "first"))
    function = "MAX" if word in ("latest", "most recent") else "MIN"
    sql = f"SELECT {function}({column.name}) FROM {table.name}"
    return ask.draft(table, sql, word=word, column=ask.phrase(column))


# Medium: two conditions, groups, lists, nesting


def count_two(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    first = ask.condition(table, Kind.CATEGORY)
    second = ask.condition(table, *FILTERS, but=(first.column,))
    need(len(ask.matching(table, first, second)) >= MIN_MATCHES)
    where = f"{first.where()} AND {second.where()}"
    return ask.draft_count(table, where, first=first.having, second=second.having)


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
    fields = {"column": ask.phrase(column), "first": ask.quote(first), "second": ask.quote(second)}
    return ask.draft_count(table, where, **fields)


def aggregate_where(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    condition = ask.condition(table, Kind.CATEGORY, Kind.DATE, but=(column,))
    function, fields = aggregate(ask, column)
    sql = f"SELECT {function} FROM {table.name} WHERE {condition.where()}"
    return ask.draft(table, sql, condition=condition, **fields)


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
    return ask.draft(table, sql, most=most, many=many, column=ask.phrase(column))


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
    return ask.draft(table, sql, word=word, **fields)


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
    return ask.draft(table, sql, columns=columns, limit=bound)


def names_where(ask: Asker) -> Draft:
    """Ask for the names of the two to five rows that meet a condition."""
    table = ask.table(Kind.NAME)
    name = ask.column(table, Kind.NAME)
    conditions = [ask.condition(table, *FILTERS)]
    if len(ask.matching(table, *conditions)) > MAX_NAMED:
        conditions.append(ask.condition(table, *FILTERS, but=(conditions[0].column,)))
    names = [row[table.columns.index(name)] for row in ask.matching(table, *conditions)]
    need(MIN_MATCHES <= len(names) <= MAX_NAMED and len(set(names)) == len(names))
    having = " and ".join(condition.having for condition in conditions)
    where = " AND ".join(condition.where() for condition in conditions)
    sql = f"SELECT {name.name} FROM {table.name} WHERE {where}"
    return ask.draft(table, sql, names=plural(ask.phrase(name)), having=having)


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
    return ask.draft(table, sql, **fields)


def above_average(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    need("year" not in column.name)
    upper, lower = ("above", "higher than", ">"), ("below", "lower than", "<")
    above, than, sign = upper if ask.rng.random() < 0.6 else lower
    where = f"{column.name} {sign} (SELECT AVG({column.name}) FROM {table.name})"
    return ask.draft_count(table, where, column=ask.amount(column), above=above, than=than)


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
    return ask.draft_count(table, where, **fields)


def count_year(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.DATE)
    years = [str(cell)[:4] for cell in ask.known(table, column)]
    year = ask.one(years)
    need(MIN_MATCHES <= years.count(year) < len(years))
    where = f"strftime('%Y', {column.name}) = '{year}'"
    return ask.draft_count(table, where, column=ask.phrase(column), year=year)


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
    return ask.draft_count(table, where, wording, column=phrase)


def lookup_two(ask: Asker) -> Draft:
    table, name, first = ask.named_column(*ATTRIBUTES)
    second = ask.column(table, *ATTRIBUTES, but=(first,))
    value, row = ask.named_row(table, name)
    need(None not in [row[table.columns.index(column)] for column in (first, second)])
    amounts = {"first": ask.amount(first), "second": ask.amount(second)}
    columns = f"{first.name}, {second.name}"
    sql = f"SELECT {columns} FROM {table.name} WHERE {name.name} = {literal(value)}"
    return ask.draft(table, sql, value=ask.quote(value), **amounts)


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
    return ask.draft_count(link, where, parent=ask.role(link), value=ask.quote(value))


def join_count_where(ask: Asker) -> Draft:
    link = ask.link(parent_kinds=(Kind.CATEGORY,))
    condition = ask.condition(link.parent, Kind.CATEGORY)
    key = link.parent.columns.index(link.parent.key)
    keys = {row[key] for row in ask.matching(link.parent, condition)}
    need(sum(cell in keys for cell in ask.cells(link.child, link.ref)) >= MIN_MATCHES)
    fields = {"parents": link.parent.plural, "a_parent": indefinite(ask.role(link))}
    where = condition.where(f"{link.parent.name}.")
    return ask.draft_count(link, where, condition=condition, **fields)


def join_lookup(ask: Asker) -> Draft:
    link = ask.link(child_kinds=(Kind.NAME,))
    name = ask.column(link.child, Kind.NAME)
    column = ask.column(link.parent, *ATTRIBUTES, Kind.NAME, Kind.NAME)
    value, _ = ask.named_row(link.child, name)
    wordings = ("join_lookup", *["join_lookup_name"] * (column.kind is Kind.NAME))
    fields = {"column": ask.amount(column), "parent": ask.role(link), "value": ask.quote(value)}
    where = f"{link.child.name}.{name.name} = {literal(value)}"
    sql = f"SELECT {link.parent.name}.{column.name} FROM {link.join} WHERE {where}"
    return ask.draft(link, sql, *wordings, **fields)


def join_aggregate(ask: Asker) -> Draft:
    link = ask.link(child_kinds=NUMBERS, parent_kinds=(Kind.NAME,))
    column = ask.column(link.child, *NUMBERS)
    value, where = _named_parent(ask, link)
    function, fields = aggregate(ask, column, f"{link.child.name}.")
    fields |= {"parent": ask.role(link), "value": ask.quote(value)}
    sql = f"SELECT {function} FROM {link.join} WHERE {where}"
    return ask.draft(link, sql, **fields)


def join_names(ask: Asker) -> Draft:
    """Ask for the names of a named parent's two to five children."""
    link = ask.link(child_kinds=(Kind.NAME,), parent_kinds=(Kind.NAME,))
    name = ask.column(link.child, Kind.NAME)
    value, where = _named_parent(ask, link, MAX_NAMED)
    names, parent, value = plural(ask.phrase(name)), ask.role(link), ask.quote(value)
    sql = f"SELECT {link.child.name}.{name.name} FROM {link.join} WHERE {where}"
    return ask.draft(link, sql, names=names, parent=parent, value=value)


def parent_top(ask: Asker) -> Draft:
    link = ask.link(parent_kinds=(Kind.NAME,))
    name = ask.column(link.parent, Kind.NAME)
    fields = {"name": ask.phrase(name), "parent": link.parent.singular}
    sql = (
        f"SELECT {link.parent.name}.{name.name} FROM {link.join} "
        f"GROUP BY {link.parent.name}.{link.parent.key.name} ORDER BY COUNT(*) DESC LIMIT 1"
    )
    return ask.draft(link, sql, **fields)


def without_children(ask: Asker) -> Draft:
    """Count the parents that no child refers to."""
    link = ask.link()
    ask.complete(link.child, link.ref)
    referenced = f"SELECT {link.ref.name} FROM {link.child.name}"
    where = f"{link.parent.key.name} NOT IN ({referenced})"
    sql = f"SELECT COUNT(*) FROM {link.parent.name} WHERE {where}"
    children = link.child.plural
    return ask.draft((link.parent, link.child), sql, children=children)


EASY: tuple[Template, ...] = (
    count_all, count_equal, count_compare, extreme_value, average, total, lookup, reverse_lookup,
    superlative, count_distinct, list_distinct, date_edge,
)  # fmt: skip
MEDIUM: tuple[Template, ...] = (
    count_two, count_either, aggregate_where, group_top, group_extreme, having_count, names_where,
    top_names, above_average, count_between, count_year, null_count, lookup_two, join_count,
    join_count_where, join_lookup, join_aggregate, join_names, parent_top, without_children,
)  # fmt: skip
