"""The answers as a script or a spreadsheet reads them, as a table, CSV or JSON: rows of the query
that an answer is taken from."""

import csv
import json
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Any, TextIO

from rich.table import Table as Shown

from shared.console import errors, literal, print_line, table_console
from shared.models import SQLObservation
from trainer.config.settings import FormatName
from trainer.play.played import PlayedAttempt, PlayedQuestion
from trainer.rollout.prompts import result_lines
from trainer.rollout.vote import Value, read_answer, read_value

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
    if attempt.answer is None or attempt.source is None:
        return None
    result = attempt.source.result
    whole = read_result(result)
    said = read_answer(attempt.answer, [result])
    texts: dict[Value, Cell] = {}
    for cell in chain.from_iterable(whole.rows):
        texts.setdefault(read_value(cell), cell)
    values = Counter(value for row in said for value in row if value is not None)
    if values == Counter(read_value(one) for row in whole.rows for one in row if one is not None):
        return whole

    def name(place: int) -> str:
        cells = {row[place] for row in said if place < len(row)}
        columns = zip(*whole.rows, strict=False)
        held = (set(map(read_value, column)) >= cells for column in columns)
        return next((one for one, fits in zip(whole.columns, held, strict=False) if fits), ANSWER)

    width = max(map(len, said), default=0)
    rows = [[texts.get(value, str(value)) for value in row] for row in said]
    return Table([name(place) for place in range(width)], rows)


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
