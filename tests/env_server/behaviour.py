"""What the server's rules produce over fixed inputs and the shipped questions, as hashes of cases,
those of one database or one form of answer together.

`python -m tests.env_server.behaviour` records it in behaviour.json:

    environment   episodes' observations without rendered text and rewards, results of SQL and its
                  errors, the reading of actions, the choice of questions, the fields of a reply
    render        the texts of results, schemas and cells, cut ones included
    reward        `settle` over sequences of steps, `potential` over pairs of results
    verifier      verdicts of every standard on right, nearly right and wrong answers

Fields are hashed, so a comment or a new structure of the code changes nothing here.
"""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from env_server import render, rewards, verifier
from env_server.questions import QuestionBank
from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql.run import SqlRunner
from shared import actions
from shared.dataset import Question
from shared.errors import SQLEnvError
from shared.models import ResetRequest, StepResult
from tests.env_server.in_process import LocalEnvironment
from tests.env_server.verifier.forms import FORMS

ROOT = Path(__file__).parents[2]
PATH = Path(__file__).with_name("behaviour.json")
RECORD = "python -m tests.env_server.behaviour"
Cases = dict[str, list[Any]]  # name -> anything that JSON or repr can write


# -- environment

STATEMENTS = (
    "SELECT upper('ß'), substr('abc', 2), round(2.5), 7 / 2, 7 % 0, 1e400, x'00ff', NULL",
    "SELECT date('now'), current_timestamp, strftime('%Y', 'now')",
    "SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]'), format('%05d', 42), trim('xxaxx', 'x')",
    "SELECT median(quantity) FROM orders",
    "SELECT group_concat(column1), total(column1) FROM (VALUES (1), (2), (9))",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n",
    "SELECT random()",
    "SELECT load_extension('x')",
    "SELECT sqlite_version()",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pragma_table_info('orders')",
    "PRAGMA table_info(orders)",
    "ATTACH 'x.sqlite' AS x",
    "DELETE FROM orders",
    "CREATE TEMP TABLE t (a)",
    "SELECT 1; SELECT 2",
    "SELECT",
    "",
    "SELECT nothing FROM orders",
    "SELECT * FROM no_such_table",
    "SELECT '" + "x" * 60_000 + "'",
    "SELECT replace(printf('%.40000c', 'x'), 'x', 'yy')",
    "SELECT " + ", ".join(["1"] * 300),
    "SELECT " + "(" * 120 + "1" + ")" * 120,
    " UNION ALL ".join(["SELECT 1"] * 12),
)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
ACTIONS = (
    "DESCRIBE: a",
    " describe\tA ",
    "Query:SELECT 1;",
    "QUERY SELECT 'A' -- x\n , b",
    "ANSWER: a\nb ",
    "ANSWER:",
    "SAMPLE",
    "SELECT 1",
    "",
    "dEscrıbe: a",
    "QUERY: select  'A' , B ; ;",
    "ANSWERS: 1",
    "ANSWER: " + "é" * 10_001,
)


def environment_cases(bank: QuestionBank, runner: SqlRunner) -> Cases:
    cases: Cases = defaultdict(list)
    for question in sample(bank, 20):
        cases[f"episode {question.database_name}"] += episode(bank, runner, question)
    path = bank.database("bakery")
    for number, statement in enumerate(STATEMENTS):
        cases[f"sql {number}"] = [asdict(runner.run(SqlJob(JobKind.QUERY, path, statement)))]
    with SqlRunner(SqlLimits(max_vm_steps=20_000)) as small:
        cases["sql budget"] = [asdict(small.run(SqlJob(JobKind.QUERY, path, ENDLESS)))]
    cases["actions"] = [attempt(actions.parse_action, text) for text in ACTIONS]
    cases["normalise"] = [actions.normalise(text) for text in ACTIONS]
    cases["pick"] = [
        bank.question_for(
            ResetRequest(seed=seed, split=split, difficulty=["easy", "hard"]), "id"
        ).question_id
        for split in (None, "train", "eval")
        for seed in range(20)
    ]
    cases["pick without a seed"] = [
        bank.question_for(ResetRequest(), f"id {n}").question_id for n in range(9)
    ]
    return cases


