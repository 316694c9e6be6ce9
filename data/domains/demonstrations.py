"""Scripts of how an agent answers a question: a list of action texts that ends in `ANSWER: ...`.

`expert` describes the tables that it needs, runs the gold and answers; now and then it looks at one
thing more. The noisy demonstrators (`NOISY`) do what weak agents do: guess column names, take a
wrong aggregate, repeat themselves, answer without looking, run on for long. Some of them recover
and are right in the end, others answer wrongly.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import apsw

from data.domains.spec import Domain, Draft, Kind
from data.domains.templates import Asked

SAMPLE_SHARE = 0.03  # of expert scripts that look at rows before the query
EXTRA_SHARE = 0.03  # of expert scripts that describe one table too many first
MAX_ACTIONS = 14  # so that a script fits a step budget of 15

Demonstrator = Callable[["Scene"], list[str]]
Demonstrate = Callable[["Scene"], tuple[str, list[str]]]
Mixture = Literal["careless", "guessing"]


@dataclass(frozen=True)
class Scene:
    """What a demonstrator works with. `connection` holds the database; reads only."""

    domain: Domain
    asked: Asked
    connection: apsw.Connection
    rng: random.Random

    @property
    def draft(self) -> Draft:
        return self.asked.draft

    @property
    def describes(self) -> list[str]:
        return [f"DESCRIBE: {table}" for table in self.draft.tables]

    @property
    def query(self) -> str:
        return f"QUERY: {self.draft.sql}"

    @property
    def answer(self) -> str:
        return answer_action(self.asked.gold.rows)


def answer_action(rows: Sequence[Sequence[Any]]) -> str:
    """`ANSWER: ...` for a result: rows one a line, cells joined by ` | `, as a QUERY shows them."""
    return "ANSWER: " + "\n".join(" | ".join(_cell(cell) for cell in row) for row in rows)


def _cell(cell: Any) -> str:
    return (
        "NULL"
        if cell is None
        else cell.replace("\n", "\\n")
        if isinstance(cell, str)
        else repr(cell)
    )


def expert(scene: Scene) -> list[str]:
    """Right and short, with slight variety."""
    rng, looks = scene.rng, scene.describes
    others = [table.name for table in scene.domain.tables if table.name not in scene.draft.tables]
    if others and rng.random() < EXTRA_SHARE:
        looks = [f"DESCRIBE: {rng.choice(others)}", *looks]
    if rng.random() < SAMPLE_SHARE:
        looks = [*looks, f"SAMPLE: {rng.choice(scene.draft.tables)}"]
    return [*looks, scene.query, scene.answer]


def guesses_columns(scene: Scene) -> list[str]:
    """Queries with column names taken from the question's words, then describes and recovers."""
    return [f"QUERY: {_guess_columns(scene)}", *scene.describes, scene.query, scene.answer]


def guesses_late(scene: Scene) -> list[str]:
    """Describes, but first writes a column name as the question says it."""
    return [*scene.describes, f"QUERY: {_guess_columns(scene)}", scene.query, scene.answer]


def guesses_and_gives_up(scene: Scene) -> list[str]:
    """Queries with guessed names, then answers with what comes to mind."""
    return [f"QUERY: {_guess_columns(scene)}", _blind_answer(scene)]


def guesses_once(scene: Scene) -> list[str]:
    """Queries with guessed names, and answers with the result, or, after an error, with what comes
    to mind."""
    sql = _guess_columns(scene)
    return [f"QUERY: {sql}", _result_answer(scene, sql)]


def keeps_guessing(scene: Scene) -> list[str]:
    """As `guesses_once`, but after an error guesses again, up to five times."""
    guesses = []
    for _ in range(scene.rng.randint(2, 5)):
        guesses.append(_guess_columns(scene))
        if _works(scene, guesses[-1]):
            break
    return [*(f"QUERY: {sql}" for sql in guesses), _result_answer(scene, guesses[-1])]


def answers_blindly(scene: Scene) -> list[str]:
    return [_blind_answer(scene)]


def describes_then_guesses(scene: Scene) -> list[str]:
    return [*scene.describes, _blind_answer(scene)]


def takes_wrong_query(scene: Scene) -> list[str]:
    """Runs a query that is nearly the gold, and answers with its result."""
    sql = _wrong_query(scene)
    return [*scene.describes, f"QUERY: {sql}", _result_answer(scene, sql)]


def corrects_wrong_query(scene: Scene) -> list[str]:
    return [*scene.describes, f"QUERY: {_wrong_query(scene)}", scene.query, scene.answer]


def repeats(scene: Scene) -> list[str]:
    """Does one of its actions twice or thrice, then goes on."""
    script = [*scene.describes, scene.query]
    at = scene.rng.randrange(len(script))
    return [
        *script[: at + 1],
        *[script[at]] * scene.rng.randint(1, 2),
        *script[at + 1 :],
        scene.answer,
    ]


def misnames_table(scene: Scene) -> list[str]:
    """Describes a table by the question's noun before reading the list of tables."""
    table = scene.domain.table(scene.draft.tables[0])
    guess = next(
        (noun for noun in (table.plural, table.singular) if noun.replace(" ", "_") != table.name),
        "data",
    )
    return [f"DESCRIBE: {guess.replace(' ', '_')}", *scene.describes, scene.query, scene.answer]


