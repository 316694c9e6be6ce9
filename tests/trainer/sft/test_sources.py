"""Scripts of demonstrations from gold queries and recorded episodes, and the sources of them."""

from pathlib import Path
from typing import Any

import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.dataset import Question, load_questions
from shared.models import Outcome
from shared.run_stats import ANSWERED
from tests.conftest import question_row
from tests.trainer.conftest import record
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.rollout.loop import play_scripted
from trainer.rollout.prompts import result_of
from trainer.rollout.row import RolloutRow
from trainer.rollout.vote import answer_key
from trainer.run.folder import Run
from trainer.run.records import append_records
from trainer.sft.demonstrate import NOT_AGREED, NOT_CORRECT, problem_of
from trainer.sft.demonstration_kinds import RECORDED, answer_shown, recorded_scripts
from trainer.sft.scripts import Script, compared_tables, one_line, oracle_script
from trainer.sft.sources import balanced, check_source, consistent

JOINED = "SELECT a.name\nFROM orders AS a JOIN buyers b ON a.b = b.id"


def question(**changes: Any) -> Question:
    gold = f"{JOINED}\nWHERE b.town = 'New\nYork' ;"
    asked = ("train-shop-0", "shop", "Which buyers?", gold, ["Ann", "Bo"], "list", "easy")
    return Question(**question_row(*asked, "orders", "buyers") | changes)


def test_the_oracle_describes_all_tables_and_samples_those_compared_with_text():
    assert oracle_script(question()) == (
        "DESCRIBE: orders",
        "DESCRIBE: buyers",
        "SAMPLE: buyers",
        "QUERY: SELECT a.name FROM orders AS a JOIN buyers b ON a.b = b.id "
        "WHERE b.town = 'New\nYork'",
        'ANSWER: ["Ann", "Bo"]',
    )
    table = question(gold_answer=[["Ann", 3], ["Bo", None]])
    assert oracle_script(table)[-1] == 'ANSWER: [["Ann", 3], ["Bo", null]]'


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT COUNT(*) FROM t WHERE age > 3", []),
        ('SELECT COUNT(*) FROM t WHERE name = "x"', ["t"]),
        ("SELECT a FROM t WHERE name LIKE '%x%'", ["t"]),
        ("SELECT a FROM t WHERE name IN ('x', 'y')", ["t"]),
        ("SELECT T2.a FROM t AS T1 JOIN u AS T2 ON T1.i = T2.i WHERE T2.name = 'x'", ["u"]),
        ("SELECT a FROM t WHERE i IN (SELECT i FROM u WHERE name = 'x')", ["u"]),
        ("SELECT a FROM T WHERE name = 'x' EXCEPT SELECT a FROM u WHERE name = 'y'", ["t", "u"]),
        ("SELECT 'x' FROM t", []),
    ],
)
def test_tables_whose_text_is_compared(sql, tables):
    assert compared_tables(sql, ["t", "u"]) == tables


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT  a\n FROM t WHERE b = 'x  ''\n y' ;\n", "SELECT a FROM t WHERE b = 'x  ''\n y'"),
        ("SELECT a -- it isn't b\nFROM t WHERE b = 'x  y'; -- all",
         "SELECT a FROM t WHERE b = 'x  y'"),
        ("/* a\n-- b */ SELECT a/**/FROM t", "SELECT a FROM t"),
        ("SELECT '--  a', \"/* b  */\" - -1\nFROM [--  t]",
         "SELECT '--  a', \"/* b  */\" - -1 FROM [--  t]"),
    ],
)  # fmt: skip
def test_a_query_is_put_on_one_line_without_comments_outside_its_quoted_text(sql, line):
    assert one_line(sql) == line


