"""Which attempts at one question agree, decided without a gold answer.

Attempts agree if their answers hold the same values, as the verifier reads them: rows in any order,
columns in theirs, numbers as numbers, letter case and white space aside. The most frequent answer
wins, where an attempt counts for more if its query names more of the question's words; one that
says only empty, NULL or 0 wins only if no attempt said anything else; ties go to the greater mean
log-probability, then to the first.

An attempt without an answer (its steps ran out, or infrastructure lost it) agrees with none. It
counts: shares are of all attempts.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from shared.actions import ActionType
from shared.answers.cells import BOOLEANS, NULLS, Read, folded, plain, unquote, visible
from shared.answers.dates import iso_moment
from shared.answers.numbers import is_value, read_number
from shared.answers.text import (
    BULLET,
    RULE,
    cell_text,
    has_thousands,
    is_cell,
    lines_of,
    read_json,
    rows_of_object,
    split_bars,
    split_commas,
    unwrapped_texts,
)
from trainer.rollout.prompts import NO_ROWS, result_of, result_rows
from trainer.rollout.row import RolloutRow

Value = int | float | str | None
Rows = list[tuple[Value, ...]]

_SEPARATORS = re.compile(r"[\W_]+")
NOTHING = "[]"  # the key of an answer without a value
GIVEN_UP = ("unknown", "n/a", "na", "not found", "no data", "i don't know", "i do not know")
NAMED_WEIGHT = 4.0  # an attempt that names all words counts e^4 as much as one that names none
DIGITS = 9  # that count of a fraction: the last ones depend on the order of a sum


@dataclass(frozen=True, slots=True)
class Attempt:
    """What counts of one attempt: the key of its answer, None without one; the mean log-probability
    of its sampled tokens, None if it is unknown; and the question's words in its last query."""

    key: str | None
    logprob: float | None = None
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts that agree. `members` are their places; `share` is that of all attempts, and
    `weight` is that of what all attempts count."""

    key: str
    members: tuple[int, ...]
    share: float
    weight: float


def vote(attempts: Sequence[Attempt]) -> list[Group]:
    """Return the groups of attempts that agree, the winner first; none without an answer."""
    places: dict[str, list[int]] = {}
    for place, attempt in enumerate(attempts):
        if attempt.key is not None:
            places.setdefault(attempt.key, []).append(place)

    named = {word for attempt in attempts if attempt.key is not None for word in attempt.named}
    answered = [() if attempt.key is None else attempt.named for attempt in attempts]
    weights = [math.exp(NAMED_WEIGHT * len(one) / max(1, len(named))) for one in answered]
    total = math.fsum(weights)
    groups = [
        Group(
            key,
            tuple(members),
            len(members) / len(attempts),
            math.fsum(weights[place] for place in members) / total,
        )
        for key, members in places.items()
    ]

    def rank(group: Group) -> tuple[bool, float, float, int]:
        known = [one for place in group.members if (one := attempts[place].logprob) is not None]
        likely = math.fsum(known) / len(known) if known else -math.inf
        return says_nothing(group.key), -group.weight, -likely, group.members[0]

    return sorted(groups, key=rank)


def attempt_of(row: RolloutRow, question: str = "") -> Attempt:
    kind, _, said = row.actions[-1].partition(": ") if row.actions else ("", "", "")
    if row.lost is not None or kind != ActionType.ANSWER:
        return Attempt(None, row.mean_logprob)
    queries = [one for one in row.actions if one.startswith(ActionType.QUERY)]
    results = [
        result_of(text)
        for action, text in zip(row.actions, row.read[1:], strict=False)
        if action.startswith(ActionType.QUERY)
    ]
    named = words_in(queries[-1].partition(": ")[2], question) if queries else ()
    return Attempt(answer_key(said, results), row.mean_logprob, named)


def words_in(query: str, question: str) -> tuple[str, ...]:
    """Return the question's words of three letters or more that a query holds, in names and values
    alike, singular or plural."""
    text = _SEPARATORS.sub("", query.lower())
    words = {word.rstrip("s") for word in _SEPARATORS.split(question.lower())}
    return tuple(sorted(word for word in words if len(word) > 2 and word in text))


def answer_key(said: str, results: Sequence[str] = ()) -> str:
    """Return the values of an answer as JSON, in a form that is equal for answers that agree. It is
    read by the `results` of the queries that the attempt saw: a number may be one of theirs
    rounded, and values one after another may be a row."""
    rows = read_answer(said, results)
    if all(cell is None for row in rows for cell in row):
        return NOTHING
    return json.dumps(sorted(rows, key=json.dumps), ensure_ascii=False)


def says_nothing(key: str) -> bool:
    """Return whether the values of a key are only NULL and 0, or none."""
    return all(cell in (None, 0) for row in json.loads(key) for cell in row)


def gives_up(key: str) -> bool:
    """Return whether a key says nothing, or only in words that it knows no answer."""
    cells = [cell for row in json.loads(key) for cell in row]
    return says_nothing(key) or all(cell in GIVEN_UP for cell in cells)


def read_answer(said: str, results: Sequence[str] = ()) -> Rows:
    tables = [result_rows(result) for result in results]
    for result, table in zip(results, tables, strict=True):
        if said.strip() == result or said.strip() == "\n".join(" | ".join(row) for row in table):
            return [tuple(map(read_value, row)) for row in table]
    seen = {tuple(map(read_value, row)) for table in tables for row in table}
    cells = {cell for row in seen for cell in row}
    text = unwrapped_texts(visible(said))[-1]
    if plain(text) in (NO_ROWS, NO_ROWS.strip("()")):
        return []
    rows = [[text]] if read_value(text) in cells else _rows(text)
    read = [tuple(_rounded(cell, cells) for cell in row) for row in rows]
    together = tuple(row[0] for row in read if len(row) == 1)
    # Ann, 3 is a row of two cells, not two rows, if a result has this row
    return [together] if len(together) == len(read) > 1 and together in seen else read


def read_value(cell: Read) -> Value:
    """Return a cell's number, text without case, or NULL."""
    text = unquote(cell.strip()) if cell is not None else ""
    name = plain(text)
    if name in NULLS:
        return None
    if name in BOOLEANS:
        return BOOLEANS[name]
    if (number := read_number(text)) is not None:
        return _exact(number)
    moment = iso_moment(text)
    return folded(name.removesuffix(".")) if moment is None else moment.isoformat()


