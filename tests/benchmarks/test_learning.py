"""The controls of a run: shuffled rewards, votes, supervised training, pages, stored results."""

import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.learning import sft, shuffled, supervised, votes
from benchmarks.learning.__main__ import app
from benchmarks.learning.bench import (
    Finished,
    Result,
    kept,
    load_finished,
    read_kept,
    same_questions,
)
from benchmarks.learning.controls import Controls, Line
from benchmarks.learning.report import bars, page, reading
from benchmarks.learning.seeds import check_comparable, mean_curve, mean_gain, seed_curves
from benchmarks.learning.seeds import page as seeds_page
from shared.dataset import Question
from shared.run_stats import Rate
from tests.trainer import conftest as training
from tests.trainer.records import record
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult
from trainer.evaluation.inputs import JobOptions
from trainer.pretraining.imitation import Row
from trainer.report.tables import change
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.run.charts import Point
from trainer.run.folder import Run, append_lines, write_json
from trainer.run.records import EpisodeRecord, Turn

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures

FIELDS = {
    "correctness": [float(n % 2) for n in range(16)],
    "progress": [n / 16 for n in range(16)],
    "operational": [-n / 100 for n in range(16)],
}


def rewards(step: int = 3, seed: int = 1, lost: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the three shuffled rewards of each row, called as TRL calls the functions."""
    fields: dict[str, Any] = {
        name: [None if n in lost else v for n, v in enumerate(values)]
        for name, values in FIELDS.items()
    }
    state = SimpleNamespace(global_step=step)
    functions = shuffled.shuffled(REWARD_FUNCTIONS, seed)
    fields |= {"completions": [""] * 16, "trainer_state": state}
    return list(zip(*(one(**fields) for one in functions), strict=True))


def test_the_three_rewards_of_an_episode_stay_together_and_are_permuted() -> None:
    rows = list(zip(*FIELDS.values(), strict=True))
    assert sorted(rewards()) == sorted(rows)
    assert rewards() != rows


def test_a_permutation_follows_from_seed_and_step() -> None:
    assert rewards(step=3) == rewards(step=3)
    assert rewards(step=3) != rewards(step=4)
    assert rewards(seed=1) != rewards(seed=2)


def test_lost_episodes_keep_none() -> None:
    found = rewards(lost=(0, 5))
    assert [n for n, row in enumerate(found) if row == (None, None, None)] == [0, 5]
    assert sorted(row for row in found if None not in row) == sorted(
        row for n, row in enumerate(zip(*FIELDS.values(), strict=True)) if n not in (0, 5)
    )


def test_trl_logs_the_shuffled_functions_by_the_same_names() -> None:
    assert [one.__name__ for one in shuffled.shuffled(REWARD_FUNCTIONS, 1)] == [
        "reward_correctness",
        "reward_progress",
        "reward_operational",
    ]


def episode(
    answer: str | None, right: bool = False, question: str = "q", part: str = "unseen"
) -> EpisodeRecord:
    outcome = "budget" if answer is None else "correct" if right else "wrong"
    turns = (
        Turn("DESCRIBE: a", "a: 1 rows"),
        Turn("QUERY: SELECT 1" if answer is None else f"ANSWER: {answer}", ""),
    )
    return record(
        question_id=question,
        part=part,
        outcome=outcome,
        turns=turns,
        actions=[turn.action for turn in turns],
    )


def test_the_majority_decides_and_only_answers_vote() -> None:
    draws = [
        episode(None),
        episode(None),
        episode(None),
        episode("7"),
        episode("42", True),
        episode(" 42.0 ", True),
    ]
    chosen = votes.majority(draws)
    assert chosen is draws[4]
    assert votes.vote_right(draws)


def test_the_earliest_answer_wins_a_tied_vote() -> None:
    draws = [episode("7"), episode("42", True), episode("42", True), episode("7")]
    assert votes.majority(draws) is draws[0]
    assert not votes.vote_right(draws)
    assert votes.any_right(draws)
    assert votes.majority([episode(None)]) is None


def test_answers_that_differ_only_in_form_are_one_vote() -> None:
    assert votes.normal("New  York") == votes.normal("new york ")
    assert votes.normal("12") == votes.normal("12.0") != votes.normal("12.5")


def test_rates_of_eight_draws_count_questions() -> None:
    draws = [
        episode("1", question="a"),
        episode("2", True, question="a"),
        episode("1", question="a"),
    ]
    draws += [
        episode("2", True, question="b", part="seen"),
        episode("2", True, question="b", part="seen"),
    ]
    result = EvalResult("sampled", tuple(draws), 1.0)
    picked, voted = (
        votes.summarise(result, votes.any_right),
        votes.summarise(result, votes.vote_right),
    )
    assert (picked["overall"]["rate"], picked["overall"]["n"], picked["unseen"]["n"]) == (1.0, 2, 1)
    assert (voted["unseen"]["rate"], voted["seen"]["rate"]) == (0.0, 1.0)
    assert picked["behaviour"]["overall"]["n"] == 5


def question(gold: Any, answer_type: Any) -> Question:
    return Question(
        question_id="q",
        question_text="?",
        database_name="shop",
        gold_sql="SELECT x FROM a JOIN b",
        gold_answer=gold,
        answer_type=answer_type,
        difficulty="easy",
        tables_involved=["a", "b"],
    )


@pytest.mark.parametrize(
    ("gold", "answer_type", "answer"),
    [
        (42, "integer", "ANSWER: 42"),
        (12.5, "float", "ANSWER: 12.5"),
        ("Oslo", "string", "ANSWER: Oslo"),
        (["Oslo", None], "list", "ANSWER: Oslo\nNULL"),
        ([["Ann", 3], ["Bob", 1]], "table", "ANSWER: Ann | 3\nBob | 1"),
    ],
)
def test_a_demonstration_describes_queries_and_answers(
    gold: Any, answer_type: str, answer: str
) -> None:
    script = sft.script_of(question(gold, answer_type))
    assert script == ["DESCRIBE: a", "DESCRIBE: b", "QUERY: SELECT x FROM a JOIN b", answer]


def test_every_epoch_has_every_demonstration_once_in_a_new_order() -> None:
    rows = [Row([number], [1], True) for number in range(10)]
    stream = supervised.shuffled_batches(rows, 4, seed=1)
    first, second = (
        [row.ids[0] for batch in (next(stream) for _ in range(3)) for row in batch]
        for _ in range(2)
    )
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def rows_of(model: Any) -> list[Row]:
    return [
        Row([5 + n, 40, 41, 42, 43, 44, *[44] * n], [0, 0, 1, 1, 1, 1, *[1] * n], True)
        for n in range(20)
    ]


def test_training_stops_at_its_time_and_keeps_the_best_point(model: Any) -> None:
    """The clock advances one second per reading, so every batch takes one second."""
    seconds = iter(range(10_000))
    learner = supervised.Learner(model, 0, "cpu", "float32")
    scores, states = iter([(0.2, 0.0), (0.6, 0.0), (0.6, 0.0), (0.4, 0.0)]), []

    def score() -> supervised.Score:
        states.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return next(scores)

    before = learner.loss(rows_of(model), backward=False)
    found = supervised.fit(
        learner, rows_of(model), 1e-3, 8.0, 1, score, points=4, clock=lambda: float(next(seconds))
    )
    assert (found.seconds, found.batches, found.episodes) == (8.0, 8, 8 * 20)
    assert [point["seconds"] for point in found.points] == [2.0, 4.0, 6.0, 8.0]
    assert found.score == (0.6, 0.0)
    assert all(torch.equal(tensor, states[2][name]) for name, tensor in found.weights.items())
    assert learner.loss(rows_of(model), backward=False) < before


def test_changed_rows_are_trained_on_and_their_change_is_timed(model: Any) -> None:
    """Here a change takes a second of CPU, and a whole batch no other time."""
    now, learner = [0.0], supervised.Learner(model, 0, "cpu", "float32")
    trained: list[Row] = []

    def change(row: Row, stream: random.Random) -> Row:
        now[0] += 1.0
        return replace(row, ids=[stream.randrange(5, 40), *row.ids[1:]])

    def loss(rows: list[Row], backward: bool) -> float:
        trained.extend(rows)
        return 0.0

    learner.loss = loss  # type: ignore[method-assign]
    rows = rows_of(model)
    options: dict[str, Any] = {"change": change, "points": 1, "clock": lambda: now[0]}
    found = supervised.fit(learner, rows, 1e-3, 40.0, 1, lambda: (0.5, 0.0), **options)
    assert (found.seconds, found.episodes) == (40.0, 40)
    assert not any(row in rows for row in trained)
    assert {tuple(row.ids[1:]) for row in trained} == {tuple(row.ids[1:]) for row in rows}


def test_the_loss_is_the_mean_over_all_tokens_for_any_split(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = supervised.Learner(model, 0, "cpu", "float32")
    with torch.no_grad():
        split = learner.loss(rows_of(model), backward=False)
        monkeypatch.setattr(supervised, "MICRO_BATCH", 1000)
        whole = learner.loss(rows_of(model), backward=False)
    assert split == pytest.approx(whole, rel=1e-5)


def test_the_rate_warms_up_and_decays_to_zero() -> None:
    assert supervised.rate_factor(0.0) == 0.0
    assert supervised.rate_factor(supervised.WARMUP_SHARE) == 1.0
    assert supervised.rate_factor(1.0) == 0.0


def summary_of(unseen: int, seen: int, mode: str = "greedy") -> dict[str, Any]:
    parts = {"seen": Rate(seen, 100).as_dict(), "unseen": Rate(unseen, 200).as_dict()}
    shares = {
        "answered": 0.9,
        "accuracy_when_answered": 0.5,
        "describe_first": 1.0,
        "steps": 3.25,
        "repeats": 0.125,
    }
    return {
        "overall": Rate(unseen + seen, 300).as_dict(),
        **parts,
        "behaviour": {"unseen": shares},
        "mode": mode,
    }


def both(unseen: int, seen: int = 50) -> dict[str, dict[str, Any]]:
    return {"greedy": summary_of(unseen, seen), "sampled": summary_of(unseen - 20, seen - 10)}


def finished(seed: int = 1, after: int = 170, tmp_path: Path = Path("runs")) -> Finished:
    summary = {
        "digests": {
            "data": "d" * 64,
            "server": "s" * 64,
            "model": "m" * 64,
            "trained_model": f"{seed}" * 64,
        },
        "train_steps": 60,
        "wall_s": 625.4,
        "processes": 2,
        "versions": {"torch": "2", "trl": "1"},
        "evaluations": {"before": both(52), "after": both(after)},
        "cost": {
            "seconds_to": {
                "greedy": {"0.5": 61.2, "0.75": None},
                "sampled": {"0.5": 120.0, "0.75": None},
            },
            "train_s": 481.3,
            "cpu_s": 602.5,
            "cpu_s_per_episode": 0.12,
            "server_cpu_s_per_episode": 0.011,
        },
    }
    settings = GRPOConfig.preset("offline", seed=seed)
    return Finished(Run(tmp_path / f"run-seed{seed}"), settings, JobOptions(), summary)


def all_controls() -> Controls:
    lines = [
        Line("random", {"sampled": summary_of(1, 0)}),
        Line("before", both(52)),
        Line("pass_at_8", {"sampled": summary_of(120, 60)}, 80.0),
        Line("vote_of_8", {"sampled": summary_of(60, 30)}, 80.0),
        Line("imitation", both(90), 603.0),
        Line("shuffled", both(54), 598.0),
        Line("sft", both(100), 602.0),
        Line("grpo", both(170), 602.5),
    ]
    how = {
        "demonstrations": 532,
        "held_back": 60,
        "rate": 3e-4,
        "optimizer": "AdamW",
        "epochs": 20.0,
    }
    trials = [{"rate": 1e-4, "held_back_success": 0.4}, {"rate": 3e-4, "held_back_success": 0.5}]
    more = {**how, "demonstrations": 53_000, "databases": 672, "epochs": 0.45, "trials": []}
    return Controls(finished(), lines, {"sft": {**how, "trials": trials}, "imitation": more})


def test_the_page_has_one_row_per_policy_with_intervals_and_behaviour() -> None:
    text = page(all_controls(), "python -m benchmarks.learning controls --run runs/x")
    assert "    python -m benchmarks.learning controls --run runs/x\n" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 8
    assert {line.count("|") for line in table} == {12}
    assert "| 85.0 [79.4, 89.3] | 75.0 [68.6, 80.5] |" in table[-1]
    assert "| 90 / 90 | 50 / 50 | 100 / 100 | 3.2 / 3.2 | 0.12 / 0.12 | 602 |" in table[-1]
    assert "| - | 0.5 [0.1, 2.8] | - | 0.0 [0.0, 3.7] |" in table[2]


def test_the_sentences_match_the_numbers() -> None:
    text = "\n".join(reading(all_controls()))
    assert (
        "GRPO against its start: greedy +59.0 points, 95 % intervals do not overlap; "
        "sampled +59.0 points, 95 % intervals do not overlap." in text
    )
    assert re.search(r"Shuffled rewards .*: greedy \+1\.0 points, 95 % intervals overlap", text)
    assert "532 training questions, which GRPO never sees: 20.0 epochs, AdamW at 0.0003 (" in text
    assert "GRPO against more imitation: greedy +40.0 points" in text
    assert "53,000 demonstrations over 672 new generated databases: 0.5 epochs, AdamW" in text
    few = Controls(finished(), [Line("before", both(52)), Line("grpo", both(170))], {})
    assert len(reading(few)) == 2


def test_change_reports_disjoint_intervals_both_ways() -> None:
    before, after = Rate(163, 407).as_dict(), Rate(323, 407).as_dict()
    # shown as 40.0 and 79.4; the exact difference is 39.31
    assert change(before, after) == "+39.4 points, 95 % intervals do not overlap"
    low, high = Rate(20, 200).as_dict(), Rate(150, 200).as_dict()
    assert change(low, high) == "+65.0 points, 95 % intervals do not overlap"
    assert change(high, low) == "−65.0 points, 95 % intervals do not overlap"
    assert change(Rate(22, 200).as_dict(), low) == "−1.0 points, 95 % intervals overlap"
    assert change(None, low) == ""


def test_figures_are_drawn_without_some_measurements(tmp_path: Path) -> None:
    assert bars(all_controls().lines, "t").startswith(b"\x89PNG")
    assert bars([Line("before", {})], "t").startswith(b"\x89PNG")
    runs = [finished(1, tmp_path=tmp_path), finished(2, tmp_path=tmp_path)]
    rows = [{"step": step, "eval_n": 32, "eval_greedy_success": step / 60} for step in (0, 30, 60)]
    append_lines(runs[0].run.metrics, rows)
    assert seed_curves(runs).startswith(b"\x89P")


def test_the_mean_curve_covers_the_common_steps() -> None:
    curves = [[Point(0, 0.0), Point(10, 0.2), Point(20, 0.4)], [Point(0, 0.2), Point(20, 0.6)]]
    assert mean_curve(curves) == [Point(0, 0.1), Point(20, 0.5)]
    assert mean_curve([]) == []


def test_the_seeds_page_has_gains_and_times() -> None:
    runs = [finished(1, 170), finished(2, 180), finished(3, 160)]
    text = seeds_page(runs, "python -m benchmarks.learning seeds a b c")
    assert (
        "| 1 | unseen | greedy | 200 | 26.0 [20.4, 32.5] | 85.0 [79.4, 89.3] "
        "| +59.0 points, 95 % intervals do not overlap |" in text
    )
    assert "- unseen, greedy: +59.0 points in the mean (lowest +54.0, highest +64.0)" in text
    assert "| 1 | 2 | 61 | 120 | - | - | 481 | 625 | 0.120 + 0.011 |" in text
    assert mean_gain(runs, "unseen", "greedy") == pytest.approx((54.0, 59.0, 64.0))


def test_incomparable_runs_are_refused() -> None:
    with pytest.raises(RunError, match="different seeds"):
        check_comparable([finished(1), finished(1)])
    other = finished(2)
    other.summary["digests"]["model"] = "other"
    with pytest.raises(RunError, match="differ in their model"):
        check_comparable([finished(1), other])
    other = finished(2)
    other = replace(other, config=other.config.override(learning_rate=1e-5))
    with pytest.raises(RunError, match="learning_rate=1e-05"):
        check_comparable([finished(1), other])
    other = replace(finished(2), options=JobOptions(eval_limit=10))
    with pytest.raises(RunError, match="eval_limit=10"):
        check_comparable([finished(1), other])
    machine = finished(2).config.override(per_device_train_batch_size=1, output_dir="elsewhere")
    check_comparable([finished(1), replace(finished(2), config=machine)])


def test_a_result_is_stored_until_the_run_or_the_settings_change(tmp_path: Path) -> None:
    made: list[int] = []

    def make(own: Run) -> Result:
        made.append(len(list(own.path.glob("left"))))
        (own.path / "left").touch()
        return Result({"x": {"greedy": {"overall": 1}}}, 2.0, {"rate": 3})

    of = {"digests": {"model": "a"}, "settings": {"draws": 8}}
    first = kept(tmp_path, "one", of, make)
    assert kept(tmp_path, "one", of, make) == first
    assert read_kept(tmp_path, "one", of) == first
    assert made == [0]
    (tmp_path / "one.json").unlink()  # as after an interruption: its folder is still there
    kept(tmp_path, "one", of, make)
    assert made == [0, 1]
    changed = {**of, "digests": {"model": "b"}}
    assert read_kept(tmp_path, "one", changed) is None
    kept(tmp_path, "one", changed, make)
    assert made == [0, 1, 0]


def test_a_result_that_another_process_makes_is_refused(tmp_path: Path) -> None:
    of = {"digests": {}, "settings": {}}

    def make(own: Run) -> Result:
        with pytest.raises(RunError, match="another process uses"):
            kept(tmp_path, "one", of, make)
        return Result({}, 1.0, {})

    assert kept(tmp_path, "one", of, make).seconds == 1.0


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run at"):
        load_finished(tmp_path)
    write_json(tmp_path / "config.json", {})
    with pytest.raises(RunError, match="--resume"):
        load_finished(tmp_path)


def test_controls_play_the_questions_that_the_run_played(tmp_path: Path) -> None:
    run = finished(tmp_path=tmp_path)
    played = EvalResult("greedy", (episode("1", question="c"), episode("1", question="a")), 1.0)
    played.write(run.run.evaluation("before", "greedy"))
    prompts = [{"question_id": name} for name in "abc"]
    assert same_questions(run, prompts) == [prompts[2], prompts[0]]
    with pytest.raises(RunError, match="measured on c"):
        same_questions(run, prompts[:2])


def test_bad_options_are_reported_in_one_line(tmp_path: Path) -> None:
    assert "--rates" in CliRunner().invoke(app, ["controls", "--rates", "fast"]).output
    for command in ("controls", "forms"):
        found = CliRunner().invoke(app, [command, "--run", "no/such/run", "--out", str(tmp_path)])
        assert (found.exit_code, "make train" in found.output) == (1, True)