def test_any_first_part_is_balanced_over_databases():
    scripts = [
        Script("oracle", f"{database}-{number}", database, ("ANSWER: 1",))
        for database, count in (("a", 50), ("b", 5), ("c", 20))
        for number in range(count)
    ]
    order = balanced(scripts, seed=0)
    assert sorted(map(str, order)) == sorted(map(str, scripts))
    assert sorted(one.database for one in order[:9]) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert order == balanced(scripts[::-1], seed=0) != balanced(scripts, seed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gold", "no source of demonstrations 'gold': use oracle, run:DIR"),
        ("oracle:DIR", "no source of demonstrations 'oracle:DIR'"),
        ("run", "no source of demonstrations 'run'"),
        ("run:/missing", "has no episodes.jsonl: name the folder of a run"),
    ],
)
def test_bad_sources_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        check_source(text)


def test_the_oracle_answers_the_shipped_questions():
    data_dir, config = Path("data"), GRPOConfig.preset("offline")
    questions = load_questions(data_dir / "questions" / "questions_train.json")[::8]
    scripts = {one.question_id: oracle_script(one) for one in questions}
    with in_process(create_app(Settings(data_dir=data_dir, sql_workers=1))).sync() as client:
        rows = play_scripted(scripts, None, config, client)
    assert sum(row.outcome == Outcome.CORRECT for row in rows) >= 0.95 * len(rows)


QUESTION = question(gold_sql=JOINED)
RAN, FAILED = {"exec_ok": 0.02, "step_cost": -0.02}, {"step_cost": -0.02}
PART, RIGHT = {**RAN, "progress": 0.06}, {**RAN, "progress": 0.15}
ROWS = "name\nAnn\nBo\nSteps left: 5"
GOLD = "QUERY: SELECT a.name FROM orders AS a JOIN buyers b ON a.b = b.id"
ANSWER = 'ANSWER: ["Ann", "Bo"]'

Step = tuple[str, dict[str, float], str]  # action, parts of its reward, observation
LOOK: Step = ("DESCRIBE: buyers", RAN, "buyers: 2 rows\nSteps left: 7")
FAIL: Step = ("QUERY: SELECT nam\nFROM buyers", FAILED, "Error: no such column\nSteps left: 6")
FOUND: Step = ("QUERY: SELECT name\nFROM buyers", RIGHT, ROWS)
HALF: Step = ("QUERY: SELECT name FROM buyers LIMIT 1", PART, "name\nAnn\nSteps left: 5")
SAID: Step = ("ANSWER: Ann and Bo", RAN, "")
GAVE: Step = (ANSWER, RAN, "")
FAILED_QUERY, FOUND_QUERY = "QUERY: SELECT nam FROM buyers", "QUERY: SELECT name FROM buyers"


def scripts(
    folder: Path,
    kind: str,
    *episodes: tuple[str, list[Step]],
    asked: str = QUESTION.question_text,
    **changes: Any,
) -> Any:
    run, records = Run(folder), []
    for sample, (outcome, steps) in enumerate(episodes):
        actions = [step[0] for step in steps]
        fields = {"phase": "train", "question_id": "train-shop-0", "outcome": outcome}
        fields |= {"actions": actions, "parts": [step[1] for step in steps], "sample": sample}
        if outcome in ANSWERED:
            seen = [result_of(step[2]) for step in steps if step[0].startswith("QUERY")]
            fields["answer"] = answer_key(actions[-1].partition(": ")[2], seen)
        fields["seen"] = (f"Question: {asked}\nTables: buyers", *(step[2] for step in steps))
        records.append(record(**{**fields, **changes}))
    for path in (run.episodes, run.observations):
        path.unlink(missing_ok=True)
    append_records(run, records)
    return recorded_scripts(f"{kind}:x", kind, folder, [QUESTION])


