import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from data.golds.check_gold import KEEP_EMPTY
from shared.dataset import OPEN, load_questions
from shared.errors import QuestionLoadError
from shared.models import Outcome
from tests.data.sources.importing import import_spider, make_spider
from tests.trainer.conftest import FakeClient, record
from tests.trainer.small_data import make_data
from trainer.config.settings import GRPOConfig
from trainer.errors import RolloutError
from trainer.rollout.dataset import load_question_prompts, question_id_of
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.row import RolloutRow
from trainer.rollout.vote import answer_key
from trainer.run.analysis import (
    Tries,
    compare,
    difference_interval,
    label_of,
    mcnemar_exact,
    measure_group,
    pass_at_k,
    unknown,
    vote_at_k,
    voted,
    winning_share,
)
from trainer.run.folder import Run
from trainer.run.inputs import JobOptions, load_inputs
from trainer.run.measurement import BATCH, choose, evaluate
from trainer.run.players import batch_of, cache_rows, play_with
from trainer.run.records import Book, EpisodeRecord, append_records, read_records


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return make_data(tmp_path)


@pytest.fixture
def book(data_dir: Path) -> Book:
    train, other = (
        load_questions(data_dir / "questions" / f"questions_{split}.json")
        for split in ("train", "eval")
    )
    return Book(train, other)


@pytest.fixture
def prompts(data_dir: Path) -> list[dict[str, Any]]:
    return load_question_prompts(GRPOConfig().override(data_dir=data_dir), "eval")


def row(question_id: str, outcome: str) -> RolloutRow:
    lost, right = outcome == "infra_failed", outcome == "correct"
    return RolloutRow(
        question_id=question_id,
        outcome=Outcome(outcome),
        correctness=None if lost else float(right),
        progress=None if lost else 0.5,
        operational=None if lost else -0.1,
        parse_failures=1,
        transcript=[{"role": "assistant", "content": "ANSWER: 1"}],
        actions=["ANSWER: 1"],
        rewards=[0.0],
        lost="down" if lost else None,
    )


def player(outcomes: Mapping[str, str]) -> Any:
    def play(prompts: Sequence[Any], *_: Any) -> list[RolloutRow]:
        ids = [question_id_of(prompt) for prompt in prompts]
        return [row(one, outcomes.get(one, "wrong")) for one in ids]

    return play


def test_success_is_counted_overall_on_seen_and_on_unseen_databases(book, prompts):
    outcomes = {
        "eval-shop-0": "correct",
        "eval-shop-1": "correct",
        "eval-farm-0": "correct",
        "eval-farm-1": "infra_failed",
    }
    result = evaluate(player(outcomes), prompts, book, mode="greedy", max_lost_fraction=0.1)
    found = result.summary()
    # one of 12 was lost
    assert (found["overall"]["n"], found["seen"]["n"], found["unseen"]["n"]) == (11, 8, 3)
    assert found["overall"]["rate"] == pytest.approx(3 / 11)
    assert found["seen"]["rate"] == pytest.approx(2 / 8)
    assert found["unseen"]["rate"] == pytest.approx(1 / 3)
    assert found["episodes_lost"] == 1
    assert found["outcomes"] == {"correct": 3, "infra_failed": 1, "wrong": 8}
    assert found["by_difficulty"]["easy"]["n"] + found["by_difficulty"]["medium"]["n"] == 11
    assert found["mean_reward"] == pytest.approx((3 * 1.0 + 11 * (0.15 * 0.5 - 0.1)) / 11)
    assert found["parse_failures"] == 12
    assert found["behaviour"]["unseen"]["accuracy_when_answered"] == pytest.approx(1 / 3)


def test_a_result_is_read_back_unchanged(tmp_path, book, prompts):
    result = evaluate(player({"eval-shop-0": "correct"}), prompts, book, mode="sampled")
    append_records(Run(tmp_path), result.episodes)
    assert tuple(read_records(Run(tmp_path))) == result.episodes


