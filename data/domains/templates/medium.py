"""Medium forms: two conditions, groups, lists, nesting."""

from typing import Any

from data.domains.spec import Column, Draft, Kind
from data.domains.templates.asker import (
    MIN_MATCHES,
    NUMBERS,
    Asker,
    NoQuestionError,
    additive,
    literal,
    number,
)
from data.domains.templates.easy import Template, as_plural, sum_of
from data.domains.words import plural

FILTERS = (Kind.CATEGORY, *NUMBERS, Kind.DATE)
NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}
MAX_LIST = 5  # names of a list answer


def count_two(ask: Asker) -> Draft:
    """Count the rows that meet a condition on a category and one on another column."""
    table = ask.table(Kind.CATEGORY)
    first = ask.condition(table, Kind.CATEGORY)
    second = ask.condition(table, *FILTERS, but=(first.column,))
    if len(ask.matching(table, first, second)) < MIN_MATCHES:
        raise NoQuestionError
    text = ask.say(table, "count_two", first=first.having, second=second.having)
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {first.where()} AND {second.where()}"
    return ask.draft(text, sql, table)


def count_either(ask: Asker) -> Draft:
    """Count the rows with one of two values of a category."""
    table = ask.table(Kind.CATEGORY)
    condition = ask.condition(table, Kind.CATEGORY)
    column = condition.column
    known = ask.known(table, column)
    values = sorted({str(cell) for cell in known if not condition.test(cell)})
    if len(values) < 2:
        raise NoQuestionError
    first = next(cell for cell in known if condition.test(cell))
    second, phrase = ask.one(values), ask.phrase(column)
    text = ask.say(
        table, "count_either", column=phrase, first=ask.quote(first), second=ask.quote(second)
    )
    where = f"{column.name} = {literal(first)} OR {column.name} = {literal(second)}"
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name} WHERE {where}", table)


def aggregate_where(ask: Asker) -> Draft:
    """Ask for an aggregate of the rows that meet a condition."""
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    condition = ask.condition(table, Kind.CATEGORY, Kind.DATE, but=(column,))
    function, fields = aggregate(ask, column)
    text = ask.say(table, "aggregate_where", condition=condition, **fields)
    return ask.draft(text, f"SELECT {function} FROM {table.name} WHERE {condition.where()}", table)


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
    """Ask for the value of a category that most or fewest rows have."""
    table = ask.table(Kind.CATEGORY)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    top = ask.rng.random() < 0.65
    most, many = ("most", "most") if top else ("least", "fewest")
    text = ask.say(table, "group_top", most=most, many=many, column=ask.phrase(column))
    order = f"COUNT(*) {'DESC' if top else 'ASC'}"
    return ask.draft(text, _first_group(table.name, column.name, order), table)


def _first_group(table: str, column: str, order: str) -> str:
    return f"SELECT {column} FROM {table} GROUP BY {column} ORDER BY {order} LIMIT 1"


def group_extreme(ask: Asker) -> Draft:
    """Ask for the group with the highest or lowest average of a number."""
    table = ask.table(Kind.CATEGORY, NUMBERS)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    averaged = ask.complete(table, ask.column(table, *NUMBERS))
    if "year" in averaged.name:
        raise NoQuestionError
    top = ask.rng.random() < 0.6
    word, phrase, amount = (
        ("highest" if top else "lowest"),
        ask.phrase(column),
        ask.amount(averaged),
    )
    text = ask.say(table, "group_extreme", word=word, column=phrase, number=amount)
    order = f"AVG({averaged.name}) {'DESC' if top else 'ASC'}"
    return ask.draft(text, _first_group(table.name, column.name, order), table)


def having_count(ask: Asker) -> Draft:
    """Count the groups with more than, or at least, a number of rows."""
    table = ask.table(Kind.CATEGORY)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    cells = ask.known(table, column)
    sizes = sorted(cells.count(value) for value in sorted(set(map(str, cells))))
    if len(sizes) < 4:
        raise NoQuestionError
    limit = ask.one([size for size in sizes[:-1] if size > 1])
    more = ask.rng.random() < 0.6
    passing = sum(size > limit if more else size >= limit for size in sizes)
    if not MIN_MATCHES <= passing < len(sizes):
        raise NoQuestionError
    bound = f"more than {limit}" if more else f"at least {limit}"
    text = ask.say(table, "having_count", columns=as_plural(ask.phrase(column)), limit=bound)
    having = f"COUNT(*) {'>' if more else '>='} {limit}"
    groups = f"SELECT {column.name} FROM {table.name} GROUP BY {column.name} HAVING {having}"
    return ask.draft(text, f"SELECT COUNT(*) FROM ({groups})", table)


