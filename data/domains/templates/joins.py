"""Medium forms over a child table and the parent table that it refers to."""

from data.domains.spec import Draft, Kind
from data.domains.templates.asker import MIN_MATCHES, NUMBERS, Asker, Link, literal, need
from data.domains.templates.easy import Template
from data.domains.templates.medium import MAX_LIST, aggregate
from data.domains.words import indefinite, plural

ATTRIBUTES = (*NUMBERS, Kind.TEXT, Kind.CATEGORY, Kind.DATE)


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
    """Ask for a column of the parent of a named child."""
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


JOINS: tuple[Template, ...] = (
    join_count, join_count_where, join_lookup, join_aggregate, join_names, parent_top,
    without_children,
)  # fmt: skip
