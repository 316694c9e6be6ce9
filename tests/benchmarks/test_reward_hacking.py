"""Reward hacking does not pay: every policy stays under its bound, and an oracle gets its due."""

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.reward_hacking import __main__ as module
from benchmarks.reward_hacking.__main__ import Result, app, chosen, owed, play_all, result_of, run
from benchmarks.reward_hacking.policies import KILLER, POLICIES, Bound, oracle
from env_server.questions import QuestionBank
from env_server.rewards import RULES
from shared.dataset import Question
from shared.models import Outcome
from tests.env_server.pool_driver import LocalSql

SHIPPED = Path(__file__).parents[2] / "data"
SAMPLE = 19  # every 19th question: 61 of 1,150, of every database and difficulty


@pytest.fixture(scope="module")
def bank() -> QuestionBank:
    return QuestionBank.load(SHIPPED)


def check(bank: QuestionBank, questions: Sequence[Question]) -> list[Result]:
    results, underpaid = asyncio.run(run(bank, questions, workers=1))
    assert [one for one in results if not one.holds] == []
    assert underpaid == []
    assert [one.policy for one in results] == [*POLICIES, KILLER[0]]
    assert max(one.most_incorrect for one in results) <= RULES.most_incorrect
    return results


def test_reward_hacking_policies_stay_under_their_bounds(bank: QuestionBank) -> None:
    questions = chosen(bank, SAMPLE)
    assert {question.database_name for question in questions} == set(bank.databases)
    assert {question.difficulty for question in questions} == {"easy", "medium", "hard"}
    results = {one.policy: one for one in check(bank, questions)}
    # the bound is tight
    assert results["silent oracle"].most_incorrect == RULES.most_incorrect
    assert results["random"].episodes == len(questions)
    assert results["kill the worker"].outcomes == {Outcome.SQL_KILLED: module.KILLED_QUESTIONS}


@pytest.mark.slow
def test_reward_hacking_policies_stay_under_their_bounds_on_every_question(
    bank: QuestionBank,
) -> None:
    check(bank, chosen(bank, 1))


def test_what_is_above_its_bound_is_seen(bank: QuestionBank) -> None:
    sql, questions = LocalSql(), chosen(bank, 200)
    replies = asyncio.run(play_all(bank, sql, questions, oracle))
    sql.runner.close()
    result = result_of("oracle", replies, Bound(0.5, 2.0))
    assert (result.success, result.holds) == (1.0, False)
    assert dataclasses.replace(result, bound=Bound(1.0, 2.0)).holds
    assert not dataclasses.replace(result, bound=Bound(1.0, 1.0)).holds
    assert not dataclasses.replace(result, bound=Bound(1.0, 2.0), most_incorrect=0.21).holds
    assert not dataclasses.replace(result, bound=Bound(1.0, 2.0), least_correct=0.74).holds
    assert result.least_correct == min(map(owed, questions))


def test_the_command_prints_a_table_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KILLED_QUESTIONS", 1)
    out = tmp_path / "report.json"
    result = CliRunner().invoke(
        app, ["--data", str(SHIPPED), "--every", "400", "--workers", "1", "--json", str(out)]
    )
    assert result.exit_code == 0, result.output
    assert "kill the worker" in result.output
    assert "oracle: full reward on 3 of 3 questions" in result.output
    assert {one["policy"] for one in json.loads(out.read_text())["policies"]} == {
        *POLICIES,
        KILLER[0],
    }


def test_bad_paths_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KILLED_QUESTIONS", 1)
    result = CliRunner().invoke(app, ["--data", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no questions_<split>.json")
    result = CliRunner().invoke(
        app, ["--data", str(SHIPPED), "--every", "1000", "--json", "/dev/null/a.json"]
    )
    assert result.exit_code == 1
    assert "error: can't write" in result.stderr
