"""Properties of every action, statement and episode. A violated one is an AssertionError."""

import re
from pathlib import Path

from pydantic_core import to_json

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.render import MAX_CELL_CHARS, MAX_RESULT_BYTES, render_rows
from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql.run import SqlRunner
from shared.actions import ActionType, SQLAction, parse_action, render_action
from shared.errors import ActionParseError
from tests.conftest import make_database, write_data

# Small enough that an example takes milliseconds. The CPU limit stays far above the time of the
# expensive calls: near it, the result would depend on the machine.
LIMITS = SqlLimits(max_vm_steps=200_000, max_heap_bytes=24 * 1024 * 1024)
CODES = {"no_such_table", "sql_error", "sql_denied", "sql_budget"}
SECRET = "only_the_catalogue_holds_this"  # it is in the text of a CREATE TABLE, and in no row
CANARY = "SELECT count(*), min(name), max(name) FROM customers"
_PATH = re.compile(r"(?:^|[\s'\"(=:])(?:/[\w.@+-]+){2,}|\.sqlite\b")


class World:
    """Tiny data with a secret in the catalogue, with a runner and a bank. Close it at the end."""

    def __init__(self, directory: Path) -> None:
        self.data = write_data(directory)
        self.path = str(directory / "databases" / "shop" / "shop.sqlite")
        make_database(
            Path(self.path),
            f"CREATE TABLE t (a, b TEXT DEFAULT '{SECRET}'); INSERT INTO t VALUES (1, 'x'), "
            "(NULL, 2.5)",
        )
        self.files = sorted(directory.rglob("*"))
        self.bytes = Path(self.path).read_bytes()
        self.bank = QuestionBank.load(self.data, LIMITS)
        self.runner = SqlRunner(LIMITS)
        self.canary = self.runner.run(SqlJob(JobKind.QUERY, self.path, CANARY))
        self.gold = self.runner.run(SqlJob(JobKind.GOLD, self.path, CANARY))
        assert self.canary.rows == self.gold.rows == [(5, "Ann", "Zoë")]

    def close(self) -> None:
        self.runner.close()
        assert Path(self.path).read_bytes() == self.bytes, "the database has changed"
        assert sorted(self.data.rglob("*")) == self.files, "files have come or gone"

    def query(self, sql: str) -> SqlResult:
        return self.runner.run(SqlJob(JobKind.QUERY, self.path, sql))


def check_statement(world: World, sql: str) -> SqlResult:
    """A statement gives rows or the agent's own error, reproducibly, and leaves no effect."""
    result = world.query(sql)
    if result.error is None:
        assert result.error_code is None
        check_rows(result, sql)
    else:
        assert result.error_code in CODES
        assert (result.rows, result.truncated) == ([], False)
        check_error(result.error, sql)
    again = world.query(sql)
    assert again == result
    assert world.query(CANARY) == world.canary
    assert world.runner.run(SqlJob(JobKind.GOLD, world.path, CANARY)) == world.gold
    return result


def check_rows(result: SqlResult, sql: str) -> None:
    assert len(result.rows) <= LIMITS.shown_rows
    assert all(len(row) == len(result.columns) <= LIMITS.max_columns for row in result.rows)
    if SECRET not in sql:
        assert SECRET not in repr((result.columns, result.rows)), "the catalogue was read"
    shown = render_rows(result, LIMITS.shown_rows)
    assert len(shown.encode(errors="replace")) <= MAX_RESULT_BYTES
    lines = shown.split("\n")
    assert len(lines) <= LIMITS.shown_rows + 2, "a cell has made a line of its own"
    assert all(len(line) <= (MAX_CELL_CHARS + 40) * max(1, len(result.columns)) for line in lines)
    if result.truncated:
        assert lines[-1].startswith((f"(first {len(result.rows)} rows; there are more)", "(cut: "))


def check_error(error: str, sql: str) -> None:
    assert error
    assert "\n" not in error
    assert len(error) < 6_000
    if not _PATH.search(sql):
        assert not _PATH.search(error), error
    assert SECRET in sql or SECRET not in error


def check_action(text: str) -> SQLAction | None:
    """A text is an action or an `ActionParseError`; an action's text parses to the same action."""
    try:
        action = parse_action(text)
    except ActionParseError as error:
        refusal = error.message
    else:
        assert parse_action(render_action(action)) == action
        return action
    assert 0 < len(refusal) < 1_000
    return None


def check_episode(world: World, actions: list[str]) -> list[bytes]:
    """Each action is answered, or refused as invalid, and a replay gives the same bytes."""
    env = SQLEnvironment(world.bank, world.runner)
    env.reset(question_id="shop-4", step_budget=max(1, len(actions)))
    taken: list[str] = []
    replies: list[bytes] = []
    for text in actions:
        action = check_action(text)
        if action is None:
            continue
        if action.action_type == ActionType.QUERY:
            check_statement(world, action.argument)
        result = env.step(action)
        seen = result.observation
        assert seen.step_count == len(taken) + 1 <= env.state.step_budget
        assert len(seen.result.encode(errors="replace")) <= MAX_RESULT_BYTES
        assert (seen.error is None) == (result.info.error_code is None)
        if seen.error is not None:
            assert result.info.error_code in CODES
            check_error(seen.error, text)
        is_last = len(taken) + 1 == env.state.step_budget
        assert result.done == (action.action_type == ActionType.ANSWER or is_last)
        assert -0.25 <= result.info.ledger.total <= 1.2
        taken.append(text)
        replies.append(to_json(result))
        if result.done:
            break
    if taken:
        rebuilt = SQLEnvironment(world.bank, world.runner).reset(
            question_id="shop-4", step_budget=max(1, len(actions)), actions=taken
        )
        assert to_json(rebuilt, exclude={"episode_id"}) == replies[-1]
    return replies
