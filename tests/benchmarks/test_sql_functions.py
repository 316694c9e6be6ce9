"""The fuzzing of SQL functions: every allowed one, reproducibly; and what fails the command."""

import json
import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.sql_functions import __main__ as module
from benchmarks.sql_functions.cases import Case, after_work, aggregates, calls, in_a_row, statements
from env_server.sql import JobKind, SqlJob
from env_server.sql.limits import AGGREGATES, SCALARS, WINDOWS, SqlLimits
from env_server.sql.run import SqlRunner
from tests.conftest import make_database

CLOCKS = {"current_date", "current_time", "current_timestamp"}


def test_every_function_is_called_and_a_seed_gives_the_same_statements() -> None:
    scalars = list(calls(random.Random(1), 1))
    assert {case.name.partition("(")[0] for case in scalars} == set(SCALARS) - CLOCKS
    rows = list(aggregates(random.Random(1), 1))
    called = {re.split(r"\W", case.name)[0] for case in rows}
    assert called == {*AGGREGATES, *WINDOWS}
    assert scalars == list(calls(random.Random(1), 1)) != list(calls(random.Random(2), 1))


def test_statements_are_within_the_limits_of_a_query() -> None:
    for case in statements():
        assert len(case.sql) <= SqlLimits().max_sql_bytes, case.name


def test_most_statements_run(tmp_path: Path) -> None:
    """A benchmark of refused statements would measure nothing."""
    path = str(make_database(tmp_path / "t.sqlite", module.TABLE))
    single = list(calls(random.Random(3), 1))
    chosen = [case for case in single if case.name.startswith(("hex(", "instr(", "quote("))]
    cases = [*single[::4], *in_a_row(chosen)][:60]
    cases.append(after_work(Case("rows", "count", "SELECT count(*) FROM t"), 3))
    with SqlRunner(SqlLimits(max_cpu_s=0.2)) as runner:
        outcomes = [runner.run(SqlJob(JobKind.QUERY, path, case.sql, 1)) for case in cases]
    assert outcomes[-1].rows == [(3, 4)]
    refused = [result.error for result in outcomes if result.error_code not in (None, "sql_budget")]
    assert len(refused) < len(cases) / 5, refused


@pytest.mark.parametrize(("most_s", "code"), [("9", 0), ("0.000001", 1)])
def test_the_command_fails_where_a_statement_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_s: str, code: int
) -> None:
    small = [Case("statements", "small", "SELECT count(*) FROM t")]
    monkeypatch.setattr(module, "statements", lambda: small)
    monkeypatch.setattr(module, "after_work", lambda case, rows: case)
    report = tmp_path / "report.json"
    options = ["--only", "statements", "--most-s", most_s, "--json", str(report)]
    done = CliRunner().invoke(module.app, options)
    assert done.exit_code == code, done.output
    assert json.loads(report.read_text())[0]["case"]["name"] == "small"
    assert ("escaped:" in done.output) == bool(code)
    assert CliRunner().invoke(module.app, ["--only", "nonsense"]).exit_code == 2
