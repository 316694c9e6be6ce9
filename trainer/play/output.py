"""The answers as a script or a spreadsheet reads them: a table, CSV or JSON."""

import csv
import json
from typing import Any, TextIO

from rich.table import Table as Shown

from shared.console import errors, literal, print_line, table_console
from shared.models import SQLObservation
from trainer.play.answer_format import Format
from trainer.play.played import PlayedQuestion
from trainer.play.table import Table, answer_table, read_result


class Output:
    """Writes answers and results to a stream; nothing as `Format.TEXT`, which `Screen` shows.
    `about` are fields of every JSON object."""

    def __init__(self, form: Format, stream: TextIO, about: dict[str, Any]) -> None:
        self._form, self._stream, self._about = form, stream, about

    def answer(self, played: PlayedQuestion) -> None:
        table = answer_table(played.leader[1]) if played.answer is not None else None
        self._write(table, played.as_json())
        source = played.leader[1].source if table is not None else None
        if self._form in (Format.TABLE, Format.CSV) and source is not None:
            print_line(errors, f"from {source.argument}")

    def result(self, sql: str, observation: SQLObservation) -> None:
        table = None if observation.error is not None else read_result(observation.result)
        self._write(table, {"query": sql, "error": observation.error})

    def _write(self, table: Table | None, fields: dict[str, Any]) -> None:
        if self._form is Format.JSON:
            rows = {"columns": None, "rows": None} if table is None else vars(table)
            line = json.dumps(
                {**self._about, **fields, **rows}, ensure_ascii=False, allow_nan=False
            )
            self._stream.write(line.encode(errors="replace").decode() + "\n")
        elif table is not None and self._form is Format.CSV:
            writer = csv.writer(self._stream, lineterminator="\n")
            writer.writerows([table.columns, *table.rows])
        elif table is not None and self._form is Format.TABLE:
            shown = Shown()
            for name in literal(*table.columns):
                shown.add_column(name)
            for row in table.rows:
                shown.add_row(*literal(*("NULL" if cell is None else cell for cell in row)))
            table_console().print(shown)
        self._stream.flush()
        if table is not None and table.cut and self._form is not Format.TEXT:
            print_line(errors, "note: there are more rows than the environment shows", "yellow")
