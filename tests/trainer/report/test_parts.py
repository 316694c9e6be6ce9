"""What a report works out: the ledger's parts, the advantages, which steps are shown, charts,
results as tables."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import nanstd

from env_server import rewards
from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from tests.trainer.conftest import FakeClient
from tests.trainer.played_run import HOSTILE, HOSTILE_SQL
from tests.trainer.small_data import make_data
from tests.trainer.small_job import begin
from trainer.config import GRPOConfig
from trainer.grpo.length_sorting import LengthSortedGRPOTrainer
from trainer.report import charts
from trainer.report.charts import Baseline, Chart, Point, Series
from trainer.report.groups import advantages, chosen_steps, groups
from trainer.report.ledger import AMOUNTS, CLAMP, STEP_BOUNDS, SUM_BOUNDS, operational_parts
from trainer.report.shown import cut, short, shown_action, shown_observation, sql
from trainer.report.source import training_lines
from trainer.rollout.prompts import format_observation
from trainer.run.records import EpisodeRecord, Turn

# -- the ledger
# ----------------------------------------------------------------------------------------------------


def test_the_amounts_are_the_servers() -> None:
    assert AMOUNTS[rewards.REWARD_VERSION] == dict(rewards.RULES.operational)
    assert (rewards.RULES.step_bounds, rewards.RULES.sum_bounds) == (STEP_BOUNDS, SUM_BOUNDS)


SCRIPTS = [
    ["DESCRIBE: orders", "QUERY: SELECT count(*) FROM orders WHERE price > 3", "ANSWER: 38"],
    [
        "QUERY: SELECT x FROM orders",
        "query: select  x from ORDERS -- again",
        "DESCRIBE: nowhere",
        "ANSWER: none",
    ],
    [
        "DESCRIBE: orders",
        "DESCRIBE: orders",
        "SAMPLE: orders",
        "SAMPLE: orders",
        "SAMPLE: ORDERS",
        "ANSWER: 1",
    ],
    ["QUERY: SELECT nothing"] * 9,  # down to the least sum
    # up to the greatest
    [f"QUERY: SELECT id FROM orders WHERE id = {number}" for number in range(9)],
    ["QUERY: SELECT 1 AS n", "QUERY: SELECT 1 AS  n;", "QUERY: SELECT 2 - 1 AS n", "ANSWER: 40"],
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_parts_are_those_that_the_server_paid(tmp_path: Path, script: list[str]) -> None:
    """Worked out from actions and texts alone, against the ledger of every reply."""
    paid: dict[str, float] = dict.fromkeys((*AMOUNTS["1"], CLAMP), 0.0)
    turns, actions, step_rewards = [], [], []
    app = create_app(Settings(data_dir=make_data(tmp_path / "data"), sql_workers=1))
    with in_process(app).sync() as client:
        reset = client.reset(question_id="train-shop-2", step_budget=9)
        for action in script:
            reply = client.step(reset.episode_id, action)
            last = reply.done and action.startswith("ANSWER")  # after it nothing is shown
            turns.append(Turn(action, "" if last else format_observation(reply.observation)))
            actions.append(action)
            step_rewards.append(reply.reward)
            for name, value in reply.info.ledger.step.items():
                if name in paid:
                    paid[name] += value
            if reply.done:
                break
    found = operational_parts(_episode(tuple(turns), tuple(actions)), AMOUNTS["1"])
    assert found == pytest.approx(paid, abs=1e-9)
    assert sum(found.values()) == pytest.approx(reply.info.ledger.operational, abs=1e-9)


def _episode(turns: tuple[Turn, ...], actions: tuple[str, ...]) -> EpisodeRecord:
    return EpisodeRecord(
        question_id="q", database="shop", difficulty="easy", part="seen", outcome="wrong", steps=len(turns),
        correctness=0.0, progress=0.0, operational=0.0, reward=0.0, parse_failures=0, env_errors=0,
        context_overflow=False, turns=turns, actions=actions,
    )  # fmt: skip


# -- groups
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["batch", pytest.param("group", marks=pytest.mark.slow)])
def test_advantages_are_those_that_trl_trained_with(
    small: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str
) -> None:
    """Of a job of three steps on a server that loses the episodes of a question: trl's own against
    the page's."""
    seen: list[list[float]] = []
    original = LengthSortedGRPOTrainer._generate_and_score_completions

    def listen(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        seen.append(result["advantages"].tolist())
        return result

    monkeypatch.setattr(LengthSortedGRPOTrainer, "_generate_and_score_completions", listen)
    config = small.override(scale_rewards=scale, max_lost_fraction=0.5)
    job = begin(config, tmp_path, FakeClient(failing={"train-shop-0": 1}), eval_limit=2)
    job.run()
    run = job._run
    lines = training_lines(run, {1, 2, 3})
    uneven = False
    for step, trained in enumerate(seen, start=1):
        found = groups(step, lines[step], config.num_generations, scale)
        assert len(found) == len(lines[step]) // config.num_generations
        flat = [advantage for group in found for advantage in group.advantages]
        assert flat == pytest.approx(trained, abs=1e-3)
        uneven = uneven or any(abs(one) > 0.1 for one in trained)
    assert len(seen) == 3
    assert any(row["reward"] is None for rows in lines.values() for row in rows)
    assert uneven  # else zeros would be compared with zeros


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@settings(max_examples=40)
@given(
    rewards=st.lists(
        st.one_of(st.none(), st.floats(-1, 2).map(lambda x: round(x, 3))), min_size=8, max_size=8
    )
)
def test_advantages_follow_trls_formula_also_with_lost_episodes(
    scale: str, rewards: list[float | None]
) -> None:
    tensor = torch.tensor(
        [float("nan") if one is None else one for one in rewards], dtype=torch.float64
    )
    grouped = tensor.view(2, 4)
    wanted = tensor - torch.nanmean(grouped, dim=1).repeat_interleave(4)
    if scale == "group":
        wanted = wanted / (nanstd(grouped, dim=1).repeat_interleave(4) + 1e-4)
    elif scale == "batch":
        wanted = wanted / (nanstd(tensor) + 1e-4)
    found = advantages(rewards, [range(4), range(4, 8)], scale)
    assert found == pytest.approx(torch.nan_to_num(wanted, nan=0.0).tolist(), abs=1e-6)


def test_an_unknown_scaling_gives_no_advantage() -> None:
    assert advantages([1.0, 0.0], [[0, 1]], "sideways") == [None, None]


def test_a_question_that_comes_twice_in_a_batch_is_two_groups() -> None:
    rows = [{"question_id": "a", "reward": float(number)} for number in range(8)]
    found = groups(1, rows, 4, "none")
    assert [group.mean for group in found] == [1.5, 5.5]
    assert [group.advantages for group in found] == [[-1.5, -0.5, 0.5, 1.5]] * 2


@given(st.sets(st.integers(1, 500), max_size=60), st.integers(2, 20))
def test_the_chosen_steps_hold_both_ends(steps: set[int], count: int) -> None:
    chosen = chosen_steps(list(steps), count)
    assert len(set(chosen)) == len(chosen) == min(count, len(steps))
    assert set(chosen) <= steps
    if steps:
        assert {min(steps), max(steps)} <= set(chosen)


# -- charts
# --------------------------------------------------------------------------------------------------------


def chart(**changes: Any) -> Chart:
    points = [Point(step, step / 10) for step in range(1, 11)]
    return Chart(**{"key": "k", "title": "T", "series": [Series("s", points, "c1")], **changes})


def test_a_chart_is_told_in_words_and_in_numbers() -> None:
    made = chart(baselines=[Baseline("chance", 0.25)], form=charts.percent)
    svg = str(charts.draw(made))
    assert "s: from 10.0 % at step 1 to 100.0 % at step 10, least 10.0 %, greatest 100.0 %" in svg
    assert "chance: 25.0 % (line)" in svg
    assert svg.count('class="hit"') == 10
    assert "step 3: s: 30.0 %" in svg
    assert charts.values(made)[0] == (1, ["10.0 %"])


def test_points_lie_inside_the_picture_whatever_their_values() -> None:
    for ys in ([0.0, 0.0], [5.0], [-1e9, 1e9], [1e-9, 2e-9]):
        made = chart(
            series=[
                Series(
                    "s", [Point(x, y, y, y) for x, y in enumerate(ys)], "c1", "dashed", band=True
                )
            ]
        )
        svg = str(charts.draw(made))
        xs = [float(part.split('"')[0]) for part in svg.split('cx="')[1:]]
        tops = [float(part.split('"')[0]) for part in svg.split('cy="')[1:]]
        assert all(charts.LEFT <= x <= charts.WIDTH - charts.RIGHT for x in xs)
        assert all(charts.TOP <= y <= charts.HEIGHT - charts.BOTTOM for y in tops)
        assert len(tops) == len(ys)


def test_labels_are_escaped_and_an_empty_chart_is_nothing() -> None:
    assert charts.draw(chart(series=[])) == ""
    assert "<script>" not in str(
        charts.draw(chart(title=HOSTILE, series=[Series(HOSTILE, [Point(1, 1)], "c1")]))
    )


def test_a_long_curve_is_drawn_as_means_within_its_range() -> None:
    thin = charts.thinned([Point(x, x, x - 1, x + 1) for x in range(1000)], 100)
    assert len(thin) == 100
    assert thin[0] == Point(4.5, 4.5, -1, 10)
    assert (
        len(charts.values(chart(series=[Series("s", [Point(x, x) for x in range(1000)], "c1")])))
        <= 130
    )


def test_columns_stand_on_each_other() -> None:
    parts = [Series(name, [Point(1, 2.0), Point(2, 4.0)], "c1") for name in "ab"]
    svg = str(charts.draw(chart(series=parts, stacked=True, bounds=(0.0, 8.0))))
    tops = [float(part.split('y="')[1].split('"')[0]) for part in svg.split('class="fill')[1:]]
    height = charts.HEIGHT - charts.TOP - charts.BOTTOM
    assert [round((charts.HEIGHT - charts.BOTTOM - top) / height, 2) for top in tops] == [
        0.25,
        0.5,
        0.5,
        1.0,
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1,234"),
        (0.25, "0.25"),
        (0.0003, "3e-4"),
        (-0.000125, "-1.25e-4"),
        (7, "7"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert charts.number(value) == text


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_inside(low: float, span: float) -> None:
    found = charts.ticks(low, low + span)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in found)


# -- actions and results
# -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_highlighting_changes_no_letter_and_lets_no_markup_through(text: str) -> None:
    shown = sql(text)
    bare = re.sub(r'<span class="\w\w">|</span>', "", str(shown))
    assert html.unescape(bare) == re.sub("\r\n?", "\n", text)
    assert "<" not in bare


def test_sql_is_highlighted() -> None:
    found = shown_action("QUERY: SELECT name FROM t WHERE a = 'x' AND b > 2 -- why")
    assert found.kind == "QUERY"
    for part in (">SELECT<", 'st">&#39;x&#39;<', 'nu">2<', 'co">-- why<'):
        assert part in found.argument
    assert "<script" not in str(shown_action(f"QUERY: {HOSTILE_SQL}").argument)
    assert shown_action("what now?").kind == ""


@pytest.mark.parametrize(
    ("action", "observation", "kind", "headings", "rows", "remark"),
    [
        ("QUERY: x", "a | b\n1 | x\nSteps left: 3", "table", ("a", "b"), (("1", "x"),), ""),
        ("QUERY: x", "a\n(no rows)\nSteps left: 3", "table", ("a",), (), "no rows"),
        ("SAMPLE: t", "a | b\n1 | x | y\nSteps left: 3", "text", (), (), ""),
        ("QUERY: x", "a\n(first 2 rows; there are more)\nSteps left: 1", "table", ("a",), (),
         "first 2 rows; there are more"),
        ("QUERY: x", "Error: no such table: t\nSteps left: 3", "error", (), (), ""),
        ("DESCRIBE: t", "t: 2 rows\nid INTEGER primary key\nname\nSteps left: 3", "table",
         ("column", "type", "key"), (("id", "INTEGER", "primary key"), ("name", "", "")), ""),
        ("DESCRIBE: t", "t: 2 rows\nb_id VARCHAR(9) -> b.id\nSteps left: 3", "table",
         ("column", "type", "key"), (("b_id", "VARCHAR(9)", "→ b.id"),), ""),
        ("ANSWER: 1", "", "none", (), (), ""),
    ],
)  # fmt: skip
def test_results_are_read_as_tables(
    action: str,
    observation: str,
    kind: str,
    headings: tuple[str, ...],
    rows: tuple[Any, ...],
    remark: str,
) -> None:
    found = shown_observation(action, observation)
    assert (found.kind, found.headings, found.rows, found.remark) == (kind, headings, rows, remark)


def test_a_long_result_says_how_much_is_left_out() -> None:
    found = shown_observation(
        "QUERY: x", "a\n" + "\n".join(map(str, range(20))) + "\nSteps left: 3"
    )
    assert len(found.rows) == 12
    assert found.remark == "8 of the 20 rows that the agent was shown are left out here"
    assert cut("x" * 30, 10) == "x" * 10 + "… (20 more characters)"
    assert short("a\n b" * 9, 6) == "a ba …"
