"""Easy forms: one table, one clause."""

from collections.abc import Callable

from data.domains.spec import Draft, Kind, Table
from data.domains.templates.asker import NUMBERS, Asker, NoQuestionError, additive, literal
from data.domains.words import is_plural, plural

Template = Callable[[Asker], Draft]
MAX_LISTED = 8  # rows of a list answer


def count_all(ask: Asker) -> Draft:
    table = ask.one(ask.domain.tables)
    text = ask.say(
        "how many {p} are there?",
        "what is the number of {p}?",
        "what is the total number of {p}?",
        "count the {p}.",
        "find the number of {p}.",
        "how many {p} are in the database?",
        p=table.plural,
    )
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name}", table)


def count_equal(ask: Asker) -> Draft:
    return _count(ask, ask.table(Kind.CATEGORY), Kind.CATEGORY)


def count_compare(ask: Asker) -> Draft:
    kinds = (*NUMBERS, Kind.DATE)
    return _count(ask, ask.table(kinds), *kinds)


def _count(ask: Asker, table: Table, *kinds: Kind) -> Draft:
    made = ask.condition(table, *kinds)
    text = ask.say(
        "how many {p} have {having}?",
        "how many {p} have {having}?",
        "what is the number of {p} with {having}?",
        "what is the number of {p} {whose}?",
        "count the {p} with {having}.",
        "count the {p} {whose}.",
        "find the number of {p} {whose}.",
        "how many {p} are there with {having}?",
        p=table.plural,
        having=made.having,
        whose=made.whose,
    )
    return ask.draft(text, f"SELECT COUNT(*) FROM {table.name} WHERE {made.where()}", table)


def extreme_value(ask: Asker) -> Draft:
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    top = ask.rng.random() < 0.5
    word = ask.rng.choice(
        ("highest", "maximum", "largest") if top else ("lowest", "minimum", "smallest")
    )
    function = "MAX" if top else "MIN"
    text = ask.say(
        "what is the {word} {c} of the {p}?",
        "what is the {word} {c} among the {p}?",
        "what is the {word} {c} of any {s}?",
        "find the {word} {c} of the {p}.",
        "show the {word} {c} among all {p}.",
        "give the {word} {c} of all {p}.",
        word=word,
        c=ask.amount(column),
        p=table.plural,
        s=table.singular,
    )
    return ask.draft(text, f"SELECT {function}({column.name}) FROM {table.name}", table)


def average(ask: Asker) -> Draft:
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    if "year" in column.name:
        raise NoQuestionError
    text = ask.say(
        "what is the average {c} of the {p}, rounded to 2 decimals?",
        "what is the mean {c} of the {p}, rounded to 2 decimals?",
        "find the average {c} of all {p}, to 2 decimals.",
        "compute the average {c} of the {p}, rounded to 2 decimals.",
        "on average, what is the {c} of the {p}? Round to 2 decimals.",
        c=ask.amount(column),
        p=table.plural,
    )
    return ask.draft(text, f"SELECT ROUND(AVG({column.name}), 2) FROM {table.name}", table)


def total(ask: Asker) -> Draft:
    table = ask.table(NUMBERS)
    column = ask.column(table, *NUMBERS)
    if not additive(column):
        raise NoQuestionError
    phrase = ask.amount(column)
    totals = (
        ("what is the total {c} of all {p}?", "find the total {c} of the {p}.")
        if "total" not in phrase
        else ()
    )
    text = ask.say(
        *totals,
        "what is the sum of the {c} of all {p}?",
        "add up the {c} of all {p}.",
        c=phrase,
        p=table.plural,
    )
    return ask.draft(text, f"SELECT {sum_of(column.name, column.kind)} FROM {table.name}", table)


def sum_of(name: str, kind: Kind) -> str:
    """A sum as the gold writes it: of real numbers rounded, since their last digits hang on the
    order of addition."""
    return f"ROUND(SUM({name}), 2)" if kind is Kind.REAL else f"SUM({name})"


def lookup(ask: Asker) -> Draft:
    """One column of a row that the question names."""
    kinds = (*NUMBERS, Kind.TEXT, Kind.CATEGORY, Kind.DATE)
    table = ask.table(Kind.NAME, kinds)
    name = ask.column(table, Kind.NAME)
    column = ask.column(table, *kinds)
    value, _ = ask.named_row(table, name)
    text = ask.say(
        "what is the {c} of the {s} {v}?",
        "what is the {c} of the {s} {v}?",
        "what is the {c} of the {s} {called} {v}?",
        "find the {c} of the {s} {v}.",
        "show the {c} of the {s} {called} {v}.",
        "give the {c} of the {s} {v}.",
        c=ask.amount(column),
        s=table.singular,
        v=ask.quote(value),
        called=_called(ask.phrase(name)),
    )
    return ask.draft(
        text, f"SELECT {column.name} FROM {table.name} WHERE {name.name} = {literal(value)}", table
    )