def _exact(number: Decimal) -> int | float:
    whole = number == number.to_integral_value()
    number = number if whole else Decimal(f"{number:.{DIGITS}g}")
    return int(number) if number == number.to_integral_value() else float(number)


def _rounded(cell: Read, seen: Iterable[Value]) -> Value:
    """Return the value of a cell, or the number nearest to it among `seen` that it rounds."""
    value = read_value(cell)
    given = read_number(unquote((cell or "").strip()))
    if given is None or value in seen:
        return value
    near = [one for one in seen if isinstance(one, float) and is_value(given, one)]
    return min(near, key=lambda one: (abs(one - float(given)), one), default=value)


def _rows(text: str) -> list[list[Read]]:
    value: Any = read_json(text)
    if isinstance(value, dict):
        value = rows_of_object(value)
    if isinstance(value, list):
        rows = [list(one.values()) if isinstance(one, dict) else one for one in value]
        listed = [row if isinstance(row, list) else [row] for row in rows]
        return [[cell_text(c) if is_cell(c) else json.dumps(c) for c in row] for row in listed]
    if not isinstance(value, str):
        return [[cell_text(value)]]
    lines = lines_of(value)
    if len(lines) > 2 and RULE.fullmatch(lines[1]):
        lines = lines[2:]
    if lines and all("|" in line for line in lines):
        return [split_bars(line) for line in lines]
    if len(lines) > 1:
        bulleted = all(map(BULLET.match, lines))
        return [[BULLET.sub("", line, count=1) if bulleted else line] for line in lines]
    spaced = value.split(", ")
    parts = spaced if len(spaced) > 1 or has_thousands(spaced) else split_commas(value)
    return [[part] for part in parts]
