"""Scripts to demonstrate: the actions of an expert, from a question's gold query."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from shared.dataset import AnyQuestion, Question
from shared.sqltext import sql_name

# comments are white space: on one line, `--` would hide the rest of the query
_QUOTED_OR_SPACE = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])|(?:\s|--[^\n]*|/\*.*?\*/)+""", re.DOTALL
)
# a column compared with text: T1.name = 'x', name LIKE "x%", name IN ('x', ...)
_COMPARED = re.compile(
    r"""(?:\b(\w+)\.)?["`\[]?\b\w+["`\]]?\s*(?:=|!=|<>|\bLIKE\b|\bIN\s*\()\s*['"]""", re.I
)
_TABLE = re.compile(
    r"""\b(?:FROM|JOIN)\s+["`\[]?(\w+)["`\]]?(?:\s+(?:AS\s+)?["`\[]?(\w+))?""", re.I
)


@dataclass(frozen=True)
class Script:
    """The actions of one episode, the last of which is the answer. The first `context` are not
    taught. The answer must be correct, or hold the values of `label`, the key of an answer."""

    source: str
    question_id: str
    database: str
    actions: tuple[str, ...]
    context: int = 0
    label: str | None = None


def oracle_script(question: Question) -> tuple[str, ...]:
    """Describe every table of the gold query, sample those whose text it compares, run it and give
    the gold answer: text as it is, a list as a JSON array, a table as JSON rows."""
    sql, tables = one_line(question.gold_sql), question.tables_involved
    describes = [f"DESCRIBE: {sql_name(table)}" for table in tables]
    samples = [f"SAMPLE: {sql_name(table)}" for table in compared_tables(sql, tables)]
    text = question.answer_text
    answer = one_line(text) if question.answer_form == "sql" else text
    return (*describes, *samples, f"QUERY: {sql}", f"ANSWER: {answer}")


def one_line(sql: str) -> str:
    """Return a query on one line without comments, as a turn is one line; quoted text stays."""
    return _QUOTED_OR_SPACE.sub(lambda match: match[1] or " ", sql).strip().rstrip("; ")


def compared_tables(sql: str, tables: Collection[str]) -> list[str]:
    """Return those of `tables` whose columns `sql` compares with text, in the order of `tables`. A
    column without a table's name is taken for one of the nearest FROM before it."""
    mentions = list(_TABLE.finditer(sql))
    names = {name.lower(): found[1] for found in mentions for name in found.groups() if name}
    compared = set()
    for match in _COMPARED.finditer(sql):
        before = [found[1] for found in mentions if found.start() < match.start()]
        table = names.get(match[1].lower()) if match[1] else (before or [None])[-1]
        compared.add((table or "").lower())
    return [table for table in tables if table.lower() in compared]


def place(question: AnyQuestion) -> tuple[str, str]:
    return question.question_id, question.database_name