def test_the_two_shortest_successes_are_taught_without_repeats(tmp_path):
    long, short = [LOOK, LOOK, FAIL, FOUND, SAID], [LOOK, FOUND, SAID]
    played = [("correct", steps) for steps in (long, short, short, [LOOK, HALF, FOUND, SAID])]
    first, second = scripts(tmp_path, "run", *played, ("wrong", [SAID]))
    assert first.actions == ("DESCRIBE: buyers", FOUND_QUERY, ANSWER)
    assert second.actions == ("DESCRIBE: buyers", HALF[0], FOUND_QUERY, ANSWER)
    shouted: Step = (FOUND_QUERY.replace("SELECT", "select"), RAN, ROWS)
    (again,) = scripts(tmp_path, "run", ("correct", [LOOK, FOUND, shouted, SAID]))
    assert again.actions == ("DESCRIBE: buyers", FOUND_QUERY, "ANSWER: Ann and Bo")


@pytest.mark.parametrize(("kind", "outcome"), [("run", "correct"), ("agreed", "answered")])
def test_rows_in_the_order_of_the_last_query_are_the_answer(tmp_path, kind, outcome):
    """The same values in another order earn the same, and agree."""
    ordered: Step = (f"{FOUND_QUERY} ORDER BY name DESC", RAN, "name\nBo\nAnn\nSteps left: 4")
    steps = [LOOK, FOUND, ordered, ("ANSWER: Bo, Ann", RAN, "")]
    (script,) = scripts(tmp_path, kind, *[(outcome, steps)] * 3)
    assert script.actions[1:3] == (FOUND_QUERY, ordered[0])
    assert script.actions[3] in ("ANSWER: Bo, Ann", 'ANSWER: ["Bo", "Ann"]')


def test_a_success_whose_query_was_not_recorded_keeps_its_answer(tmp_path):
    (script,) = scripts(tmp_path, "run", ("correct", [LOOK, HALF, SAID]))
    assert script.actions == ("DESCRIBE: buyers", HALF[0], "ANSWER: Ann and Bo")


def test_an_unanswered_right_query_is_completed(tmp_path):
    played = [
        ("wrong", [LOOK, FAIL, FOUND, HALF, SAID]),
        ("budget", [LOOK, FOUND]),
        ("correct", [LOOK, FOUND, SAID]),
        ("wrong", [LOOK, HALF, SAID]),
        ("sql_killed", [LOOK, FOUND]),
        ("wrong", [LOOK, ("QUERY: SELECT 1", RIGHT, "name\nAnn\n(first 1 rows; there are more)")]),
    ]
    first, second = scripts(tmp_path, "completed", *played)
    assert first.actions == ("DESCRIBE: buyers", FAILED_QUERY, FOUND_QUERY, ANSWER)
    assert second.actions == ("DESCRIBE: buyers", FOUND_QUERY, ANSWER)


def test_a_failure_is_mended_by_another_episode_of_its_question(tmp_path):
    failed = ("budget", [FAIL, HALF, FAIL])
    described = ("wrong", [LOOK, FAIL])
    solved = ("wrong", [LOOK, FOUND, HALF])  # found the rows, and did not say them
    first, second = scripts(tmp_path, "recovered", failed, described, solved)
    assert first.actions == (FAILED_QUERY, "DESCRIBE: buyers", FOUND_QUERY, ANSWER)
    assert first.context == 1
    assert second.actions == ("DESCRIBE: buyers", FAILED_QUERY, FOUND_QUERY, ANSWER)
    assert second.context == 2
    assert not scripts(tmp_path, "recovered", failed, ("wrong", [LOOK, HALF]))


def test_a_failure_is_mended_by_the_gold_query(tmp_path):
    bad_look: Step = ("DESCRIBE: buyer", FAILED, "Error: no such table")
    other: Step = ("QUERY: SELECT b", FAILED, "Error")
    wrong = [("DESCRIBE: Buyers", RAN, ""), bad_look, HALF, HALF, FAIL, other, SAID]
    left_out = [("correct", wrong), ("sql_killed", wrong), ("wrong", [LOOK, HALF, SAID])]
    (script,) = scripts(tmp_path, "corrected", *left_out, ("wrong", wrong))
    begun = ("DESCRIBE: Buyers", "DESCRIBE: buyer", HALF[0], FAILED_QUERY)
    assert script.actions == (*begun, "DESCRIBE: orders", GOLD, ANSWER)
    assert script.context == 4


