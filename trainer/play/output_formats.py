"""The answers as a script or a spreadsheet reads them, as a table, CSV or JSON: rows of the query
that an answer is taken from."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.table import Table as Shown

from shared.console import errors, literal, print_line, table_console
from shared.models import SQLObservation
from trainer.config.settings import FormatName
from trainer.play.played import PlayedAttempt, PlayedQuestion
from trainer.rollout.prompts import result_lines
from trainer.rollout.vote import Rows, Value, read_answer, read_value

CUT = ("(first ", "(cut: ")  # begin remarks below a result of which a part is shown
ANSWER = "answer"  # the name of a column that no query has

Cell = str | None


@dataclass(frozen=True)
class Table:
    """Columns and rows as the environment shows them; `cut`: there are more rows."""

    columns: list[str]
    rows: list[list[Cell]]
    cut: bool = False


def read_result(result: str) -> Table:
    """Return the table that a QUERY's result shows, with None for NULL."""
    columns = result.split("\n")[0].split(" | ")
    shown, remarks = result_lines(result)
    # a cell may contain what separates cells: that counts as part of the last one
    rows = [line.split(" | ", len(columns) - 1) for line in shown]
    return Table(
        columns,
        [[None if cell == "NULL" else cell for cell in row] for row in rows],
        any(line.startswith(CUT) for line in remarks),
    )


def answer_table(attempt: PlayedAttempt) -> Table | None:
    """Return an answer as rows and columns of its query. A column that the query does not have is
    called `ANSWER`."""
    if attempt.answer is None or attempt.source is None:
        return None
    result = attempt.source.result
    whole, said = read_result(result), read_answer(attempt.answer, [result])
    read = [tuple(map(read_value, row)) for row in whole.rows]
    if _known(said) == _known(read):
        return whole
    places, pairs = _places(said, read), list(zip(read, whole.rows, strict=True))
    texts: dict[Value, Cell] = {None: None}
    for values, cells in pairs:
        texts = dict(zip(values, cells, strict=True)) | texts
    left, rows = [*pairs], list[list[Cell]]()
    for row in said:
        pair = next(one for one in (*left, *pairs) if _is_part(row, one[0], places))
        if pair in left:
            left.remove(pair)
        placed = zip(row, places, strict=False)
        rows.append([texts.get(v, str(v)) if at is None else pair[1][at] for v, at in placed])
    names = [ANSWER if place is None else whole.columns[place] for place in places]
    return Table(names, rows, whole.cut and len(rows) >= len(read))


def _known(rows: Rows) -> Counter[Value]:
    return Counter(value for row in rows for value in row if value is not None)


def _places(said: Rows, read: Rows) -> list[int | None]:
    """Return which column of a result each column of an answer is, so that each row of the answer
    is part of one of the result's: None for one with other values, or for all if none fit."""
    columns, width = list(zip(*read, strict=False)), max(map(len, said), default=0)
    asked = [[row[place] for row in said if place < len(row)] for place in range(width)]

    def fitting(values: Sequence[Value]) -> list[int | None]:
        held = [at for at, column in enumerate(columns) if {*values} <= {*column}]
        held.sort(key=lambda at: not _in_order(values, columns[at]))
        return [*held] or [None]

    def completed(chosen: list[int | None]) -> list[int | None] | None:
        if not all(any(_is_part(row, one, chosen) for one in read) for row in said):
            return None
        if len(chosen) == width:
            return chosen
        free = (at for at in fitting(asked[len(chosen)]) if at is None or at not in chosen)
        return next(filter(None, (completed([*chosen, at]) for at in free)), None)

    return completed([]) or [None] * width


def _is_part(row: Sequence[Value], whole: Sequence[Value], places: Sequence[int | None]) -> bool:
    pairs = zip(row, places, strict=False)
    return all(at is None or (at < len(whole) and whole[at] == value) for value, at in pairs)


def _in_order(values: Sequence[Value], column: Iterable[Value]) -> bool:
    """Return whether a column holds values in this order, perhaps with others between them."""
    rest = iter(column)
    return all(value in rest for value in values)


class Output:
    """Writes answers and results to a stream; nothing as text, which `Screen` shows.
    `about` are fields of every JSON object."""

    def __init__(self, form: FormatName, stream: TextIO, about: dict[str, Any]) -> None:
        self._form, self._stream, self._about = form, stream, about

    def answer(self, played: PlayedQuestion) -> None:
        table = answer_table(played.leader[1]) if played.answer is not None else None
        self._write(table, played.as_json())
        source = played.leader[1].source if table is not None else None
        if self._form in ("table", "csv") and source is not None:
            print_line(errors, f"from {source.argument}")

    def result(self, sql: str, observation: SQLObservation) -> None:
        table = None if observation.error is not None else read_result(observation.result)
        self._write(table, {"query": sql, "error": observation.error})

    def _write(self, table: Table | None, fields: dict[str, Any]) -> None:
        if self._form == "json":
            rows = {"columns": None, "rows": None} if table is None else vars(table)
            line = json.dumps(
                {**self._about, **fields, **rows}, ensure_ascii=False, allow_nan=False
            )
            self._stream.write(line.encode(errors="replace").decode() + "\n")
        elif table is not None and self._form == "csv":
            writer = csv.writer(self._stream, lineterminator="\n")
            writer.writerows([table.columns, *table.rows])
        elif table is not None and self._form == "table":
            shown = Shown()
            for name in literal(*table.columns):
                shown.add_column(name)
            for row in table.rows:
                shown.add_row(*literal(*("NULL" if cell is None else cell for cell in row)))
            table_console().print(shown)
        self._stream.flush()
        if table is not None and table.cut and self._form != "text":
            print_line(errors, "note: there are more rows than the environment shows", "yellow")
