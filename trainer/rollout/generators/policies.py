"""Policies that write text: scripts of demonstrators or of an oracle, and random actions."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from shared.dataset import Question
from shared.models import SQLObservation
from shared.sqltext import quote_text, split_names, sql_name, unquote_identifier
from trainer.rollout.episode import Episode
from trainer.rollout.prompts import result_rows

ANSWER_PROBABILITY = 0.15  # of a random action once a cell was seen


class ScriptedPolicy:
    """Plays `scripts[question_id]`, one text per turn, and ends the episode after the last one."""

    def __init__(self, scripts: Mapping[str, Sequence[str]]) -> None:
        self._scripts = scripts

    def act(self, episodes: Sequence[Episode]) -> list[str | None]:
        rows = [episode.row for episode in episodes]
        scripts = [self._scripts[row.question_id][len(row.texts) :] for row in rows]
        return [script[0] if script else None for script in scripts]


def oracle_policy(questions: Iterable[Question], step_budget: int) -> ScriptedPolicy:
    """Return a policy that DESCRIBEs the tables of the gold SQL, runs it and gives the gold answer.
    If the budget is too short, the DESCRIBEs are left out first, then the query."""
    scripts = {}
    for question in questions:
        looks = [f"DESCRIBE: {sql_name(table)}" for table in question.tables_involved]
        acts = [f"QUERY: {question.gold_sql}", f"ANSWER: {question.answer_text}"][-step_budget:]
        scripts[question.question_id] = [*looks[: step_budget - len(acts)], *acts]
    return ScriptedPolicy(scripts)


class RandomPolicy:
    """The random baseline: valid actions over what it has seen, and a random cell as the answer."""

    def act(self, episodes: Sequence[Episode]) -> list[str | None]:
        return list(map(self._act, episodes))

    def _act(self, episode: Episode) -> str:
        rng, latest = episode.rng, episode.observations[-1]
        tables, columns = read_schema(latest.schema_info)
        cells = [cell for seen in episode.observations[1:] for cell in read_cells(seen)]
        last_chance = latest.budget_remaining <= 1
        if cells and (last_chance or rng.random() < ANSWER_PROBABILITY):
            return f"ANSWER: {_pick(rng, cells)}"
        if last_chance:
            return "ANSWER: 1"
        described = [table for table in tables if columns.get(table)]
        kind = rng.integers(3)
        if kind == 0 or (kind == 2 and not described):
            return f"DESCRIBE: {sql_name(_pick(rng, tables))}"
        if kind == 1:
            return f"SAMPLE: {sql_name(_pick(rng, tables))}"
        table = _pick(rng, described)
        return f"QUERY: {self._query(rng, table, columns[table], cells)}"

    @staticmethod
    def _query(rng: np.random.Generator, table: str, columns: list[str], cells: list[str]) -> str:
        column, other = sql_name(_pick(rng, columns)), sql_name(_pick(rng, columns))
        numbers = [f"{function}({column})" for function in ("MAX", "MIN", "AVG")]
        choices = ["COUNT(*)", column, f"COUNT(DISTINCT {column})", *numbers]
        selected = _pick(rng, choices)
        query = f"SELECT {selected} FROM {sql_name(table)}"
        if cells and rng.random() < 0.5:
            query += f" WHERE {other} = {quote_text(_pick(rng, cells))}"
        elif selected == column:
            query += f" ORDER BY {other} {_pick(rng, ['ASC', 'DESC'])} LIMIT 1"
        return query


def read_schema(schema_info: str) -> tuple[list[str], dict[str, list[str]]]:
    """Extract (tables, columns of each described table) from an observation's schema_info."""
    first, _, rest = schema_info.partition("\n")
    tables = split_names(first.removeprefix("Tables:").strip())
    columns = {}
    for line in rest.split("\n"):
        if (match := re.fullmatch(r'("(?:[^"]|"")*"|.+?)\((.*)\)', line)) is not None:
            columns[unquote_identifier(match[1])] = split_names(match[2])
    return tables or ["sqlite"], columns


def read_cells(observation: SQLObservation) -> list[str]:
    """Extract the cells that a SAMPLE or QUERY showed; a DESCRIBE shows none."""
    if not observation.action_history or observation.action_history[-1].startswith(
        ("DESCRIBE", "ANSWER")
    ):
        return []
    rows = result_rows(observation.result)
    return [cell for row in rows for cell in row if cell and cell != "NULL"]


def _pick(rng: np.random.Generator, items: Sequence[str]) -> str:
    return items[int(rng.integers(len(items)))]
