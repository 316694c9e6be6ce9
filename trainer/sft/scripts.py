"""Scripts to demonstrate: the actions of an expert, from a question's gold query."""

import re
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.dataset import Question, database_path
from shared.sqltext import sql_name

EXPLORED_TABLES = 5  # of a larger database an explorer describes the gold query's tables alone

# comments are white space: on one line, `--` would hide the rest of the query
_QUOTED_OR_SPACE = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])|(?:\s|--[^\n]*|/\*.*?\*/)+""", re.DOTALL
)
_QUOTED_OR_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|\w+""")
# a column compared with text: T1.name = 'x', name LIKE "x%", name IN ('x', ...)
_COMPARED = re.compile(
    r"""(?:\b(\w+)\.)?["`\[]?\b\w+["`\]]?\s*(?:=|!=|<>|\bLIKE\b|\bIN\s*\()\s*['"]""", re.I
)
_TABLE = re.compile(
    r"""\b(?:FROM|JOIN)\s+["`\[]?(\w+)["`\]]?(?:\s+(?:AS\s+)?["`\[]?(\w+))?""", re.I
)


_COLUMNS = (
    "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c "
    "WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY m.rowid, c.cid"
)


@dataclass(frozen=True)
class Script:
    """The actions of one episode, of which the last is the answer.

    `errors` of them must be answered with an error; None: any number. The first `context` actions
    are replayed, but not taught.
    """

    source: str
    question_id: str
    database: str
    actions: tuple[str, ...]
    errors: int | None = None
    context: int = 0


def oracle_script(question: Question) -> tuple[str, ...]:
    """Describe every table of the gold query, sample those whose text it compares, run it and give
    the gold answer: text as it is, a list as a JSON array, a table as JSON rows."""
    return _script(question, question.tables_involved)


def explorer_script(question: Question, source: str, data_dir: Path, mistaking: bool) -> Script:
    """Return the oracle's script with every table of a small database described, in its order.

    With `mistaking`, a query that mistakes the name of a column comes before the right one, if
    there is such a mistake; its error shows the tables' columns.
    """
    columns = schema_of(database_path(data_dir, question.database_name))
    gold = {name.lower() for name in question.tables_involved}
    small = len(columns) <= EXPLORED_TABLES
    described = [name for name in columns if small or name.lower() in gold]
    *explored, query, answer = _script(question, described)
    names = {name for table in columns for name in columns[table]}
    wrong = mistaken(one_line(question.gold_sql), names) if mistaking else None
    tries = (f"QUERY: {wrong}", query) if wrong else (query,)
    return Script(source, *place(question), (*explored, *tries, answer), len(tries) - 1)


def _script(question: Question, described: Sequence[str]) -> tuple[str, ...]:
    sql = one_line(question.gold_sql)
    describes = [f"DESCRIBE: {sql_name(table)}" for table in described]
    samples = [f"SAMPLE: {sql_name(table)}" for table in compared_tables(sql, described)]
    return (*describes, *samples, f"QUERY: {sql}", answer_of(question))


def mistaken(sql: str, columns: Collection[str]) -> str | None:
    """Return the query with a column's name as one might guess it: `PetType` as `pet_type`,
    `pet_age` as `age` and `age` as `ages`. `columns` are all names, in lower case. None if every
    guess is one of them too."""
    words = [found[0] for found in _QUOTED_OR_WORD.finditer(sql)]
    for name in dict.fromkeys(word for word in words if word.lower() in columns):
        parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        guesses = (parted, name.partition("_")[2], name.replace("_", ""), f"{name}s")
        for guess in guesses:
            if guess and guess.lower() not in {*columns, *map(str.lower, words)}:
                pieces = re.split(f"({_QUOTED_OR_WORD.pattern})", sql)
                return "".join(guess if piece == name else piece for piece in pieces)
    return None


@cache
def schema_of(path: Path) -> dict[str, list[str]]:
    """Return the names of a database's tables in its order, each with its columns in lower case."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        tables: dict[str, list[str]] = {}
        for table, column in connection.execute(_COLUMNS):
            tables.setdefault(table, []).append(column.lower())
    return tables


def answer_of(question: Question) -> str:
    text = question.answer_text
    return f"ANSWER: {one_line(text) if question.answer_form == 'sql' else text}"


def one_line(sql: str) -> str:
    """Return a query on one line without comments, as a turn is one line; quoted text stays."""
    return _QUOTED_OR_SPACE.sub(lambda match: match[1] or " ", sql).strip().rstrip("; ")


def compared_tables(sql: str, tables: Collection[str]) -> list[str]:
    """Return those of `tables` whose columns `sql` compares with text, in the order of `tables`.

    A column without a table's name is taken for one of the nearest FROM before it.
    """
    mentions = list(_TABLE.finditer(sql))
    names = {name.lower(): found[1] for found in mentions for name in found.groups() if name}
    compared = set()
    for match in _COMPARED.finditer(sql):
        before = [found[1] for found in mentions if found.start() < match.start()]
        table = names.get(match[1].lower()) if match[1] else (before or [None])[-1]
        compared.add((table or "").lower())
    return [table for table in tables if table.lower() in compared]


def place(question: Question) -> tuple[str, str]:
    return question.question_id, question.database_name
