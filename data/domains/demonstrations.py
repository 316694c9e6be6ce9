"""Demonstrations of how an agent answers a question: action texts, the last of them `ANSWER: ...`.

`expert` describes the tables that it needs, runs the gold and answers; occasionally it looks at one
thing more. The careless demonstrators do what weak agents do: guess column names, take a wrong
aggregate, repeat themselves, answer without looking, take many steps. Some recover and end right,
others answer wrongly.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import apsw

from data.domains.question_forms import AnsweredDraft
from data.domains.spec import Domain, Draft, Kind
from data.domains.words import read_toml

SAMPLE_SHARE = 0.03  # of expert scripts that look at rows before the query
EXTRA_SHARE = 0.03  # of expert scripts that first describe a table too many
MAX_ACTIONS = 14  # fits a step budget of 15

_FILE = read_toml("demonstrations.toml")
SCRIPTS: dict[str, str] = _FILE["scripts"]  # demonstrator -> its moves
WEIGHTS: dict[str, float] = _FILE["weights"]  # of the careless demonstrators
SWAPS: dict[str, list[str]] = _FILE["swaps"]


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


def demonstrate(task: DemonstrationTask, noise: float = 0.0) -> tuple[str, list[str]]:
    """Return (demonstrator, actions): with probability `noise` a careless one, else the expert."""
    name = "expert"
    if task.rng.random() < noise:
        name = task.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    return name, follow_script(SCRIPTS[name], task)


def follow_script(script: str, task: DemonstrationTask) -> list[str]:
    """Return the actions of a script's moves, which demonstrations.toml explains."""
    rng, draft, actions = task.rng, task.draft, list[str]()
    for move in script.split():
        match move:
            case "describe":
                actions += [f"DESCRIBE: {table}" for table in draft.tables]
            case "look":
                names = [table.name for table in task.domain.tables]
                others = [name for name in names if name not in draft.tables]
                if others and rng.random() < EXTRA_SHARE:
                    actions.append(f"DESCRIBE: {rng.choice(others)}")
            case "sample":
                if rng.random() < SAMPLE_SHARE:
                    actions.append(f"SAMPLE: {rng.choice(draft.tables)}")
            case "survey":
                names = [table.name for table in task.domain.tables]
                rng.shuffle(names)
                looks = [f"{kind}: {name}" for name in names for kind in ("DESCRIBE", "SAMPLE")]
                actions += looks[: MAX_ACTIONS - 2]
            case "misname":
                table = task.domain.table(draft.tables[0])
                nouns = [noun.replace(" ", "_") for noun in (table.plural, table.singular)]
                noun = next((noun for noun in nouns if noun != table.name), "data")
                actions.append(f"DESCRIBE: {noun}")
            case "guess":
                actions.append(f"QUERY: {_guess_columns(task)}")
            case "miss":
                actions.append(f"QUERY: {_wrong_query(task)}")
            case "query":
                actions.append(f"QUERY: {draft.sql}")
            case "repeat":
                at = rng.randrange(len(actions))
                actions[at:at] = [actions[at]] * rng.randint(1, 2)
            case "result":
                query = actions[-1].removeprefix("QUERY: ")
                try:
                    rows = list(islice(task.connection.execute(query), 3))
                except apsw.Error:
                    rows = []
                actions.append(answer_action(rows) if rows else _blind_answer(task))
            case "blind":
                actions.append(_blind_answer(task))
            case "answer":
                actions.append(answer_action(task.question.gold.rows))
    return actions


def answer_action(rows: Sequence[Sequence[Any]]) -> str:
    """Return `ANSWER: ...` with one row per line and ` | ` between cells, as a QUERY shows them."""

    def shown(cell: Any) -> str:
        if cell is None:
            return "NULL"
        return cell.replace("\n", "\\n") if isinstance(cell, str) else repr(cell)

    return "ANSWER: " + "\n".join(" | ".join(map(shown, row)) for row in rows)


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
