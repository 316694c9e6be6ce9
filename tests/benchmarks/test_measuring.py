"""What the benchmarks share: scripts, and unknown names.

And honest episodes beside all attacks at once, on a real server.
"""

import re
from pathlib import Path

import pytest
import typer

from benchmarks import sizing
from benchmarks.attacks.__main__ import measure
from benchmarks.attacks.attackers import ATTACKS
from benchmarks.measuring import chosen, make_scripts
from env_server.questions import QuestionBank


def test_a_script_looks_around_and_answers(tiny_data):
    scripts = make_scripts(QuestionBank.load(tiny_data), count=5, steps=6)
    assert [len(script.actions) for script in scripts] == [6] * 5
    kinds = [action.partition(":")[0] for action in scripts[0].actions]
    assert kinds == ["DESCRIBE", "SAMPLE", "QUERY", "QUERY", "QUERY", "ANSWER"]


def test_unknown_names_end_the_benchmark(capsys):
    assert chosen(None, ("a", "b"), "part") == ["a", "b"]
    assert chosen(["b"], {"a": 1, "b": 2}, "part") == ["b"]
    with pytest.raises(typer.Exit) as ended:
        chosen(["b", "c"], ("a", "b"), "part")
    assert ended.value.exit_code == 2
    assert "no part 'c'; the parts are a, b" in capsys.readouterr().err


@pytest.mark.slow
def test_the_rate_of_one_core_is_measured(tiny_data, capsys):
    sizing.main(tiny_data, seconds=0.1)
    printed = re.findall(r"([\d,]+) steps per second", capsys.readouterr().out)
    batched, single = (int(rate.replace(",", "")) for rate in printed)
    assert batched > single > 0


SHIPPED = Path(__file__).parents[2] / "data"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_attacks_at_once_lose_no_honest_step_and_leave_no_work(monkeypatch):
    monkeypatch.setattr("benchmarks.attacks.__main__.PATIENCE_S", 400.0)
    result = measure("all", [*ATTACKS], SHIPPED, seconds=10.0)
    assert result.lost == 0, result.errors
    assert result.steps > 500
    assert result.memory_mib < 1_000
    # the endless queries of one batch would take 48; closing the connections takes 1, and on a
    # machine with much other work took 16
    assert result.cpu_after_s < 30
