"""Medium forms: two conditions, groups, lists, nesting, or a join of two tables."""

from data.domains.spec import Column, Draft, Kind, Table
from data.domains.templates.asker import (
    MIN_MATCHES,
    NUMBERS,
    Asker,
    Condition,
    NoQuestionError,
    additive,
    literal,
    number,
)
from data.domains.templates.easy import Template, sum_of
from data.domains.words import indefinite, is_plural, plural

FILTERS = (Kind.CATEGORY, *NUMBERS, Kind.DATE)
NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}
MAX_LIST = 5  # names of a list answer


def _two(ask: Asker, table: Table) -> tuple[Condition, Condition]:
    """A condition on a category and another on another column."""
    first = ask.condition(table, Kind.CATEGORY)
    return first, ask.condition(table, *FILTERS, but=(first.column,))


def count_two(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    first, second = _two(ask, table)
    if len(ask.matching(table, first, second)) < MIN_MATCHES:
        raise NoQuestionError
    text = ask.say(
        "how many {p} have {a} and {b}?",
        "what is the number of {p} with {a} and {b}?",
        "count the {p} with {a} and {b}.",
        "how many {p} with {a} have {b}?",
        p=table.plural,
        a=first.having,
        b=second.having,
    )
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {first.where()} AND {second.where()}"
    return ask.draft(text, sql, table)


def count_either(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    first = ask.condition(table, Kind.CATEGORY)
    values = sorted({str(cell) for cell in ask.known(table, first.column) if not first.test(cell)})
    if len(values) < 2:
        raise NoQuestionError
    one = next(cell for cell in ask.known(table, first.column) if first.test(cell))
    other, phrase = ask.one(values), ask.phrase(first.column)
    text = ask.say(
        "how many {p} have the {c} {a} or {b}?",
        "what is the number of {p} whose {c} is either {a} or {b}?",
        "count the {p} whose {c} is {a} or {b}.",
        p=table.plural,
        c=phrase,
        a=ask.quote(one),
        b=ask.quote(other),
    )
    name = first.column.name
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {name} = {literal(one)} OR {name} = {literal(other)}"
    return ask.draft(text, sql, table)


def aggregate_where(ask: Asker) -> Draft:
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    made = ask.condition(table, Kind.CATEGORY, Kind.DATE, but=(column,))
    words, function = aggregate(ask, column)
    text = ask.say(
        "what is the {w} of the {p} with {having}{r}?",
        "what is the {w} of the {p} {whose}{r}?",
        "find the {w} of the {p} with {having}{r}.",
        "among the {p} with {having}, what is the {w}{r}?",
        w=words,
        p=table.plural,
        having=made.having,
        whose=made.whose,
        r=rounding(function),
    )
    return ask.draft(text, f"SELECT {function} FROM {table.name} WHERE {made.where()}", table)


def aggregate(ask: Asker, column: Column, prefix: str = "") -> tuple[str, str]:
    """An aggregate of a number column in words and in SQL."""
    name, amount = prefix + column.name, ask.amount(column)
    choices = [("highest", f"MAX({name})"), ("lowest", f"MIN({name})")]
    if "year" not in column.name:
        choices.append(("average", f"ROUND(AVG({name}), 2)"))
    if additive(column):
        choices.append(
            ("total" if "total" not in amount else "sum of the", sum_of(name, column.kind))
        )
    word, function = ask.rng.choice(choices)
    return f"{word} {amount}", function


def rounding(function: str) -> str:
    return ", rounded to 2 decimals" if "AVG" in function else ""


def group_top(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    most = ask.rng.random() < 0.65
    text = ask.say(
        "which {c} has the {many} {p}?",
        "which {c} is the {most} common among the {p}?",
        "what is the {most} common {c} of the {p}?",
        "find the {c} with the {many} {p}.",
        most="most" if most else "least",
        many="most" if most else "fewest",
        c=ask.phrase(column),
        p=table.plural,
    )
    order = "DESC" if most else "ASC"
    sql = f"SELECT {column.name} FROM {table.name} GROUP BY {column.name} ORDER BY COUNT(*) {order} LIMIT 1"
    return ask.draft(text, sql, table)


def group_extreme(ask: Asker) -> Draft:
    """The group with the highest or lowest average of a number."""
    table = ask.table(Kind.CATEGORY, NUMBERS)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    number = ask.complete(table, ask.column(table, *NUMBERS))
    if "year" in number.name:
        raise NoQuestionError
    top = ask.rng.random() < 0.6
    text = ask.say(
        "which {c} has the {word} average {n} of its {p}?",
        "which {c} of the {p} has the {word} average {n}?",
        "for which {c} is the average {n} of the {p} the {word}?",
        word="highest" if top else "lowest",
        c=ask.phrase(column),
        n=ask.amount(number),
        p=table.plural,
    )
    order = "DESC" if top else "ASC"
    sql = f"SELECT {column.name} FROM {table.name} GROUP BY {column.name} ORDER BY AVG({number.name}) {order} LIMIT 1"
    return ask.draft(text, sql, table)


def having_count(ask: Asker) -> Draft:
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
    phrase = ask.phrase(column)
    text = ask.say(
        "how many {cs} have {limit} {p}?",
        "how many different {cs} have {limit} {p}?",
        "count the {cs} that have {limit} {p}.",
        "what is the number of {cs} with {limit} {p}?",
        cs=phrase if is_plural(phrase) else plural(phrase),
        limit=f"more than {limit}" if more else f"at least {limit}",
        p=table.plural,
    )
    sign = ">" if more else ">="
    inner = f"SELECT {column.name} FROM {table.name} GROUP BY {column.name} HAVING COUNT(*) {sign} {limit}"
    return ask.draft(text, f"SELECT COUNT(*) FROM ({inner})", table)


def names_where(ask: Asker) -> Draft:
    """The names of the two to five rows that fit a condition."""
    table = ask.table(Kind.NAME)
    name = ask.column(table, Kind.NAME)
    made = ask.condition(table, *FILTERS)
    conditions = [made]
    if len(ask.matching(table, made)) > MAX_LIST:
        conditions.append(ask.condition(table, *FILTERS, but=(made.column,)))
    found = [row[table.columns.index(name)] for row in ask.matching(table, *conditions)]
    if not MIN_MATCHES <= len(found) <= MAX_LIST or len(set(found)) < len(found):
        raise NoQuestionError
    phrase = ask.phrase(name)
    text = ask.say(
        "list the {ns} of the {p} with {having}.",
        "what are the {ns} of the {p} with {having}?",
        "which {p} have {having}?",
        "show the {ns} of all {p} with {having}.",
        ns=plural(phrase),
        p=table.plural,
        having=" and ".join(condition.having for condition in conditions),
    )
    where = " AND ".join(condition.where() for condition in conditions)
    return ask.draft(text, f"SELECT {name.name} FROM {table.name} WHERE {where}", table)


def top_names(ask: Asker) -> Draft:
    """The names of the first few rows by a number or a date, in order."""
    table = ask.table(Kind.NAME, (*NUMBERS, Kind.DATE))
    name = ask.column(table, Kind.NAME)
    column = ask.complete(table, ask.column(table, *NUMBERS, Kind.DATE))
    many = ask.rng.randint(2, 4)
    top = ask.rng.random() < 0.6
    if column.kind is Kind.DATE:
        word, order = ("latest", "latest first") if top else ("earliest", "earliest first")
    else:
        word, order = ("highest", "highest first") if top else ("lowest", "lowest first")
    text = ask.say(
        "what are the {ns} of the {n} {p} with the {word} {c}, {order}?",
        "list the {n} {p} with the {word} {c}, {order}.",
        "show the {ns} of the {n} {p} with the {word} {c}, {order}.",
        "which {n} {p} have the {word} {c}? List them {order}.",
        ns=plural(ask.phrase(name)),
        n=NUMBER_WORDS[many] if ask.rng.random() < 0.5 else many,
        p=table.plural,
        word=word,
        order=order,
        c=ask.amount(column),
    )
    direction = "DESC" if top else "ASC"
    sql = f"SELECT {name.name} FROM {table.name} ORDER BY {column.name} {direction} LIMIT {many}"
    return ask.draft(text, sql, table)


def above_average(ask: Asker) -> Draft:
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    if "year" in column.name:
        raise NoQuestionError
    above, amount = ask.rng.random() < 0.6, ask.amount(column)
    text = ask.say(
        "how many {p} have {a} {above} the average?",
        "count the {p} whose {c} is {above} the average {c}.",
        "what is the number of {p} with {a} {above} the average?",
        "how many {p} have {a} {than} the average {c}?",
        p=table.plural,
        c=amount,
        a=indefinite(amount),
        above="above" if above else "below",
        than="higher than" if above else "lower than",
    )
    sign = ">" if above else "<"
    average = f"(SELECT AVG({column.name}) FROM {table.name})"
    return ask.draft(
        text, f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} {sign} {average}", table
    )


def count_between(ask: Asker) -> Draft:
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
    text = ask.say(
        "how many {p} have {a} between {low} and {high}?",
        "count the {p} whose {c} is between {low} and {high}.",
        "what is the number of {p} with {a} from {low} to {high}?",
        p=table.plural,
        c=phrase,
        a=indefinite(phrase),
        low=number(low),
        high=number(high),
    )
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} BETWEEN {literal(low)} AND {literal(high)}"
    return ask.draft(text, sql, table)


def count_year(ask: Asker) -> Draft:
    table = ask.table(Kind.DATE)
    column = ask.column(table, Kind.DATE)
    years = [str(cell)[:4] for cell in ask.known(table, column)]
    year = ask.one(years)
    if not MIN_MATCHES <= years.count(year) < len(years):
        raise NoQuestionError
    phrase = ask.phrase(column)
    text = ask.say(
        "how many {p} have {a} in {year}?",
        "count the {p} whose {c} is in {year}.",
        "what is the number of {p} with {a} in the year {year}?",
        p=table.plural,
        c=phrase,
        a=indefinite(phrase),
        year=year,
    )
    return ask.draft(
        text,
        f"SELECT COUNT(*) FROM {table.name} WHERE strftime('%Y', {column.name}) = '{year}'",
        table,
    )


def null_count(ask: Asker) -> Draft:
    """How many rows lack a value, or how many have one."""
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
    # 'without goals' would mean none, not an unknown number
    if column.kind in (*NUMBERS, Kind.CATEGORY):
        phrase = ask.amount(column)
        texts: tuple[str, ...] = (
            (
                "how many {p} have no recorded {c}?",
                "for how many {p} is the {c} missing?",
                "count the {p} whose {c} is missing.",
            )
            if missing
            else ("how many {p} have a recorded {c}?", "count the {p} whose {c} is known.")
        )
    else:
        texts = (
            (
                "how many {p} have no {c}?",
                "count the {p} without {a}.",
                "for how many {p} {are} the {c} missing?",
            )
            if missing
            else ("how many {p} have {a}?", "count the {p} whose {c} {are} known.")
        )
    text = ask.say(
        *texts,
        p=table.plural,
        c=phrase,
        a=indefinite(phrase),
        are="are" if is_plural(phrase) else "is",
    )
    test = "IS NULL" if missing else "IS NOT NULL"
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} {test}", table)