def test_the_shortest_failure_that_did_not_run_the_gold_query_is_mended(tmp_path):
    mended, long = ("wrong", [FAIL, SAID]), ("wrong", [LOOK, FAIL, HALF, SAID])
    played = [("wrong", [(GOLD, RIGHT, ROWS), FAIL]), long, mended, ("wrong", [SAID])]
    (script,) = scripts(tmp_path, "corrected", *played)
    assert script.actions[:2] == (FAILED_QUERY, "DESCRIBE: orders")


def test_tables_whose_text_the_gold_query_compares_are_sampled(tmp_path):
    lower = ("QUERY: SELECT a FROM buyers WHERE name = 'ann'", RAN, "a\n(no rows)\nSteps left: 7")
    gold = lower[0].replace("'ann'", "'Ann'")
    question = QUESTION.model_copy(
        update={"gold_sql": gold.removeprefix("QUERY: "), "tables_involved": ["buyers"]}
    )
    scripts(tmp_path, "corrected", ("wrong", [lower, SAID]))
    (script,) = recorded_scripts("x", "corrected", tmp_path, [question])
    looks = ("DESCRIBE: buyers", "SAMPLE: buyers")
    assert script.actions == (lower[0], *looks, gold, ANSWER)


def test_a_wrong_query_that_ran_is_replaced_by_the_gold_query(tmp_path):
    buyers, orders = "DESCRIBE: buyers", "DESCRIBE: orders"
    for steps, context in (([LOOK, HALF, SAID], (buyers,)), ([LOOK], (buyers,)), ([SAID], ())):
        (script,) = scripts(tmp_path, "corrected", ("wrong", steps))
        looks = (buyers, orders) if context else (orders, buyers)
        assert script.actions == (*looks, GOLD, ANSWER)
        assert script.context == len(context)
    assert not scripts(tmp_path, "corrected", ("wrong", [(GOLD, RIGHT, ROWS), FAIL]))


MADE: Step = (FOUND[0], RAN, ROWS)  # without what the gold pays for it
TOLD: Step = ("ANSWER: Bo, Ann", RAN, "")
LOOKS: tuple[list[Step], ...] = ([], [LOOK], [LOOK, LOOK])


@pytest.mark.parametrize("outcome", ["answered", "wrong"])
def test_the_two_shortest_attempts_that_agree_are_taught(tmp_path, outcome):
    long, short, guess = [LOOK, LOOK, FAIL, MADE, TOLD], [LOOK, MADE, GAVE], [HALF, GAVE]
    other: Step = ("ANSWER: Zoe", RAN, "")
    played = [(outcome, steps) for steps in (long, guess, short, short)]
    gold = ("correct", [FOUND, other])
    first, second = scripts(tmp_path, "agreed", *played, gold)
    assert first.actions == (HALF[0], ANSWER)
    assert second.actions == ("DESCRIBE: buyers", FOUND_QUERY, ANSWER)
    assert first.label == second.label == answer_key("Ann, Bo")
    assert not scripts(tmp_path, "agreed", *played[:2], gold, gold), "half of them agree"
    (one,) = scripts(tmp_path, "agreed", *played)
    assert one.actions == (HALF[0], ANSWER), "all agree"


def test_an_attempt_is_mended_by_one_that_gave_the_answer_of_most(tmp_path):
    agreeing = [("answered", steps) for steps in ([LOOK, MADE, TOLD], [LOOK, LOOK, MADE, GAVE])]
    played = [*agreeing, ("answered", [GAVE]), ("budget", [FAIL, HALF])]
    (script,) = scripts(tmp_path, "mended", *played)
    assert script.actions == (FAILED_QUERY, "DESCRIBE: buyers", FOUND_QUERY, ANSWER)
    assert (script.context, script.label) == (1, answer_key("Ann, Bo"))
    right = ("correct", [FAIL, SAID])  # by a gold, which is not read
    (script,) = scripts(tmp_path, "mended", *agreeing, ("answered", [GAVE]), right)
    assert script.actions[0] == FAILED_QUERY
    assert not scripts(tmp_path, "mended", *[("answered", [MADE, GAVE])] * 3)

    full: Step = (FOUND[0], RAN, "name\nSmith, John\nSteps left: 5")  # one cell with a comma
    agreeing = [("answered", [*looks, full, ("ANSWER: Smith, John", RAN, "")]) for looks in LOOKS]
    (script,) = scripts(tmp_path, "mended", *agreeing, ("budget", [FAIL, HALF]))
    assert script.actions[-1] == "ANSWER: Smith, John"


