"""The type of a gold answer, from the rows that the gold SQL returns."""

from collections.abc import Sequence
from typing import Any

from shared.models import AnswerType

Cell = int | float | str | None


def type_answer(rows: Sequence[Sequence[Cell]]) -> tuple[Any, AnswerType]:
    """`(gold_answer, answer_type)` of one row or more, each of one cell or more.

    One cell is a scalar (integer, float or string), one column of several rows a list of its cells,
    anything else a table: a list of rows, each a list of cells. A lone NULL has no type and raises
    ValueError, as no rows do.
    """
    if not rows:
        raise ValueError("no rows: an empty result has no answer")
    if len(rows[0]) > 1:
        return [list(row) for row in rows], "table"
    if len(rows) > 1:
        return [row[0] for row in rows], "list"
    cell = rows[0][0]
    match cell:
        case int():
            return cell, "integer"
        case float():
            return cell, "float"
        case str():
            return cell, "string"
        case _:
            raise ValueError(f"a lone {type(cell).__name__} has no answer type")
