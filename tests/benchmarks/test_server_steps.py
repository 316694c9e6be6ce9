"""The benchmark of a server's steps plays whole episodes and counts the CPU time of both sides."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import server_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_the_sql_of_an_action_is_what_the_server_runs() -> None:
    assert server_steps.statement("QUERY: SELECT 1") == "SELECT 1"
    assert server_steps.statement('SAMPLE: or"ders') == 'SELECT * FROM "or""ders" LIMIT 5'
    assert server_steps.statement("DESCRIBE: t") == "SELECT * FROM pragma_table_info('t')"
    assert server_steps.statement("ANSWER: 1") is None


def test_a_step_on_the_server_costs_more_than_its_sql(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    server_steps.main(episodes=2, waves=1, json_path=path)
    found = json.loads(path.read_text())
    assert found["steps"] == 2 * server_steps.TURNS
    assert 0 < found["share"] < 1
