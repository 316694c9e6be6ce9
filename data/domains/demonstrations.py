"""Scripts of how an agent answers a question: action texts, of which the last is `ANSWER: ...`.

`expert` describes the tables that it needs, runs the gold and answers; occasionally it looks at one
thing more. The careless demonstrators (`CARELESS`) do what weak agents do: guess column names, take
a wrong aggregate, repeat themselves, answer without looking, take many steps. Some recover and end
right, others answer wrongly.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import apsw

from data.domains.spec import Domain, Draft, Kind
from data.domains.templates import AnsweredDraft
from data.domains.words import read_toml

SAMPLE_SHARE = 0.03  # of expert scripts that look at rows before the query
EXTRA_SHARE = 0.03  # of expert scripts that first describe a table too many
MAX_ACTIONS = 14  # fits a step budget of 15

Demonstrator = Callable[["DemonstrationTask"], list[str]]


@dataclass(frozen=True)
class DemonstrationTask:
    """What a demonstrator works with. `connection` holds the database and is only read."""

    domain: Domain
    question: AnsweredDraft
    connection: apsw.Connection
    rng: random.Random

    @property
    def draft(self) -> Draft:
        return self.question.draft

    @property
    def describes(self) -> list[str]:
        return [f"DESCRIBE: {table}" for table in self.draft.tables]

    @property
    def query(self) -> str:
        return f"QUERY: {self.draft.sql}"

    @property
    def answer(self) -> str:
        return answer_action(self.question.gold.rows)


def answer_action(rows: Sequence[Sequence[Any]]) -> str:
    """Return `ANSWER: ...` with one row per line and ` | ` between cells, as a QUERY shows them."""
    return "ANSWER: " + "\n".join(" | ".join(_cell(cell) for cell in row) for row in rows)


def _cell(cell: Any) -> str:
    if cell is None:
        return "NULL"
    return cell.replace("\n", "\\n") if isinstance(cell, str) else repr(cell)


def expert(task: DemonstrationTask) -> list[str]:
    """Answer right in few steps, with slight variety."""
    rng, looks = task.rng, task.describes
    others = [table.name for table in task.domain.tables if table.name not in task.draft.tables]
    if others and rng.random() < EXTRA_SHARE:
        looks = [f"DESCRIBE: {rng.choice(others)}", *looks]
    if rng.random() < SAMPLE_SHARE:
        looks = [*looks, f"SAMPLE: {rng.choice(task.draft.tables)}"]
    return [*looks, task.query, task.answer]


def follow_script(moves: str, task: DemonstrationTask) -> list[str]:
    """Make the moves of a script of demonstrations.toml, which explains them."""
    actions: list[str] = []
    for move in moves.split():
        match move:
            case "describe":
                actions += task.describes
            case "query":
                actions.append(task.query)
            case "answer":
                actions.append(task.answer)
            case "guess":
                actions.append(f"QUERY: {_guess_columns(task)}")
            case "miss":
                actions.append(f"QUERY: {_wrong_query(task)}")
            case "result":
                actions.append(_result_answer(task, actions[-1]))
            case _:  # "blind"
                actions.append(_blind_answer(task))
    return actions


def repeats(task: DemonstrationTask) -> list[str]:
    """Repeat one action once or twice, then continue."""
    script = [*task.describes, task.query]
    at = task.rng.randrange(len(script))
    script[at:at] = [script[at]] * task.rng.randint(1, 2)
    return [*script, task.answer]


def misnames_table(task: DemonstrationTask) -> list[str]:
    """Describe a table by the question's noun instead of its name first."""
    table = task.domain.table(task.draft.tables[0])
    nouns = [noun.replace(" ", "_") for noun in (table.plural, table.singular)]
    guess = next((noun for noun in nouns if noun != table.name), "data")
    return [f"DESCRIBE: {guess}", *task.describes, task.query, task.answer]


def runs_long(task: DemonstrationTask) -> list[str]:
    """Describe and sample every table before the query."""
    names = [table.name for table in task.domain.tables]
    task.rng.shuffle(names)
    looks = [f"{kind}: {name}" for name in names for kind in ("DESCRIBE", "SAMPLE")]
    return [*looks[: MAX_ACTIONS - 2], task.query, task.answer]


_FILE = read_toml("demonstrations.toml")
CARELESS: dict[str, Demonstrator] = {
    **{name: partial(follow_script, moves) for name, moves in _FILE["scripts"].items()},
    **{play.__name__: play for play in (repeats, misnames_table, runs_long)},
}
WEIGHTS: dict[str, float] = _FILE["weights"]  # of the careless demonstrators
SWAPS: dict[str, list[str]] = _FILE["swaps"]


def demonstrate(task: DemonstrationTask, noise: float = 0.0) -> tuple[str, list[str]]:
    """Return (demonstrator, actions): with probability `noise` a careless one, else the expert."""
    if task.rng.random() < noise:
        name = task.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        return name, CARELESS[name](task)
    return "expert", expert(task)


def _guess_columns(task: DemonstrationTask) -> str:
    """Return the gold with each column named by its phrase, at least one of them wrongly."""
    sql = task.draft.sql
    wrong = False
    for name in task.draft.tables:
        table = task.domain.table(name)
        for column in table.columns:
            if column.kind in (Kind.KEY, Kind.REF) or not re.search(rf"\b{column.name}\b", sql):
                continue
            guess = task.rng.choice(column.wordings).replace(" ", "_")
            if guess == column.name and not wrong:
                noun = table.singular.replace(" ", "_")
                guess = task.rng.choice((f"{noun}_{guess}", f"{guess}s", f"the_{guess}"))
            wrong = wrong or guess != column.name
            sql = re.sub(rf"\b{column.name}\b(?=([^']*'[^']*')*[^']*$)", guess, sql)
    return sql


def _wrong_query(task: DemonstrationTask) -> str:
    """Return the gold with an aggregate, a comparison, a direction or a column changed."""
    sql, rng = task.draft.sql, task.rng
    swaps = [(old, new) for old, many in SWAPS.items() if old in sql for new in many]
    options = [sql.replace(old, new, 1) for old, new in swaps]
    table = task.domain.table(task.draft.tables[0])
    others = [column.name for column in table.columns if not re.search(rf"\b{column.name}\b", sql)]
    for column in table.columns:
        if others and re.search(rf"\b{column.name}\b", sql):
            options.append(re.sub(rf"\b{column.name}\b", rng.choice(others), sql, count=1))
    if not options:
        options = [f"SELECT COUNT(*) FROM {rng.choice(task.domain.tables).name}"]
    return rng.choice(options)


def _result_answer(task: DemonstrationTask, query: str) -> str:
    """Answer with the first rows of a QUERY action, blindly if it fails or has none."""
    try:
        rows = list(islice(task.connection.execute(query.removeprefix("QUERY: ")), 3))
    except apsw.Error:
        rows = []
    return answer_action(rows) if rows else _blind_answer(task)


def _blind_answer(task: DemonstrationTask) -> str:
    rng = task.rng
    quoted = re.findall(r"'([^']+)'", task.draft.sql)
    match task.question.gold.answer_type:
        case "integer":
            guess: object = rng.choice((rng.randint(1, 20), rng.randint(1, 200)))
        case "float":
            guess = round(rng.uniform(1, 500), 2)
        case _:
            table = task.domain.table(task.draft.tables[0])
            guess = rng.choice((*quoted, table.singular, "unknown"))
    return f"ANSWER: {guess}"
