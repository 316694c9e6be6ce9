"""What DESCRIBE and SAMPLE show of a table: all of it or, of a wide table, a part.

DESCRIBE: survey          the columns; of a table with many, the first part
DESCRIBE: survey 41       the columns from the 41st on
DESCRIBE: survey pain     the columns with "pain" in their names
"""

from collections.abc import Sequence
from typing import NamedTuple

from env_server.questions import QuestionBank
from env_server.render import fits, render_columns, render_rows, render_table
from env_server.sql import JobKind, Jobs, SqlJob, SqlResult
from env_server.sql.jobs import encode_columns
from env_server.sql.statement import TOO_WIDE
from shared.dataset import AnyQuestion
from shared.sqltext import find_table, quote_identifier, sql_name

MOST_COLUMNS = 100_000  # more than a table can have
PART = 40  # columns that are read, and shown if they fit


class Effect(NamedTuple):
    """What an action led to: `text` to show, or `error`."""

    text: str = ""
    remarks: tuple[str, ...] = ()  # shown below the text; no information of the data's
    error: str | None = None
    error_code: str | None = None
    described: str | None = None  # a line for schema_info
    potential: float = 0.0  # of QUERY: how near it came to the gold
    correct: bool | None = None  # of ANSWER
    unjudged: bool = False  # ANSWER to an open question


def find_part(argument: str, tables: list[str]) -> tuple[str, str] | None:
    """Return the table that an argument names, if any, and the part of it behind the name."""
    if (table := find_table(argument, tables)) is not None:
        return table, ""
    name, _, part = argument.strip().rstrip(";").strip().rpartition(" ")
    table, part = find_table(name, tables), part.strip("\"'")
    if table is None:
        return None
    return table, str(min(int(part[:9]), MOST_COLUMNS)) if part.isdecimal() else part


def describe_jobs(
    bank: QuestionBank, question: AnyQuestion, table: str, part: str, *, values: bool
) -> Jobs[Effect]:
    """Return a table's columns, with what is in them if `values`."""
    path = bank.database(question.database_name)
    known: Effect | None = bank.described.get((path, table, part, values))
    if known is not None:
        return known
    columns = yield from _structure(bank, question, table)
    if columns.error is not None:
        return Effect(error=columns.error, error_code=columns.error_code)
    if part.isdecimal() and len(columns.rows) <= PART:
        part = ""  # as for SAMPLE, where it may mean a number of rows
    texts = bank.descriptions[question.database_name].get(table.lower(), {})
    names = [str(row[0]) for row in columns.rows]
    places = choose_places(table, names, part)
    if isinstance(places, str):
        return Effect(error=places, error_code="sql_error")
    held = None
    if values:
        held = yield from _contents(bank, question, table, columns, places[:PART])
    most = min(len(places), PART) if values else len(places)
    while True:  # as many as fit
        note = rest_note("DESCRIBE", table, places, most, len(names))
        text = render_table(table, columns, texts, places[:most], held, note)
        if fits(text) or most == 1:
            break
        most = max(1, most * 3 // 4)
    shown = Effect(text, described=render_columns(table, columns))
    words = part and not part.isdecimal()  # an agent's own: they must not fill the memory
    if not words and (held is None or held.error is None):
        bank.described[path, table, part, values] = shown
    return shown


def sample_jobs(bank: QuestionBank, question: AnyQuestion, table: str, part: str) -> Jobs[Effect]:
    """Return a table's first rows; of a wide one, those columns that belong to a part."""
    path, rows = bank.database(question.database_name), bank.limits.sample_rows

    def shown(result: SqlResult) -> Effect:
        if result.error is not None:
            return Effect(error=result.error, error_code=result.error_code)
        result.truncated = False  # a sample is not a cut result
        return Effect(render_rows(result, rows))

    columns = yield from _structure(bank, question, table)
    if columns.error is not None:
        return Effect(error=columns.error, error_code=columns.error_code)
    if not part or (part.isdecimal() and len(columns.rows) <= PART):
        job = SqlJob(JobKind.SAMPLE, path, table)
        whole = yield from bank.trusted_jobs(question, job, shown)
        if whole.error is None or not whole.error.startswith(TOO_WIDE):
            return whole
        part = ""
    names = [str(row[0]) for row in columns.rows]
    places = choose_places(table, names, part)
    if isinstance(places, str):
        return Effect(error=places, error_code="sql_error")
    most = min(len(places), PART)
    listed = ", ".join(quote_identifier(names[place]) for place in places[:most])
    statement = f"SELECT {listed} FROM {quote_identifier(table)} NOT INDEXED"
    result = yield SqlJob(JobKind.GOLD, path, statement, rows)
    if result.error_code == "db_error":
        raise bank.unreadable(question, result)
    found, note = shown(result), rest_note("SAMPLE", table, places, most, len(names))
    return found if found.error else Effect(f"{found.text}\n{note}".rstrip())


def choose_places(table: str, names: Sequence[str], part: str) -> list[int] | str:
    """Return the places of the columns that an agent asks for, by the number of the first one or by
    a word in their names ("": all), or an error."""
    name = sql_name(table)
    if not part.isdecimal():
        found = [place for place, one in enumerate(names) if part.lower() in one.lower()]
        return found or f"no column of {name} has {part[:80]!r} in its name"
    first = int(part)
    if not 1 <= first <= len(names):
        return f"{name} has columns 1 to {len(names)}, not {part}"
    return list(range(first - 1, len(names)))


def rest_note(action: str, table: str, places: Sequence[int], shown: int, width: int) -> str:
    """Return a line that says which columns are shown, and how to see others; "" if all are."""
    if shown == width:
        return ""
    name, one = sql_name(table), places[0] + 1
    whole = list(places[:shown]) == list(range(places[0], places[0] + shown))
    which = f"columns {one} to {one + shown - 1}" if whole else f"{shown} columns"
    rest = f'"{action}: {name} word" shows those with a word in their names'
    if shown < len(places):
        rest = f'"{action}: {name} {places[shown] + 1}" shows those from there on, {rest}'
    return f"({which} of {width}; {rest})"


def _structure(bank: QuestionBank, question: AnyQuestion, table: str) -> Jobs[SqlResult]:
    job = SqlJob(JobKind.DESCRIBE, bank.database(question.database_name), table)
    return (yield from bank.trusted_jobs(question, job, lambda result: result))


def _contents(
    bank: QuestionBank, question: AnyQuestion, table: str, columns: SqlResult, places: Sequence[int]
) -> Jobs[SqlResult]:
    """Return what is in the columns at `places`, read once per `PART` columns of the table; an
    error if that did not work this time."""
    path = bank.database(question.database_name)
    names, rows = [str(row[0]) for row in columns.rows], columns.row_count
    found, read = [], None
    for number in sorted({place // PART for place in places}):
        block = range(PART * number, min(len(names), PART * (number + 1)))
        text = encode_columns(table, [names[place] for place in block], names, rows)
        job = SqlJob(JobKind.VALUES, path, text)
        result = yield from bank.trusted_jobs(question, job, lambda result: result)
        if result.error is not None:
            return result
        read = result.row_count
        found += result.rows
    return SqlResult(["column", "values"], found, row_count=read)
