"""What a step of the server costs, compared with the same SQL in a bare sqlite3 loop.

    python -m benchmarks.server_steps [--run RUN] [--episodes 64] [--waves 10] [--json PATH]

Without `--run`, every query is unique and has 10,000 rows, of which an agent reads 20; with it, the
episodes of a run's folder are played again on `--data`, each once. `--episodes` play at once
through the public client, with rewards at each step. Costs are CPU-seconds of the server and its
SQL worker, so that they are comparable on a busy machine; waves of both ways alternate. Linux only
(reads /proc).
"""

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, Script, Timing, print_table
from env_server.questions import QuestionBank
from shared.actions import ActionType, parse_action
from shared.client import SQLEnvClient
from shared.console import percent, write_json
from shared.dataset import database_path, questions_path
from shared.run_files import RunFiles
from shared.server_process import ServerProcess, running_server
from shared.sqltext import quote_identifier, quote_text
from trainer.run.folder import episode_lines

ROWS, TURNS, SHOWN_ROWS, SAMPLE_ROWS = 10_000, 15, 20, 5
GOLD_SQL = "SELECT city, count(*), round(avg(amount), 2) FROM sales GROUP BY city ORDER BY city"
RunDir = Annotated[
    Path | None, typer.Option("--run", help="Play the episodes of this run or evaluation.")
]


@contextmanager
def sales_data() -> Iterator[Path]:
    """Make a data directory with one question about one table of `ROWS` rows."""
    with tempfile.TemporaryDirectory(prefix="sqlenv-steps-") as scratch:
        path = database_path(Path(scratch), "sales")
        path.parent.mkdir(parents=True)
        columns = "id INTEGER PRIMARY KEY, customer TEXT, city TEXT, amount REAL, day TEXT"
        made = (
            (n, f"customer {n % 977}", f"city {n % 20}", n * 37 % 10_007 / 100, f"day {n % 365}")
            for n in range(ROWS)
        )
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TABLE sales ({columns})")
            connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", made)
            answer = connection.execute(GOLD_SQL).fetchall()
        question = {
            "question_id": "sales-1",
            "question_text": "For each city, how many sales are there and what is their average?",
            "database_name": "sales",
            "gold_sql": GOLD_SQL,
            "gold_answer": answer,
            "answer_type": "table",
            "difficulty": "medium",
            "tables_involved": ["sales"],
        }
        file = questions_path(Path(scratch), "train")
        file.parent.mkdir()
        file.write_text(json.dumps([question]))
        yield Path(scratch)


def unique_queries(count: int) -> list[Script]:
    """Return `count` scripts on `sales_data`, with no query twice."""
    query = "QUERY: SELECT * FROM sales WHERE amount > -"
    return [
        Script("sales-1", [f"{query}{1 + number * TURNS + turn}" for turn in range(TURNS)])
        for number in range(count)
    ]


def recorded(run: Path) -> list[Script]:
    """Return the scripts of the episodes that a run trained on, or that an evaluation played."""
    lines = list(episode_lines(RunFiles(run).episodes))
    trained = [line for line in lines if line.phase == "train"] or lines
    return [Script(line.question_id, line.actions) for line in trained if line.actions]


async def play(server: ServerProcess, scripts: Sequence[Script], timing: Timing) -> None:
    """Play all scripts at once on a server; only their steps are timed."""
    async with SQLEnvClient(server.url) as client:
        resets = [
            client.reset(question_id=one.question_id, step_budget=len(one.actions))
            for one in scripts
        ]
        started = await asyncio.gather(*resets)

        async def episode(episode_id: str, actions: Sequence[str]) -> None:
            for action in actions:
                await client.step(episode_id, action)

        with timing.adding(sum(len(one.actions) for one in scripts), server.cpu_s):
            pairs = zip(started, scripts, strict=True)
            await asyncio.gather(*(episode(reset.episode_id, one.actions) for reset, one in pairs))


def statement(action: str) -> str | None:
    """Return the SQL of an action, or None for an ANSWER or for text that is no action."""
    parsed = parse_action(action)
    if parsed.action_type == ActionType.QUERY:
        return parsed.argument
    if parsed.action_type == ActionType.SAMPLE:
        return f"SELECT * FROM {quote_identifier(parsed.argument)} LIMIT {SAMPLE_ROWS}"
    if parsed.action_type == ActionType.DESCRIBE:
        return f"SELECT * FROM pragma_table_info({quote_text(parsed.argument)})"
    return None


def play_bare(bank: QuestionBank, scripts: Sequence[Script], timing: Timing) -> None:
    """Run the SQL of all scripts with open connections, in turns as episodes take them."""
    databases = {one.question_id: bank.get(one.question_id).database_name for one in scripts}
    connections = {db_id: sqlite3.connect(bank.database(db_id)) for db_id in databases.values()}
    work = [
        (connections[databases[one.question_id]], statement(one.actions[turn]))
        for turn in range(max(len(one.actions) for one in scripts))
        for one in scripts
        if turn < len(one.actions)
    ]
    with timing.adding(len(work)):
        for connection, sql in work:
            if sql is not None:
                try:
                    connection.execute(sql).fetchmany(SHOWN_ROWS)
                except (sqlite3.Error, sqlite3.Warning):
                    continue  # an agent's wrong query costs too
    for connection in connections.values():
        connection.close()


def main(
    data: DataDir = DATA,
    run: RunDir = None,
    episodes: Annotated[int, typer.Option(help="Episodes played at once.")] = 64,
    waves: Annotated[int, typer.Option(help="How often without --run.")] = 10,
    json_path: JsonPath = None,
) -> None:
    """Measure the CPU time of a step on the server against that of its SQL."""
    bare, served = Timing("bare sqlite3"), Timing("server and its SQL worker")
    with sales_data() as own_data:
        if run is None:
            data, scripts = own_data, unique_queries(episodes * waves)
        else:
            scripts = recorded(run)
        bank = QuestionBank.load(data)
        with running_server(data, "--workers", "1") as server:
            for first in range(0, len(scripts), episodes):
                wave = scripts[first : first + episodes]
                play_bare(bank, wave, bare)
                asyncio.run(play(server, wave, served))
    share = bare.cpu_us / served.cpu_us
    costs = {one.way: one.cpu_us for one in (bare, served)}
    rows = [(way, f"{cost:.1f}") for way, cost in costs.items()]
    title = f"{bare.steps:,} steps, {episodes} episodes at once"
    print_table(title, ("way", "CPU us/step"), [*rows, ("share of the SQL", percent(share))])
    write_json(json_path, {"episodes": episodes, "steps": bare.steps, **costs, "share": share})


if __name__ == "__main__":
    typer.run(main)
