"""Easy forms: one table, one clause."""

from collections.abc import Callable

from data.domains.spec import Draft, Kind
from data.domains.templates.asker import ATTRIBUTES, NUMBERS, Asker, additive, literal, need
from data.domains.words import is_plural, plural

Template = Callable[[Asker], Draft]
MAX_LISTED = 8  # rows of a list answer


def count_all(ask: Asker) -> Draft:
    table = ask.one(ask.domain.tables)
    return ask.draft(table, f"SELECT COUNT(*) FROM {table.name}", "count_all")


def count_equal(ask: Asker) -> Draft:
    return _count(ask, Kind.CATEGORY)


def count_compare(ask: Asker) -> Draft:
    return _count(ask, *NUMBERS, Kind.DATE)


def _count(ask: Asker, *kinds: Kind) -> Draft:
    table = ask.table(kinds)
    condition = ask.condition(table, *kinds)
    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {condition.where()}"
    return ask.draft(table, sql, "count", condition=condition)


def extreme_value(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    top = ask.rng.random() < 0.5
    words = ("highest", "maximum", "largest") if top else ("lowest", "minimum", "smallest")
    word = ask.rng.choice(words)
    sql = f"SELECT {'MAX' if top else 'MIN'}({column.name}) FROM {table.name}"
    return ask.draft(table, sql, "extreme_value", word=word, column=ask.amount(column))


def average(ask: Asker) -> Draft:
    table, column = ask.any_column(*NUMBERS)
    need("year" not in column.name)
    sql = f"SELECT ROUND(AVG({column.name}), 2) FROM {table.name}"
    return ask.draft(table, sql, "average", column=ask.amount(column))


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
    amount, called = ask.amount(column), _called(ask.phrase(name))
    sql = f"SELECT {column.name} FROM {table.name} WHERE {name.name} = {literal(value)}"
    return ask.draft(table, sql, "lookup", column=amount, value=ask.quote(value), called=called)


def _called(phrase: str) -> str:
    if "title" in phrase:
        return "titled"
    return "named" if "name" in phrase else f"with the {phrase}"


def reverse_lookup(ask: Asker) -> Draft:
    """Ask for the name of the row that holds a value that no other row holds."""
    table, name, column = ask.named_column(Kind.TEXT, Kind.DATE, *NUMBERS)
    cells = ask.known(table, column)
    value = ask.one(cells)
    need(cells.count(value) == 1 and len(str(value)) <= 40)
    fields = {"column": ask.amount(column), "value": ask.quote(value), "name": ask.phrase(name)}
    sql = f"SELECT {name.name} FROM {table.name} WHERE {column.name} = {literal(value)}"
    return ask.draft(table, sql, "reverse_lookup", **fields)


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
    return ask.draft(table, sql, "superlative", word=word, column=amount, name=phrase)


def count_distinct(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.CATEGORY)
    phrase = ask.phrase(column)
    sql = f"SELECT COUNT(DISTINCT {column.name}) FROM {table.name}"
    return ask.draft(table, sql, "count_distinct", column=phrase, columns=as_plural(phrase))


def as_plural(phrase: str) -> str:
    return phrase if is_plural(phrase) else plural(phrase)


def list_distinct(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.CATEGORY, complete=True)
    need(2 <= len(set(ask.known(table, column))) <= MAX_LISTED)
    sql = f"SELECT DISTINCT {column.name} FROM {table.name}"
    return ask.draft(table, sql, "list_distinct", columns=as_plural(ask.phrase(column)))


def date_edge(ask: Asker) -> Draft:
    table, column = ask.any_column(Kind.DATE)
    word = ask.rng.choice(("latest", "most recent", "earliest", "first"))
    function = "MAX" if word in ("latest", "most recent") else "MIN"
    sql = f"SELECT {function}({column.name}) FROM {table.name}"
    return ask.draft(table, sql, "date_edge", word=word, column=ask.phrase(column))


EASY: tuple[Template, ...] = (
    count_all, count_equal, count_compare, extreme_value, average, total, lookup, reverse_lookup,
    superlative, count_distinct, list_distinct, date_edge,
)  # fmt: skip