def test_the_lost_fraction_is_of_the_whole_evaluation(config, book, prompts):
    """One lost episode is a fifth of its batch, but a twelfth of the evaluation."""
    client = FakeClient(failing={"eval-shop-0": 0})
    play = play_with(config, client, policy=RandomPolicy())
    found = evaluate(play, prompts, book, mode="sampled", batch=5, max_lost_fraction=0.1)
    assert found.summary()["episodes_lost"] == 1
    client.episodes.clear()
    with pytest.raises(RolloutError, match="1 of 12 ") as caught:
        evaluate(play, prompts, book, mode="sampled", batch=5)
    assert caught.value.details == {"lost": 1, "episodes": 12}
    assert len(client.episodes) < 5  # the first batch decides it


def cells(rows: Sequence[Mapping[str, Any]], *names: str) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row[name] for name in names) for row in rows)


@pytest.mark.parametrize("limit", [8, 48, 100])
def test_choose_keeps_the_shares_of_difficulties_and_databases(limit):
    """The order is that of the shipped files: by database, and easy questions first."""
    sizes = {f"seen{number}": (8, 11) for number in range(8)} | {
        f"unseen{number}": (24, 27) for number in range(5)
    }
    rows = [
        {
            "question_id": f"{database}-{level}-{number}",
            "database_name": database,
            "difficulty": level,
        }
        for database, counts in sizes.items()
        for level, count in zip(("easy", "medium"), counts, strict=True)
        for number in range(count)
    ]
    chosen = choose(rows, limit)
    assert len(chosen) == limit
    assert choose(rows, 0) == choose(rows, 999) == rows
    assert chosen == [row for row in rows if row in chosen], "in the file's order, no repeats"
    assert chosen == choose(rows, limit)
    for names in (("difficulty",), ("database_name",), ("difficulty", "database_name")):
        found = cells(chosen, *names)
        for cell, size in cells(rows, *names).items():
            assert abs(found[cell] - limit * size / len(rows)) <= 1, cell


def test_choose_draws_from_the_whole_of_a_cell():
    """Shipped files are sorted by form: the first questions of each cell are of the same few."""
    rows = load_question_prompts(GRPOConfig.preset("offline"), "eval")
    ranks: dict[tuple[str, str], int] = defaultdict(int)
    place = {}
    for row in rows:
        cell = (row["difficulty"], row["database_name"])
        place[row["question_id"]] = (cell, ranks[cell])
        ranks[cell] += 1
    drawn = [place[row["question_id"]] for row in choose(rows, 64)]
    shares = [rank / (ranks[cell] - 1) for cell, rank in drawn if ranks[cell] > 1]
    assert 0.4 < sum(shares) / len(shares) < 0.6, "on average from the middle"


def test_the_batch_is_limited_by_the_memory_of_the_caches(model):
    """The tiny model: 2 layers x 2 heads x 16 x (key, value) x 4 bytes is 512 bytes per token."""
    config = GRPOConfig(device="cpu", dtype="float32", max_context_tokens=1024)
    full = 512 * 1024
    assert cache_rows(model, config, 2 * 10 * full) == 10
    assert cache_rows(model, config, 2 * 10 * full - 1) == 9
    assert cache_rows(model, config, 0) == 1
    assert cache_rows(model, config, 10**12) == BATCH
    assert batch_of(model, config) >= 1


