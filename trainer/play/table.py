"""The answer to a question as a table: rows of the query that it is taken from."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from trainer.play.played import PlayedAttempt
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