def names_where(ask: Asker) -> Draft:
    """Ask for the names of the two to five rows that meet a condition."""
    table = ask.table(Kind.NAME)
    name = ask.column(table, Kind.NAME)
    conditions = [ask.condition(table, *FILTERS)]
    if len(ask.matching(table, *conditions)) > MAX_LIST:
        conditions.append(ask.condition(table, *FILTERS, but=(conditions[0].column,)))
    names = [row[table.columns.index(name)] for row in ask.matching(table, *conditions)]
    if not MIN_MATCHES <= len(names) <= MAX_LIST or len(set(names)) < len(names):
        raise NoQuestionError
    having = " and ".join(condition.having for condition in conditions)
    text = ask.say(table, "names_where", names=plural(ask.phrase(name)), having=having)
    where = " AND ".join(condition.where() for condition in conditions)
    return ask.draft(text, f"SELECT {name.name} FROM {table.name} WHERE {where}", table)


def top_names(ask: Asker) -> Draft:
    """Ask for the names of the first few rows by a number or a date, in order."""
    table = ask.table(Kind.NAME, (*NUMBERS, Kind.DATE))
    name = ask.column(table, Kind.NAME)
    column = ask.complete(table, ask.column(table, *NUMBERS, Kind.DATE))
    count = ask.rng.randint(2, 4)
    top = ask.rng.random() < 0.6
    if column.kind is Kind.DATE:
        word = "latest" if top else "earliest"
    else:
        word = "highest" if top else "lowest"
    names = plural(ask.phrase(name))
    shown = NUMBER_WORDS[count] if ask.rng.random() < 0.5 else count
    text = ask.say(
        table, "top_names", names=names, count=shown, word=word, column=ask.amount(column)
    )
    order = "DESC" if top else "ASC"
    sql = f"SELECT {name.name} FROM {table.name} ORDER BY {column.name} {order} LIMIT {count}"
    return ask.draft(text, sql, table)


def above_average(ask: Asker) -> Draft:
    """Count the rows above or below the average of a column."""
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    if "year" in column.name:
        raise NoQuestionError
    above, than, sign = ("below", "lower than", "<")
    if ask.rng.random() < 0.6:
        above, than, sign = ("above", "higher than", ">")
    text = ask.say(table, "above_average", column=ask.amount(column), above=above, than=than)
    average = f"(SELECT AVG({column.name}) FROM {table.name})"
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} {sign} {average}"
    return ask.draft(text, sql, table)


def count_between(ask: Asker) -> Draft:
    """Count the rows between two numbers or two dates."""
    table = ask.table((*NUMBERS, Kind.DATE))
    column = ask.column(table, *NUMBERS, Kind.DATE)
    if column.kind is Kind.DATE:
        dates = sorted({str(cell) for cell in ask.known(table, column)})
        if len(dates) < 8:
            raise NoQuestionError
        low, high = sorted(ask.rng.sample(dates, 2))
    else:
        low, high = sorted((ask.threshold(table, column), ask.threshold(table, column)))  # type: ignore[assignment]
    inside = sum(low <= cell <= high for cell in ask.known(table, column))  # type: ignore[operator]
    if low == high or inside < MIN_MATCHES:
        raise NoQuestionError
    phrase = ask.amount(column)
    text = ask.say(table, "count_between", column=phrase, low=number(low), high=number(high))
    where = f"{column.name} BETWEEN {literal(low)} AND {literal(high)}"
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name} WHERE {where}", table)


def count_year(ask: Asker) -> Draft:
    """Count the rows with a date in one year."""
    table = ask.table(Kind.DATE)
    column = ask.column(table, Kind.DATE)
    years = [str(cell)[:4] for cell in ask.known(table, column)]
    year = ask.one(years)
    if not MIN_MATCHES <= years.count(year) < len(years):
        raise NoQuestionError
    text = ask.say(table, "count_year", column=ask.phrase(column), year=year)
    where = f"strftime('%Y', {column.name}) = '{year}'"
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name} WHERE {where}", table)


def null_count(ask: Asker) -> Draft:
    """Count the rows without a value, or those with one."""
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
    text = ask.say(table, wording, column=phrase)
    test = "IS NULL" if missing else "IS NOT NULL"
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} {test}", table)


def lookup_two(ask: Asker) -> Draft:
    """Ask for two columns of a named row: a table answer."""
    kinds = (*NUMBERS, Kind.TEXT, Kind.CATEGORY, Kind.DATE)
    table = ask.table(Kind.NAME, kinds)
    name = ask.column(table, Kind.NAME)
    first = ask.column(table, *kinds)
    second = ask.column(table, *kinds, but=(first,))
    value, row = ask.named_row(table, name)
    if any(row[table.columns.index(column)] is None for column in (first, second)):
        raise NoQuestionError
    amounts: dict[str, Any] = {"first": ask.amount(first), "second": ask.amount(second)}
    text = ask.say(table, "lookup_two", value=ask.quote(value), **amounts)
    columns = f"{first.name}, {second.name}"
    sql = f"SELECT {columns} FROM {table.name} WHERE {name.name} = {literal(value)}"
    return ask.draft(text, sql, table)


MEDIUM: tuple[Template, ...] = (
    count_two, count_either, aggregate_where, group_top, group_extreme, having_count, names_where,
    top_names, above_average, count_between, count_year, null_count, lookup_two,
)  # fmt: skip
