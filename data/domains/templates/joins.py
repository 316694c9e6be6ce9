"""Medium forms over a child table and the parent table that it refers to."""

from data.domains.spec import Draft, Kind
from data.domains.templates.asker import MIN_MATCHES, NUMBERS, Asker, Link, NoQuestionError, literal
from data.domains.templates.easy import Template
from data.domains.templates.medium import MAX_LIST, aggregate, rounding
from data.domains.words import indefinite, plural

ATTRIBUTES = (*NUMBERS, Kind.TEXT, Kind.CATEGORY, Kind.DATE)


def _named_parent(ask: Asker, link: Link, most: int | None = None) -> tuple[str, str]:
    """A parent with two children or more, and `most` at the most: `(its name, the condition on
    it)`."""
    name = ask.column(link.parent, Kind.NAME)
    value, row = ask.named_row(link.parent, name)
    children = ask.cells(link.child, link.ref).count(
        row[link.parent.columns.index(link.parent.key)]
    )
    if children < MIN_MATCHES or (most is not None and children > most):
        raise NoQuestionError
    return value, f"{link.parent.name}.{name.name} = {literal(value)}"


def join_count(ask: Asker) -> Draft:
    link = ask.link(parent_kinds=(Kind.NAME,))
    value, where = _named_parent(ask, link)
    text = ask.say(
        "how many {p} does the {s} {v} have?",
        "how many {p} belong to the {s} {v}?",
        "count the {p} of the {s} {v}.",
        "what is the number of {p} of the {s} {v}?",
        "find the number of {p} for the {s} {v}.",
        p=link.child.plural,
        s=ask.role(link),
        v=ask.quote(value),
    )
    return ask.draft(
        text, f"SELECT COUNT(*) FROM {link.join} WHERE {where}", link.child, link.parent
    )


def join_count_where(ask: Asker) -> Draft:
    """Children whose parent fits a condition."""
    link = ask.link(parent_kinds=(Kind.CATEGORY,))
    made = ask.condition(link.parent, Kind.CATEGORY)
    keys = {
        row[link.parent.columns.index(link.parent.key)] for row in ask.matching(link.parent, made)
    }
    if sum(cell in keys for cell in ask.cells(link.child, link.ref)) < MIN_MATCHES:
        raise NoQuestionError
    text = ask.say(
        "how many {p} belong to {parents} with {having}?",
        "count the {p} of the {parents} with {having}.",
        "how many {p} have {s} {whose}?",
        "what is the number of {p} of {parents} {whose}?",
        p=link.child.plural,
        parents=link.parent.plural,
        s=indefinite(ask.role(link)),
        having=made.having,
        whose=made.whose,
    )
    where = made.where(f"{link.parent.name}.")
    return ask.draft(
        text, f"SELECT COUNT(*) FROM {link.join} WHERE {where}", link.child, link.parent
    )


def join_lookup(ask: Asker) -> Draft:
    """A column of the parent of a named child."""
    link = ask.link(child_kinds=(Kind.NAME,))
    name = ask.column(link.child, Kind.NAME)
    column = ask.column(link.parent, *ATTRIBUTES, Kind.NAME, Kind.NAME)
    value, _ = ask.named_row(link.child, name)
    texts = [
        "what is the {c} of the {parent} of the {s} {v}?",
        "find the {c} of the {parent} of the {s} {v}.",
        "show the {c} of the {parent} that the {s} {v} belongs to.",
    ]
    if column.kind is Kind.NAME:
        texts += ["which {parent} does the {s} {v} belong to?"] * 2
    text = ask.say(
        *texts,
        c=ask.amount(column),
        parent=ask.role(link),
        s=link.child.singular,
        v=ask.quote(value),
    )
    sql = (
        f"SELECT {link.parent.name}.{column.name} FROM {link.join} "
        f"WHERE {link.child.name}.{name.name} = {literal(value)}"
    )
    return ask.draft(text, sql, link.child, link.parent)


def join_aggregate(ask: Asker) -> Draft:
    link = ask.link(child_kinds=NUMBERS, parent_kinds=(Kind.NAME,))
    column = ask.column(link.child, *NUMBERS)
    value, where = _named_parent(ask, link)
    words, function = aggregate(ask, column, f"{link.child.name}.")
    text = ask.say(
        "what is the {w} of the {p} of the {s} {v}{r}?",
        "for the {s} {v}, what is the {w} of the {p}{r}?",
        "find the {w} of the {p} that belong to the {s} {v}{r}.",
        w=words,
        p=link.child.plural,
        s=ask.role(link),
        v=ask.quote(value),
        r=rounding(function),
    )
    return ask.draft(
        text, f"SELECT {function} FROM {link.join} WHERE {where}", link.child, link.parent
    )


def join_names(ask: Asker) -> Draft:
    """The names of a named parent's two to five children."""
    link = ask.link(child_kinds=(Kind.NAME,), parent_kinds=(Kind.NAME,))
    name = ask.column(link.child, Kind.NAME)
    value, where = _named_parent(ask, link, MAX_LIST)
    text = ask.say(
        "list the {ns} of the {p} of the {s} {v}.",
        "which {p} belong to the {s} {v}?",
        "show the {ns} of all {p} of the {s} {v}.",
        "what are the {ns} of the {p} of the {s} {v}?",
        ns=plural(ask.phrase(name)),
        p=link.child.plural,
        s=ask.role(link),
        v=ask.quote(value),
    )
    sql = f"SELECT {link.child.name}.{name.name} FROM {link.join} WHERE {where}"
    return ask.draft(text, sql, link.child, link.parent)


def parent_top(ask: Asker) -> Draft:
    """The parent with the most children."""
    link = ask.link(parent_kinds=(Kind.NAME,))
    name = ask.column(link.parent, Kind.NAME)
    text = ask.say(
        "which {s} has the most {p}?",
        "what is the {n} of the {s} with the most {p}?",
        "find the {s} with the highest number of {p}.",
        "give the {n} of the {s} that has the most {p}.",
        s=link.parent.singular,
        n=ask.phrase(name),
        p=link.child.plural,
    )
    sql = (
        f"SELECT {link.parent.name}.{name.name} FROM {link.join} "
        f"GROUP BY {link.parent.name}.{link.parent.key.name} ORDER BY COUNT(*) DESC LIMIT 1"
    )
    return ask.draft(text, sql, link.child, link.parent)


def without_children(ask: Asker) -> Draft:
    """How many parents no child refers to."""
    link = ask.link()
    if ask.has_null(link.child, link.ref):
        raise NoQuestionError
    text = ask.say(
        "how many {parents} have no {p}?",
        "count the {parents} without any {p}.",
        "what is the number of {parents} that have no {p}?",
        parents=link.parent.plural,
        p=link.child.plural,
    )
    inner = f"SELECT {link.ref.name} FROM {link.child.name}"
    sql = f"SELECT COUNT(*) FROM {link.parent.name} WHERE {link.parent.key.name} NOT IN ({inner})"
    return ask.draft(text, sql, link.parent, link.child)


JOINS: tuple[Template, ...] = (
    join_count,
    join_count_where,
    join_lookup,
    join_aggregate,
    join_names,
    parent_top,
    without_children,
)