def episode(bank: QuestionBank, runner: SqlRunner, question: Question) -> Iterator[Any]:
    """Play a fixed script, and yield what is not rendered, rewarded or judged."""
    results: list[Any] = []

    class Recorder:
        def run(self, job: SqlJob) -> SqlResult:
            result = runner.run(job)
            results.append([job.kind, job.sql, job.max_rows, asdict(result)])
            return result

    env = LocalEnvironment(bank, Recorder())
    table = question.tables_involved[0]
    script = (
        f"DESCRIBE: {table}", f'describe "{table.upper()}";', f"SAMPLE: {table}", "SAMPLE: nothing",
        f"QUERY: {question.gold_sql}", f"QUERY:  {question.gold_sql} ; -- again",
        f"QUERY: SELECT nothing FROM {table}", "QUERY: DROP TABLE x", "QUERY: SELECT 1",
        f"QUERY: SELECT * FROM {table}",
    )  # fmt: skip
    for last in (f"ANSWER: {json.dumps(question.gold_answer)}", "QUERY: SELECT 2"):
        yield without_text(env.reset(question_id=question.question_id, step_budget=len(script) + 1))
        for action in (*script, last):
            yield without_text(env.step(action))
        yield attempt(env.step, "QUERY: SELECT 1")
    yield results


def without_text(result: StepResult) -> Any:
    """Return a reply's fields, of texts and rewards only whether there are any."""
    fields = result.model_dump(exclude={"episode_id"})
    observation, info, ledger = fields["observation"], fields["info"], fields["info"].pop("ledger")
    observation |= {name: bool(observation[name]) for name in ("result", "schema_info")}
    for part in (fields, observation):
        part["reward"] = part["reward"] is None
    facts = sorted({"exec_ok", "new_info", "repeat"} & set(ledger["step"]))
    return {**fields, "info": {**info, "reward_version": ""}}, sorted(ledger), facts


def attempt(call: Callable[[str], Any], text: str) -> Any:
    try:
        return repr(call(text))
    except SQLEnvError as error:
        return error.code


# -- render


def render_cases(bank: QuestionBank, runner: SqlRunner) -> Cases:
    wide = SqlResult(["a\nb", "c"], [("x" * 300, n) for n in range(30)])
    odd = [(v,) for v in (None, 0, -1.5, 1e300, 2.0, "", "é\r\n|", b"\0\1")]
    cut = SqlResult(["a"], [(1,), (2,)], truncated=True)
    results = [wide, SqlResult(["v"], odd), cut, SqlResult(["a"])]
    cases: Cases = defaultdict(list)
    cases["rows"] = [render.render_rows(one, 20) for one in results]
    cases["schema"] = [render.render_schema(["a", "b\nc"], ["a(x, y)"])]
    cases["cap"] = [render.cap("x" * 5000), render.cap("é\n" * 5000), render.cap("short")]
    for db_id in bank.databases:
        path = bank.database(db_id)
        for (table,) in runner.run(SqlJob(JobKind.TABLES, path)).rows:
            described = runner.run(SqlJob(JobKind.DESCRIBE, path, table))
            shown = runner.run(SqlJob(JobKind.SAMPLE, path, table))
            cases[f"tables {db_id}"] += [
                render.render_table(table, described, {}),
                render.render_columns(table, described),
                render.render_rows(shown, 5),
            ]
    return cases


# -- reward


def reward_cases(bank: QuestionBank, runner: SqlRunner) -> Cases:
    facts = [
        rewards.StepFacts(*flags, potential=potential, correct=correct)
        for *flags, potential, correct in product(
            (True, False), (True, False), (True, False), (0.0, 0.3333, 1.0), (False, True)
        )
    ]
    stream = random.Random(0)
    episodes = [[one] for one in facts] + [stream.choices(facts, k=15) for _ in range(50)]
    cases: Cases = defaultdict(list)
    cases["settle"] = [settled(one, rewards.RULES) for one in episodes]
    for question in sample(bank, 25):
        path = bank.database(question.database_name)
        gold = runner.run(SqlJob(JobKind.GOLD, path, question.gold_sql)).rows
        every = runner.run(SqlJob(JobKind.SAMPLE, path, question.tables_involved[0])).rows
        tries = [gold, every, gold * 2, gold[1:], [row[::-1] for row in gold], [("x", 0.1 + 0.2)]]
        cases[f"potential {question.database_name}"] += [
            rewards.potential(rows, truncated, rewards.GoldCells(gold), reads)
            for rows, truncated, reads in product(tries, (True, False), (True, False))
        ]
    return cases