def test_a_question_keeps_its_first_label():
    labels: dict[str, str] = {}
    first, other, gold = (Script("x", "q", "shop", (), label=label) for label in ("1", "2", None))
    assert list(consistent([first, other, gold], labels)) == [first, gold]
    assert list(consistent([other, first, gold], labels)) == [first, gold]


@pytest.mark.parametrize(
    ("said", "label", "problem"),
    [
        ("ANSWER: Bo, Ann", answer_key("Ann, Bo"), None),
        ("ANSWER: Bo", answer_key("Ann, Bo"), NOT_AGREED),
        ("ANSWER: Bo", None, NOT_CORRECT),
    ],
)
def test_a_demonstration_gives_its_label(said, label, problem):
    row = RolloutRow("q", outcome=Outcome.ANSWERED, actions=[said])
    script = Script("agreed:x", "q", "shop", (said,), label=label)
    assert problem_of(row, script, GRPOConfig(), 9) == problem


@pytest.mark.parametrize(
    ("reply", "nothing"),
    [
        ("a\n(no rows)", True),
        ("a\n0", True),
        ("a | b\nNULL | NULL", True),
        ("a\n5", False),
        ("a\n0\n0", False),
        ("a | b\n0 | x", False),
        ("", False),
    ],
)
def test_a_query_that_found_nothing_has_failed(tmp_path, reply, nothing):
    empty: Step = ("QUERY: SELECT name FROM buyers WHERE 0", RAN, f"{reply}\nSteps left: 6")
    played = [("wrong", [LOOK, empty, SAID]), ("correct", [LOOK, FOUND, SAID])]
    assert len(scripts(tmp_path, "recovered", *played)) == nothing
    (script,) = scripts(tmp_path, "corrected", *played)
    begun = (LOOK[0], empty[0])[: script.context]
    assert script.context == 1 + nothing
    assert script.actions == (*begun, "DESCRIBE: orders", GOLD, ANSWER)


@pytest.mark.parametrize("kind", RECORDED)
def test_other_questions_are_never_taught(kind, tmp_path):
    right = ("correct", [LOOK, FOUND, GAVE])
    played = [*[right] * 6, ("wrong", [LOOK, FOUND]), ("wrong", [FAIL])]
    assert scripts(tmp_path, kind, *played)
    assert not scripts(tmp_path, kind, *played, question_id="eval-shop-0")
    assert not scripts(tmp_path, kind, *played, asked="Another with this id?")


@pytest.mark.parametrize(
    ("observation", "answer"),
    [
        ("COUNT(*)\n5\nSteps left: 3", "5"),
        ("name\nAnn\nSteps left: 3\nHint", "Ann"),
        ("a\nNULL", "null"),
        ("a\n5\n007\nNULL\nx | y", None),
        ("a\n5\n007\nNULL\n-2.5", '[5, "007", null, -2.5]'),
        ("a | b\n1 | Zoë\n2 | 1e+20", '[[1, "Zoë"], [2, 1e+20]]'),
        ("a\n(no rows)", None),
        ("a\n1\n(first 1 rows; there are more)", None),
        ("a\nlong…", None),
        ("Error: no such table", None),
    ],
)
def test_the_rows_that_were_read_are_written_as_an_answer(observation, answer):
    assert answer_shown(observation) == answer