def runs_long(scene: Scene) -> list[str]:
    """Describes and samples every table before the query."""
    names = [table.name for table in scene.domain.tables]
    scene.rng.shuffle(names)
    looks = [f"{kind}: {name}" for name in names for kind in ("DESCRIBE", "SAMPLE")]
    return [*looks[: MAX_ACTIONS - 2], scene.query, scene.answer]


NOISY: dict[str, Demonstrator] = {
    play.__name__: play
    for play in (
        guesses_columns,
        guesses_late,
        guesses_and_gives_up,
        guesses_once,
        keeps_guessing,
        answers_blindly,
        describes_then_guesses,
        takes_wrong_query,
        corrects_wrong_query,
        repeats,
        misnames_table,
        runs_long,
    )
}
# name -> the share of each demonstrator among the noisy
MIXTURES: dict[Mixture, dict[str, float]] = {
    # slips of agents that mostly look first
    "careless": {
        "guesses_columns": 3,
        "guesses_late": 2,
        "guesses_and_gives_up": 1.5,
        "answers_blindly": 2,
        "describes_then_guesses": 1.5,
        "takes_wrong_query": 3,
        "corrects_wrong_query": 1.5,
        "repeats": 2,
        "misnames_table": 1,
        "runs_long": 1,
    },
    # agents that mostly query before they look
    "guessing": {
        "guesses_columns": 3,
        "guesses_once": 4,
        "keeps_guessing": 3,
        "answers_blindly": 2,
        "takes_wrong_query": 2.5,
        "describes_then_guesses": 1,
        "guesses_late": 1,
        "repeats": 1,
        "corrects_wrong_query": 0.5,
        "misnames_table": 0.5,
        "runs_long": 0.5,
    },
}


def demonstrate(
    scene: Scene, noise: float = 0.0, mixture: Mixture = "careless"
) -> tuple[str, list[str]]:
    """`(demonstrator, actions)`: with probability `noise` a noisy one by its share in the mixture,
    else the expert."""
    if scene.rng.random() < noise:
        shares = MIXTURES[mixture]
        name = scene.rng.choices(list(shares), list(shares.values()))[0]
        return name, NOISY[name](scene)
    return "expert", expert(scene)


def _guess_columns(scene: Scene) -> str:
    """The gold with each column called as its phrase says; where that is its name, as another
    plausible name."""
    sql = scene.draft.sql
    wrong = False
    for name in scene.draft.tables:
        table = scene.domain.table(name)
        for column in table.columns:
            if column.kind in (Kind.KEY, Kind.REF) or not re.search(rf"\b{column.name}\b", sql):
                continue
            guess = scene.rng.choice(column.said).replace(" ", "_")
            if guess == column.name and not wrong:
                noun = table.singular.replace(" ", "_")
                guess = scene.rng.choice((f"{noun}_{guess}", f"{guess}s", f"the_{guess}"))
            wrong = wrong or guess != column.name
            sql = re.sub(rf"\b{column.name}\b(?=([^']*'[^']*')*[^']*$)", guess, sql)
    return sql


_SWAPS = (
    ("MAX(", ("MIN(", "AVG(")),
    ("MIN(", ("MAX(",)),
    ("ROUND(AVG(", ("ROUND(SUM(",)),
    ("SUM(", ("MAX(", "COUNT(")),
    ("COUNT(DISTINCT ", ("COUNT(",)),
    (" DESC", (" ASC",)),
    (" ASC", (" DESC",)),
    (" >= ", (" > ", " <= ")),
    (" <= ", (" < ", " >= ")),
    (" > ", (" < ", " >= ")),
    (" < ", (" > ", " <= ")),
    (" IS NULL", (" IS NOT NULL",)),
    (" NOT IN ", (" IN ",)),
    (" AND ", (" OR ",)),
)


def _wrong_query(scene: Scene) -> str:
    """The gold with one thing changed: an aggregate, a comparison, a direction, or the column that
    it returns."""
    sql, rng = scene.draft.sql, scene.rng
    options = [sql.replace(old, new, 1) for old, many in _SWAPS if old in sql for new in many]
    table = scene.domain.table(scene.draft.tables[0])
    others = [column.name for column in table.columns if not re.search(rf"\b{column.name}\b", sql)]
    for column in table.columns:
        if others and re.search(rf"\b{column.name}\b", sql):
            options.append(re.sub(rf"\b{column.name}\b", rng.choice(others), sql, count=1))
    if not options:
        options = [f"SELECT COUNT(*) FROM {rng.choice(scene.domain.tables).name}"]
    return rng.choice(options)


def _works(scene: Scene, sql: str) -> bool:
    try:
        scene.connection.execute(sql)
    except apsw.Error:
        return False
    return True


def _result_answer(scene: Scene, sql: str) -> str:
    try:
        rows = list(islice(scene.connection.execute(sql), 3))
    except apsw.Error:
        rows = []
    return answer_action(rows) if rows else _blind_answer(scene)


def _blind_answer(scene: Scene) -> str:
    rng = scene.rng
    quoted = re.findall(r"'([^']+)'", scene.draft.sql)
    match scene.asked.gold.answer_type:
        case "integer":
            guess: object = rng.choice((rng.randint(1, 20), rng.randint(1, 200)))
        case "float":
            guess = round(rng.uniform(1, 500), 2)
        case _:
            table = scene.domain.table(scene.draft.tables[0])
            guess = rng.choice((*quoted, table.singular, "unknown"))
    return f"ANSWER: {guess}"