def settled(facts: Sequence[rewards.StepFacts], rules: rewards.RewardRules) -> list[Any]:
    ledger, steps = rewards.EMPTY_LEDGER, []
    for one in facts:
        reward, ledger = rewards.settle(ledger, one, rules)
        steps.append([reward, ledger.model_dump()])
    return steps


# -- verifier


def verifier_cases(bank: QuestionBank, runner: SqlRunner) -> Cases:
    cases: Cases = defaultdict(list)
    for question in sample(bank, 8):
        gold, path = bank.gold(question), bank.database(question.database_name)
        if gold.ties is not None:
            gold = gold.with_ties(runner.run(SqlJob(JobKind.GOLD, path, gold.ties.sql)).rows)
        rows = runner.run(SqlJob(JobKind.GOLD, path, question.gold_sql)).rows
        results = [rows, rows[::-1], rows[1:], [*rows, *rows[:1]], [row[::-1] for row in rows], []]
        cases[question.database_name] += [
            [verifier.answer_verdicts(text, gold) for text in answers(question.gold_answer)],
            [verifier.result_verdicts(one, gold) for one in results],
            copied(gold),
        ]
    for number, form in enumerate(FORMS):
        for text in (*form.right, *form.wrong):
            others = [text.upper(), f"{text}.", f"{text}\n{text}", f"{text} x"]
            judged = [verifier.answer_verdicts(one, form.gold) for one in (text, *others)]
            cases[f"form {number}"] += judged
    return cases


def copied(gold: verifier.Gold) -> list[Any]:
    """Judge the gold's rows below a header, as a text that was not shown and as one that was."""
    rows = [" | ".join(map(render.render_cell, row)) for row in gold.rows]
    text = "\n".join(["header", *rows])
    return [verifier.answer_verdicts(text, gold), verifier.answer_verdicts(text, gold, text.__eq__)]


def answers(gold: Any) -> list[str]:
    texts = ["", "NULL", "42", "[]", json.dumps(gold)]
    if isinstance(gold, list):
        rows = [row if isinstance(row, list) else [row] for row in gold]
        texts += ["\n".join(" | ".join(map(str, row)) for row in rows)]
        texts += [", ".join(str(row[0]) for row in rows), json.dumps([row[::-1] for row in rows])]
        others = (gold[::-1], gold[1:], [*gold, gold[0]], sorted(gold, key=str), gold * 2)
        return texts + [json.dumps(other) for other in others]
    texts += [f" {gold}. ", f'"{gold}"', f"{gold}.0", f"${gold}", f"{gold} units", f"It is {gold}"]
    texts += [str(gold).upper(), f"{gold}\n{gold}", json.dumps([gold]), json.dumps([[gold]])]
    if isinstance(gold, int | float):
        texts += [f"{gold:,}", str(gold + 1), str(gold * 1.001), f"{gold:.1f}", f"{gold:.3f}"]
    return texts


# -- the record

AREAS: dict[str, Callable[[QuestionBank, SqlRunner], Cases]] = {
    "environment": environment_cases,
    "render": render_cases,
    "reward": reward_cases,
    "verifier": verifier_cases,
}


def sample(bank: QuestionBank, every: int) -> list[Question]:
    return [question for name in sorted(bank.splits) for question in bank.splits[name]][::every]


def record(bank: QuestionBank, names: Sequence[str] = tuple(AREAS)) -> dict[str, Any]:
    """Return what behaviour.json holds, computed by the code as it is."""
    areas = {}
    with SqlRunner(bank.limits) as runner:
        for name in names:
            cases = AREAS[name](bank, runner)
            areas[name] = {case: digest(output) for case, output in cases.items()}
    return {"sqlite": bank.sqlite_version, "data": bank.data_digest, "areas": areas}


def digest(output: Any) -> str:
    text = json.dumps(output, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def changes(recorded: dict[str, Any], current: dict[str, Any]) -> Iterator[str]:
    """Yield an error message for each area whose outputs differ from the record."""
    for name, now in current["areas"].items():
        before = recorded["areas"][name]
        if differing := [one for one in {**before, **now} if before.get(one) != now.get(one)]:
            yield (
                f"{name}: {len(differing)} outputs changed ({', '.join(differing[:3])}). If they "
                f"should, run {RECORD}"
            )


def comparable(recorded: dict[str, Any], current: dict[str, Any]) -> bool:
    return all(recorded[name] == current[name] for name in ("sqlite", "data"))


if __name__ == "__main__":
    PATH.write_text(json.dumps(record(QuestionBank.load(ROOT / "data")), indent=1) + "\n")
