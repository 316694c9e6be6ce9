"""What the benchmarks share: scripts, timings, tables, and a training that fails."""

from pathlib import Path

import pytest
import typer

from benchmarks.measuring import chosen, make_scripts
from env_server.questions import QuestionBank


def test_a_script_looks_around_and_answers(tiny_data: Path) -> None:
    scripts = make_scripts(QuestionBank.load(tiny_data), count=5, steps=6)
    assert [len(script.actions) for script in scripts] == [6] * 5
    kinds = [action.partition(":")[0] for action in scripts[0].actions]
    assert kinds == ["DESCRIBE", "SAMPLE", "QUERY", "QUERY", "QUERY", "ANSWER"]


def test_unknown_names_end_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen(None, ("a", "b"), "part") == ["a", "b"]
    assert chosen(["b"], {"a": 1, "b": 2}, "part") == ["b"]
    with pytest.raises(typer.Exit) as ended:
        chosen(["b", "c"], ("a", "b"), "part")
    assert ended.value.exit_code == 2
    assert "no part 'c'; the parts are a, b" in capsys.readouterr().err