def lookup_two(ask: Asker) -> Draft:
    """Two columns of a named row: a table answer."""
    kinds = (*NUMBERS, Kind.TEXT, Kind.CATEGORY, Kind.DATE)
    table = ask.table(Kind.NAME, kinds)
    name = ask.column(table, Kind.NAME)
    first = ask.column(table, *kinds)
    second = ask.column(table, *kinds, but=(first,))
    value, row = ask.named_row(table, name)
    if any(row[table.columns.index(column)] is None for column in (first, second)):
        raise NoQuestionError
    text = ask.say(
        "what are the {a} and the {b} of the {s} {v}?",
        "show the {a} and the {b} of the {s} {v}.",
        "find the {a} and {b} of the {s} {v}.",
        "give the {a} and the {b} of the {s} {v}.",
        a=ask.amount(first),
        b=ask.amount(second),
        s=table.singular,
        v=ask.quote(value),
    )
    sql = (
        f"SELECT {first.name}, {second.name} FROM {table.name} WHERE {name.name} = {literal(value)}"
    )
    return ask.draft(text, sql, table)


MEDIUM: tuple[Template, ...] = (
    count_two,
    count_either,
    aggregate_where,
    group_top,
    group_extreme,
    having_count,
    names_where,
    top_names,
    above_average,
    count_between,
    count_year,
    null_count,
    lookup_two,
)
