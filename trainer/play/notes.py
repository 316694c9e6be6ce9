"""What a user notes about a database, in a TOML file beside it: docs/play.md has an example.

DESCRIBE shows the descriptions. The past questions that are most like a new one are in its prompt.
"""

import re
import sqlite3
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.console import counted
from shared.dataset import NOTES_SUFFIX, TABLE_TEXT, ColumnTexts
from shared.errors import first_problem
from shared.sqltext import on_one_line
from trainer.errors import PlayError

MAX_PAST = 3  # past questions that a prompt shows
HEAD = "Queries that answered earlier questions about this database:"


class PastQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    sql: str


class Notes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: dict[str, str] = {}
    columns: ColumnTexts = {}
    questions: list[PastQuestion] = []

    @property
    def texts(self) -> ColumnTexts:
        """The descriptions by table, in lower case: a table may be named in several ways."""
        found: ColumnTexts = {}
        for table, columns in self.columns.items():
            found.setdefault(table.lower(), {}).update(columns)
        for table, text in self.tables.items():
            found.setdefault(table.lower(), {})[TABLE_TEXT] = text
        return found

    def hint(self, question: str) -> str:
        asked = _words(question)

        def unlike(past: PastQuestion) -> float:
            words = _words(past.question)
            return -len(asked & words) / max(1, len(asked | words))

        chosen = sorted(self.questions, key=unlike)[:MAX_PAST]
        lines = [f"{one.question.strip()}\nQUERY: {on_one_line(one.sql)}" for one in chosen]
        return "\n\n".join([HEAD, *lines]) if lines else ""

    def __str__(self) -> str:
        columns = sum(map(len, self.columns.values()))
        described = f"{counted(len(self.tables), 'table')} and {counted(columns, 'column')}"
        return f"descriptions of {described}, {counted(len(self.questions), 'past question')}"


def notes_path(database: Path) -> Path:
    return database.with_name(database.stem + NOTES_SUFFIX)


def load_notes(path: Path) -> Notes:
    try:
        return Notes.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise PlayError(f"can't read the notes {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlayError(f"{path} is not TOML: {error}; see docs/play.md") from error
    except ValidationError as error:
        problem = first_problem(error, "top level")
        raise PlayError(f"{path}: {problem}; see docs/play.md") from error


def check_notes(notes: Notes, path: Path, connection: sqlite3.Connection) -> None:
    """Raise `PlayError` if notes name what a database lacks, or a past question's query fails."""
    listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    tables = {str(name).casefold(): name for (name,) in connection.execute(listed)}
    for table in (*notes.tables, *notes.columns):
        if table.casefold() not in tables:
            raise PlayError(f"{path}: the database has no table {table!r}")
    for table, columns in notes.columns.items():
        named = "SELECT name FROM pragma_table_xinfo(?)"
        there = connection.execute(named, (tables[table.casefold()],)).fetchall()
        for column in columns:
            if column.casefold() not in {str(name).casefold() for (name,) in there}:
                raise PlayError(f"{path}: the table {table!r} has no column {column!r}")
    for past in notes.questions:
        try:
            connection.execute(f"EXPLAIN {past.sql}").fetchone()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise PlayError(f"{path}: the query of {past.question!r} fails: {error}") from error


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