def test_measuring_needs_no_training_question_of_the_difficulty(small):
    path = Path(small.questions_path)
    path.write_text(
        json.dumps([one for one in json.loads(path.read_text()) if one["difficulty"] != "hard"])
    )
    hard = small.override(difficulty_filter="hard")
    inputs = load_inputs(hard, JobOptions(), training=False)
    assert {row["difficulty"] for row in inputs.evaluation} == {"hard"}
    assert inputs.book.part("shop") == "seen"
    assert inputs.train == []
    with pytest.raises(QuestionLoadError, match="no question of difficulty hard"):
        load_inputs(hard, JobOptions())


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Return the import of a development split, with one gold of nothing but NULL."""
    source = make_spider(tmp_path / "spider")
    (source / "train_spider.json").unlink()
    import_spider(source, tmp_path / "dev", keep=KEEP_EMPTY)
    return tmp_path / "dev"


def test_training_on_it_is_refused_with_a_remedy(dev, small):
    original = small.override(data_dir=dev.parent / "spider")
    (original.data_dir / "tables.json").write_text("[]")
    with pytest.raises(QuestionLoadError, match=r"data import spider .*--data"):
        load_inputs(original, JobOptions())
    config = small.override(data_dir=dev)
    with pytest.raises(QuestionLoadError, match=r"has no training questions.*trainer evaluate"):
        load_inputs(config, JobOptions())
    assert load_inputs(config, JobOptions(), training=False, with_model=False).train == []


def test_data_without_eval_questions_is_refused_with_a_remedy(tmp_path, small):
    source = make_spider(tmp_path / "spider")
    (source / "dev.json").unlink()
    import_spider(source, tmp_path / "train")
    message = r"has no eval questions \(questions_eval\.json\).*--eval-questions"
    with pytest.raises(QuestionLoadError, match=message):
        load_inputs(small.override(data_dir=tmp_path / "train"), JobOptions())


def pairs(both: int, first: int, second: int, neither: int) -> list[tuple[float, float]]:
    """Return questions that both sides, only the first, only the second, and neither got right."""
    one_right = [(1.0, 0.0)] * first + [(0.0, 1.0)] * second
    return [(1.0, 1.0)] * both + one_right + [(0.0, 0.0)] * neither


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 5, 1.0),
        (7, 1, 18 / 256),
        (1, 7, 18 / 256),
        (6, 0, 2 / 64),
        (10, 2, 158 / 4096),
    ],
)
def test_mcnemars_exact_test_sums_binomial_tails(gained, lost, p):
    assert mcnemar_exact(gained, lost) == pytest.approx(p, rel=1e-12)


def test_the_test_is_exact_for_thousands():
    assert mcnemar_exact(3000, 0) == 0.0  # 2^-2999 underflows
    assert mcnemar_exact(1000, 1000) == 1.0
    # the normal approximation, continuity-corrected
    assert mcnemar_exact(1100, 900) == pytest.approx(8.5e-6, rel=0.02)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ((20, 2, 12, 16), (0.0562, 0.3292)),  # Newcombe 1998
        ((36, 2, 12, 0), (0.0569, 0.3404)),  # the same; the sides are right on opposite questions
        ((1, 1, 7, 12), (0.026, 0.507)),  # Fagerland, Lydersen and Laake 2014
    ],
)
def test_the_interval_is_the_published_one(table, expected):
    assert difference_interval(pairs(*table)) == pytest.approx(expected, abs=5e-4)
    both, first, second, neither = table
    turned = difference_interval(pairs(both, second, first, neither))
    assert turned == pytest.approx((-expected[1], -expected[0]), abs=5e-4)


def test_a_comparison_covers_the_questions_of_both_sides():
    wrong, right = Tries(0, 1), Tries(1, 1)
    before = {"a": wrong, "b": right, "c": wrong, "only before": right}
    after = {"a": right, "b": right, "c": right, "only after": wrong}
    found = compare(before, after)
    assert (found["n"], found["gained"], found["lost"], found["p_value"]) == (3, 2, 0, 0.5)
    assert (found["before"], found["after"]) == pytest.approx((1 / 3, 1.0))
    assert found["difference"] == pytest.approx(2 / 3)
    low, high = found["ci95"]
    assert low <= found["difference"] <= high
    assert low < 0  # three questions prove nothing
    nothing = compare({"a": right}, {"b": right})
    assert (nothing["n"], nothing["difference"], nothing["ci95"]) == (0, None, [-1.0, 1.0])


def test_rates_count_for_the_higher_side():
    before = {"a": Tries(1, 4), "b": Tries(2, 4), "c": Tries(3, 4), "d": Tries(4, 4)}
    after = {"a": Tries(2, 4), "b": Tries(3, 4), "c": Tries(2, 4), "d": Tries(4, 4)}
    found = compare(before, after)
    assert (found["gained"], found["lost"], found["p_value"]) == (2, 1, 1.0)
    assert found["difference"] == pytest.approx(0.25 / 4)
    assert found["ci95"][0] < 0 < found["ci95"][1]
    greedy = {key: Tries(round(one.share), 1) for key, one in after.items()}
    unequal = compare(before, greedy)
    assert (unequal["gained"], unequal["lost"], unequal["p_value"]) == (1, 2, None)
    one_lost = compare(before, {**after, "b": Tries(2, 3)})
    assert (one_lost["gained"], one_lost["lost"], one_lost["p_value"]) == (2, 1, 1.0)


@pytest.mark.parametrize(("n", "c"), [(5, 0), (5, 1), (5, 3), (6, 5), (4, 4)])
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(n, c):
    tries = [index < c for index in range(n)]
    for k in range(1, n + 1):
        draws = list(itertools.combinations(tries, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)


def episode(sample: int, answer: str | None, right: bool = False) -> EpisodeRecord:
    said = ["QUERY: SELECT 1"] if answer is None else [f"ANSWER: {answer}"]
    outcome = "correct" if right else "wrong" if answer else "budget"
    key = None if answer is None else answer_key(answer)
    return record(outcome=outcome, actions=said, sample=sample, answer=key)


def test_a_vote_counts_attempts_without_an_answer():
    split = [episode(0, None), episode(1, "7"), episode(2, "42", True), episode(3, "42.0", True)]
    assert voted(split) == (2, True)
    assert voted([episode(0, None)]) == (0, False)
    assert vote_at_k(split, 2) == 0.5  # 7 of the first two, 42 of the others
    assert vote_at_k(split, 3) == 0.0  # of the first three; the last is in no run of three
    assert voted([episode(0, "NULL"), episode(1, "NULL"), episode(2, "42", True)]) == (1, True)


def test_a_label_is_the_answer_of_most_attempts():
    agreeing = [episode(0, "42"), episode(1, "42.0"), episode(2, "42", True)]
    split = [*agreeing, episode(3, "7")]
    assert (label_of(split), winning_share(split)) == (answer_key("42"), 0.75)
    assert label_of([*split, episode(4, None)]) == answer_key("42"), "3 of 5"
    assert label_of([*split, episode(4, None), episode(5, "8")]) is None, "half of them"
    assert label_of(agreeing[:2]) is None, "two attempts are too few"
    for said in ("NULL", "0", "unknown", "N/A", "Not found.", "I don't know"):
        nothing = [episode(sample, said) for sample in range(5)]
        assert (label_of(nothing), winning_share(nothing)) == (None, 0.0), said
    alone = episode(0, "42").model_copy(update={"named": ("city", "name")})
    assert label_of([alone, *(episode(sample, None) for sample in range(1, 5))]) is None


def test_an_attempt_whose_query_names_more_words_counts_more_for_a_label():
    named = [episode(0, "42").model_copy(update={"named": ("city", "name")}), episode(1, "42")]
    others = [episode(sample, "7") for sample in (2, 3, 4)]
    assert label_of([*named, *others]) == answer_key("42")
    assert label_of([episode(0, "42"), *others]) == answer_key("7")


def test_of_open_questions_only_agreement_is_known():
    played = [episode(sample, "42") for sample in range(3)]
    asked = [one.model_copy(update={"difficulty": OPEN}) for one in played]
    group = measure_group(asked, [1, 2, 3])
    assert (group["success"], group["labels"]) == (unknown([0.0]), unknown([0.0]))
    assert group["pass_at"]["2"] == group["vote_at"]["3"] == group["agreement"]["3"] == unknown([0])
    assert (group["winning_share"]["rate"], group["accuracy_when_answered"]) == (1.0, None)
    judged = measure_group(played, [1, 2, 3])
    assert (judged["success"]["rate"], judged["labels"]["rate"]) == (0.0, 0.0)


def test_coverage_is_of_all_questions():
    group = measure_group(
        [episode(0, "42", True), episode(1, None), episode(2, "42.", True)], [1, 2, 3]
    )
    assert {k: rate["n"] for k, rate in group["agreement"].items()} == {"1": 1, "2": 1, "3": 0}
    assert (group["agreement"]["2"]["rate"], group["agreement"]["3"]["rate"]) == (1.0, None)