def _called(phrase: str) -> str:
    if "title" in phrase:
        return "titled"
    return "named" if "name" in phrase else f"with the {phrase}"


def reverse_lookup(ask: Asker) -> Draft:
    """The name of the row that holds a value that no other row holds."""
    kinds = (Kind.TEXT, Kind.DATE, *NUMBERS)
    table = ask.table(Kind.NAME, kinds)
    name, column = ask.column(table, Kind.NAME), ask.column(table, *kinds)
    cells = ask.known(table, column)
    value = ask.one(cells)
    if cells.count(value) != 1 or len(str(value)) > 40:
        raise NoQuestionError
    text = ask.say(
        "which {s} has the {c} {v}?",
        "what is the {n} of the {s} with the {c} {v}?",
        "what is the {n} of the {s} whose {c} is {v}?",
        "find the {s} whose {c} is {v}.",
        "give the {n} of the {s} with the {c} {v}.",
        c=ask.amount(column),
        v=ask.quote(value),
        s=table.singular,
        n=ask.phrase(name),
    )
    return ask.draft(
        text, f"SELECT {name.name} FROM {table.name} WHERE {column.name} = {literal(value)}", table
    )


def superlative(ask: Asker) -> Draft:
    """The name of the row with the highest or lowest number, or with the latest or earliest date."""
    table = ask.table(Kind.NAME, (*NUMBERS, Kind.DATE))
    name = ask.column(table, Kind.NAME)
    column = ask.complete(table, ask.column(table, *NUMBERS, Kind.DATE))
    top = ask.rng.random() < 0.5
    if column.kind is Kind.DATE:
        word = ask.rng.choice(("latest", "most recent") if top else ("earliest",))
    else:
        word = ask.rng.choice(("highest", "largest") if top else ("lowest", "smallest"))
    text = ask.say(
        "which {s} has the {word} {c}?",
        "which {s} has the {word} {c}?",
        "what is the {n} of the {s} with the {word} {c}?",
        "find the {n} of the {s} with the {word} {c}.",
        "show the {s} with the {word} {c}.",
        "give the {n} of the {s} that has the {word} {c}.",
        s=table.singular,
        word=word,
        c=ask.amount(column),
        n=ask.phrase(name),
    )
    order = "DESC" if top else "ASC"
    sql = f"SELECT {name.name} FROM {table.name} ORDER BY {column.name} {order} LIMIT 1"
    return ask.draft(text, sql, table)


def count_distinct(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    column = ask.column(table, Kind.CATEGORY)
    phrase = ask.phrase(column)
    text = ask.say(
        "how many different {cs} are there among the {p}?",
        "how many distinct {cs} do the {p} have?",
        "count the different {cs} of the {p}.",
        "what is the number of distinct {cs} among the {p}?",
        "how many different values of {c} occur among the {p}?",
        c=phrase,
        cs=phrase if is_plural(phrase) else plural(phrase),
        p=table.plural,
    )
    return ask.draft(text, f"SELECT COUNT(DISTINCT {column.name}) FROM {table.name}", table)


def list_distinct(ask: Asker) -> Draft:
    table = ask.table(Kind.CATEGORY)
    column = ask.complete(table, ask.column(table, Kind.CATEGORY))
    if not 2 <= len(set(ask.known(table, column))) <= MAX_LISTED:
        raise NoQuestionError
    phrase = ask.phrase(column)
    text = ask.say(
        "what are the different {cs} of the {p}?",
        "list the distinct {cs} of the {p}.",
        "which different {cs} do the {p} have?",
        "show all distinct {cs} among the {p}.",
        cs=phrase if is_plural(phrase) else plural(phrase),
        p=table.plural,
    )
    return ask.draft(text, f"SELECT DISTINCT {column.name} FROM {table.name}", table)


def date_edge(ask: Asker) -> Draft:
    table = ask.table(Kind.DATE)
    column = ask.column(table, Kind.DATE)
    word, function = ask.rng.choice(
        (("latest", "MAX"), ("most recent", "MAX"), ("earliest", "MIN"), ("first", "MIN"))
    )
    text = ask.say(
        "what is the {word} {c} of the {p}?",
        "what is the {word} {c} among the {p}?",
        "find the {word} {c} of any {s}.",
        "give the {word} {c} of all {p}.",
        "show the {word} {c} among all {p}.",
        word=word,
        c=ask.phrase(column),
        p=table.plural,
        s=table.singular,
    )
    return ask.draft(text, f"SELECT {function}({column.name}) FROM {table.name}", table)


EASY: tuple[Template, ...] = (
    count_all,
    count_equal,
    count_compare,
    extreme_value,
    average,
    total,
    lookup,
    reverse_lookup,
    superlative,
    count_distinct,
    list_distinct,
    date_edge,
)
