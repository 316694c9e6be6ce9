"""`python -m trainer evaluate` with a fake server: stored, resumed, counted and compared."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shared.dataset import data_digest
from shared.errors import QuestionLoadError
from shared.models import ServerMetadata
from shared.run_stats import Mode
from shared.seeds import EVAL_SEED
from tests.trainer.chat_server import ChatServer, Fault, ModelBehind, served
from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import StoppingClient
from tests.trainer.small_job import served as metadata_of
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import RolloutError, RunError
from trainer.rollout.generators.policies import RandomPolicy
from trainer.run.analysis import pass_at_k
from trainer.run.evaluation import (
    EvaluationSettings,
    mixed_questions,
    read_measured,
    run_evaluation,
)
from trainer.run.folder import Run, held, read_json, read_lines, to_json
from trainer.run.inputs import Inputs, JobOptions, load_inputs
from trainer.run.measurement import evaluate
from trainer.run.players import Connection, model_play, play_with
from trainer.runtime.interrupt import Interrupted

RIGHT, WRONG = "ANSWER: 42", "ANSWER: 7"


class Gambler(ChatServer):
    """Answers in the first turn, correctly for one seed in three, so that success follows from the
    episode's random stream."""

    def __init__(self) -> None:
        super().__init__(lambda messages: RIGHT)

    def complete(self, body: dict[str, Any]) -> Fault:
        self.answer = lambda messages: RIGHT if body.get("seed", 0) % 3 == 0 else WRONG
        with self.lock:  # `answer` is shared by all requests
            return super().complete(body)


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with served(Gambler()) as server:
        yield server


class Bench:
    """Evaluations of one data directory on a `FakeClient`; `output` is what they printed."""

    def __init__(self, config: GRPOConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config, self.client = config, FakeClient()
        self.console = Console(file=io.StringIO(), width=100)
        self.digest = "server-digest"
        monkeypatch.setattr("trainer.run.evaluation.connected", self.connected)

    @contextmanager
    def connected(
        self, config: GRPOConfig, servers: Any, inputs: Inputs, log_path: Path
    ) -> Iterator[Connection]:
        metadata: ServerMetadata = metadata_of(inputs, self.digest)
        yield Connection(config, self.client, metadata)

    def run(self, out: Path | None = None, **settings: Any) -> dict[str, Any]:
        settings = {"config": self.config, "policy": "random", "out": out, **settings}
        return run_evaluation(EvaluationSettings(**settings), self.console)

    @property
    def output(self) -> str:
        return " ".join(self.console.file.getvalue().split())


@pytest.fixture
def bench(small: GRPOConfig, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(small, monkeypatch)


def api(chat: ChatServer, **settings: Any) -> dict[str, Any]:
    return {"policy": "openai", "base_url": chat.url, "concurrency": 2, **settings}


@pytest.fixture
def fake(bench: Bench) -> GRPOConfig:
    """Return the configuration with the chat server's model."""
    bench.config = bench.config.override(model_name="fake")
    return bench.config


def lines(out: Path) -> list[dict[str, Any]]:
    return list(read_lines(out / "episodes.jsonl"))


def test_samples_give_success_and_unbiased_pass_at_k_by_group(bench, fake, chat, tmp_path):
    result = bench.run(tmp_path / "out", **api(chat, samples=4))
    played = lines(tmp_path / "out")
    assert len(played) == result["episodes"] == 12 * 4
    assert {one["sample"] for one in played} == {0, 1, 2, 3}
    tries: dict[str, list[bool]] = {}
    for one in sorted(played, key=lambda one: one["sample"]):
        tries.setdefault(one["question_id"], []).append(one["outcome"] == "correct")
    assert len({sum(right) for right in tries.values()}) > 2  # the samples of a question differ
    groups = result["success"]
    for k in (1, 2, 4):
        expected = sum(pass_at_k(4, sum(right), k) for right in tries.values()) / 12
        assert groups["overall"]["pass_at"][str(k)]["rate"] == pytest.approx(expected)
    assert groups["overall"]["pass_at"]["1"] == groups["overall"]["success"]
    farm = [sum(right) / 4 for name, right in tries.items() if "farm" in name]
    assert groups["unseen"] == groups["by_database"]["farm"]
    assert groups["unseen"]["success"]["rate"] == pytest.approx(sum(farm) / 4)
    assert list(groups["by_difficulty"]) == ["easy", "medium"]
    overall = groups["overall"]
    # both answers are texts of the first turn: 42 wins where it is said more often, or first
    votes = {name: right.count(True) > 2 - right[0] / 2 for name, right in tries.items()}
    first = {name: [right[0], right[2]] for name, right in tries.items()}
    assert overall["vote_at"]["4"]["rate"] == pytest.approx(sum(votes.values()) / 12)
    assert overall["vote_at"]["2"]["rate"] == pytest.approx(sum(map(sum, first.values())) / 24)
    for k in range(1, 5):
        agree = [one for one, right in tries.items() if max(map(right.count, (True, False))) >= k]
        rate = overall["agreement"][str(k)]
        assert (rate["n"], rate["rate"]) == (
            len(agree),
            pytest.approx(sum(map(votes.get, agree)) / len(agree)),
        )
    assert {one["answer"] for one in played} == {"[[42]]", "[[7]]"}
    assert "Votes of attempts: 12 questions" in bench.output
    assert overall["actions"] == {"DESCRIBE": 0, "SAMPLE": 0, "QUERY": 0, "ANSWER": 1}
    assert (overall["answered"], overall["sampled_tokens"]) == (1.0, 2)
    assert result["model_server"]["requests"] == 48
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text()) == result


def test_a_resumed_evaluation_gives_the_result_of_an_uninterrupted_one(bench, fake, chat, tmp_path):
    whole = bench.run(tmp_path / "whole", **api(chat, samples=3))
    bench.client = StoppingClient(at=4, error=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        bench.run(tmp_path / "out", **api(chat, samples=3))
    assert "12 episodes are kept in" in bench.output
    first = lines(tmp_path / "out")
    assert len(first) == 12
    path = tmp_path / "out" / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-30])  # a crash in the middle of a line
    bench.client = FakeClient()
    asked = len(chat.requests)
    result = bench.run(tmp_path / "out", **api(chat, samples=3))
    assert len(chat.requests) - asked == 36 - 11  # stored episodes are not played again
    assert lines(tmp_path / "out")[:11] == first[:11]
    by_key = {(one["question_id"], one["sample"]): one for one in lines(tmp_path / "whole")}
    assert {(one["question_id"], one["sample"]): one for one in lines(tmp_path / "out")} == by_key
    assert without_times(result) == without_times(whole)
    again = bench.run(tmp_path / "out", **api(chat, samples=3))
    assert without_times(again) == without_times(result)
    assert len(chat.requests) - asked == 36 - 11


class InterruptedInStep(FakeClient):
    """Raises on the way into the given step_many call (1 is the first)."""

    def __init__(self, at: int, after: dict[str, int]) -> None:
        super().__init__(after=after)
        self.left = at

    def step_many(self, steps: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise Interrupted
        return super().step_many(steps)


def test_an_interruption_loses_only_the_episodes_under_way(bench, tmp_path):
    """All 12 are in one batch; three of them end after one step and are there before the second."""
    ended = {f"eval-farm-{number}": 1 for number in (0, 1, 3)}
    bench.client = InterruptedInStep(2, ended)
    with pytest.raises(KeyboardInterrupt):
        bench.run(tmp_path / "out")
    assert "3 episodes are kept in" in bench.output
    assert {one["question_id"] for one in lines(tmp_path / "out")} == set(ended)
    bench.client = FakeClient(after=ended)
    whole, resumed = bench.run(tmp_path / "whole"), bench.run(tmp_path / "out")
    assert len(bench.client.episodes) == 12 + 9
    assert without_times(resumed) == without_times(whole)


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("wall_s", "model_server")}


def test_more_samples_are_added_to_the_stored_ones(bench, fake, chat, tmp_path):
    first = bench.run(tmp_path / "out", **api(chat, samples=1))
    result = bench.run(tmp_path / "out", **api(chat, samples=3))
    assert read_json(Run(tmp_path / "out").config)["evaluation"]["samples"] == 3
    assert len(chat.requests) == 36
    whole = bench.run(tmp_path / "whole", **api(chat, samples=3))
    assert without_times(result) == without_times(whole)
    fewer = bench.run(tmp_path / "out", **api(chat, samples=1))
    assert without_times(fewer) == without_times(first)


def test_training_takes_the_questions_of_mixed_success(bench, fake, chat, small, tmp_path):
    bench.run(tmp_path / "out", **api(chat, split="train", samples=4))
    right = Counter({one["question_id"]: 0 for one in lines(tmp_path / "out")})
    right.update(one["question_id"] for one in lines(tmp_path / "out") if one["reward"] > 0.5)
    mixed = {name for name, n in right.items() if 0 < n < 4}
    assert 0 < len(mixed) < len(right)
    digest = data_digest(small.data_dir)
    options = JobOptions(questions=mixed_questions(tmp_path / "out", digest))
    with pytest.raises(RunError, match="was measured on other data"):
        mixed_questions(tmp_path / "out", "0" * 64)
    trained = load_inputs(small, options, with_model=False).train
    assert {row["question_id"] for row in trained} == mixed
    with pytest.raises(QuestionLoadError, match="none of the 1 questions of --mixed"):
        load_inputs(small, JobOptions(questions=["of-other-data"]), with_model=False)
    bench.run(tmp_path / "once", **api(chat, split="train"))
    bench.run(tmp_path / "eval", **api(chat, samples=4))
    for folder, problem in [
        ("once", "both right and wrong episodes: make it with 'python -m trainer evaluate"),
        ("eval", "has no training questions"),
        ("gone", "no evaluation at"),
    ]:
        with pytest.raises(RunError, match=problem):
            mixed_questions(tmp_path / folder, digest)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 5}, "seed was 1000003 and is 5"),
        ({"limit": 3}, "limit was 0 and is 3; questions was 12 and is 3"),
        ({"policy": "random", "base_url": ""}, "policy was 'openai' and is 'random'"),
    ],
)
def test_another_measurement_is_refused_in_its_folder(bench, fake, chat, tmp_path, change, named):
    bench.run(tmp_path / "out", **api(chat))
    before = lines(tmp_path / "out")
    with pytest.raises(RunError, match="was begun with other settings") as caught:
        bench.run(tmp_path / "out", **{**api(chat), **change})
    assert named in caught.value.message
    assert lines(tmp_path / "out") == before


def test_other_rules_another_model_and_another_kind_of_folder_are_refused(
    bench, small, tmp_path, model
):
    settings = {"policy": "model", "temperature": None, "limit": 2}
    bench.run(tmp_path / "out", **settings)
    bench.digest = "others"
    with pytest.raises(RunError, match="server_digest was 'server-digest' and is 'others'"):
        bench.run(tmp_path / "out", **settings)
    bench.digest = "server-digest"
    for parameter in model.parameters():
        parameter.data *= 1.5
    model.save_pretrained(small.model_name)
    with pytest.raises(RunError, match="model_digest was"):
        bench.run(tmp_path / "out", **settings)
    with pytest.raises(RunError, match="holds other files"):
        bench.run(tmp_path)


def test_a_line_that_was_changed_is_refused(bench, tmp_path):
    bench.run(tmp_path / "out", limit=4)
    path = tmp_path / "out" / "episodes.jsonl"
    path.write_text(path.read_text().replace('"steps": ', '"steps": 1', 1))
    with pytest.raises(RunError, match=r"episodes\.jsonl line 1 is not as it was written"):
        bench.run(tmp_path / "out", limit=4)


def test_two_evaluations_do_not_write_to_one_folder(bench, tmp_path):
    bench.run(tmp_path / "out")
    played = lines(tmp_path / "out")
    with held(tmp_path / "out"), pytest.raises(RunError, match="another process uses"):
        bench.run(tmp_path / "out", samples=2)
    assert lines(tmp_path / "out") == played


def test_lost_episodes_are_played_when_resumed(bench, tmp_path):
    bench.config = bench.config.override(max_lost_fraction=0.1)
    bench.client = FakeClient(failing={"eval-shop-0": 0})
    result = bench.run(tmp_path / "out")
    assert (result["episodes"], result["episodes_missing"]) == (11, 1)
    assert result["success"]["overall"]["success"]["n"] == 11
    bench.client = FakeClient()
    result = bench.run(tmp_path / "out")
    assert (result["episodes"], result["episodes_missing"]) == (12, 0)
    bench.client = FakeClient(failing={"eval-shop-0": 0, "eval-shop-1": 1})
    with pytest.raises(RolloutError, match=r"2 of 12 .* give the same command again"):
        bench.run(tmp_path / "other")
    assert len(lines(tmp_path / "other")) == 10


def test_one_sample_plays_what_a_training_job_measures(bench, small, tmp_path, monkeypatch):
    inputs = load_inputs(small, JobOptions(), training=False)
    client: Any = FakeClient()
    for name, settings, play in [
        ("random", {}, play_with(small, client, policy=RandomPolicy())),
        (
            "greedy",
            {"temperature": None},
            model_play(inputs.model, inputs.tokenizer, small, client, "greedy"),
        ),
        ("sampled", {}, model_play(inputs.model, inputs.tokenizer, small, client, "sampled")),
    ]:
        mode: Mode = "greedy" if name == "greedy" else "sampled"
        expected = evaluate(play, inputs.evaluation, inputs.book, mode=mode).episodes
        bench.run(tmp_path / name, policy="random" if name == "random" else "model", **settings)
        played = {one["question_id"]: one for one in lines(tmp_path / name)}
        assert len(played) == len(expected)
        for one in expected:
            line = played[one.question_id]
            known = json.loads(to_json(one.sealed()))
            # log-probabilities are for votes, which training has none of
            assert line == known | {name: line[name] for name in ("logprob", "sha256")}
        tokens = [one["sampled_tokens"] for one in played.values()]
        assert (min(tokens) > 0) == (name != "random")
    assert EvaluationSettings(config=small).seed == EVAL_SEED


def test_token_ids_through_a_server_give_the_episodes_of_the_model_in_this_process(
    bench, model, tokenizer, tmp_path
):
    base = bench.config.model_name
    bench.run(tmp_path / "local", policy="model", temperature=None)
    bench.config = bench.config.override(model_name="fake")
    with served(ModelBehind(model, tokenizer)) as behind:
        there = api(behind, api="completions", tokenizer=base, temperature=None)
        result = bench.run(tmp_path / "there", **there)
        assert result["model_server"]["requests"] == len(behind.prompts) > 12
        with pytest.raises(RunError, match="api was 'completions' and is 'chat'"):
            bench.run(tmp_path / "there", **{**there, "api": "chat", "tokenizer": None})
    local, other = (
        {one["question_id"]: (one["actions"], one["sampled_tokens"]) for one in lines(folder)}
        for folder in (tmp_path / "local", tmp_path / "there")
    )
    assert len(local) == 12
    assert other == local


def test_questions_are_chosen_by_database_and_difficulty(bench):
    groups = bench.run(databases=("farm", "shop"))["success"]
    assert list(groups["by_database"]) == ["farm", "shop"]
    assert bench.run(limit=5)["questions"] == 5
    bench.config = bench.config.override(difficulty_filter="hard")
    assert list(bench.run()["success"]["by_difficulty"]) == ["hard"]
    with pytest.raises(ConfigError, match="no eval question of database 'ship'"):
        bench.run(databases=("ship",))


def test_two_evaluations_are_compared_in_pairs(bench, fake, chat, tmp_path):
    before = bench.run(tmp_path / "before", **api(chat))
    chat.complete = lambda body: ChatServer.complete(chat, body)  # type: ignore[method-assign]
    chat.answer = lambda messages: RIGHT
    result = bench.run(tmp_path / "after", **api(chat, seed=9), against=tmp_path / "before")
    paired = result["paired"]
    wrong = 12 - round(12 * before["success"]["overall"]["success"]["rate"])
    assert 0 < wrong < 12
    overall = paired["overall"]
    assert (overall["gained"], overall["lost"], overall["n"]) == (wrong, 0, 12)
    assert overall["p_value"] == pytest.approx(min(1.0, 2 * 0.5**wrong))
    assert paired["seen"]["n"] + paired["unseen"]["n"] == 12
    assert paired["differs"] == {"seed": {"before": EVAL_SEED, "after": 9}}
    assert "question by question" in bench.output
    same = bench.run(tmp_path / "after", **api(chat, seed=9), against=tmp_path / "after")
    assert same["paired"]["overall"]["p_value"] == 1.0
    assert same["paired"]["differs"] == {}


def test_only_the_attempts_that_were_asked_for_are_compared(bench, tmp_path):
    for samples in (3, 2):
        bench.run(tmp_path / "out", samples=samples)
    assert {one.played for one in read_measured(tmp_path / "out").tries.values()} == {2}


def test_incomparable_measurements_are_refused_before_playing(bench, tmp_path):
    bench.run(tmp_path / "farm", databases=("farm",))
    with pytest.raises(RunError, match="has none of these questions"):
        bench.run(tmp_path / "out", databases=("shop",), against=tmp_path / "farm")
    path = tmp_path / "farm" / "config.json"
    digest = json.loads(path.read_text())["data_digest"]
    path.write_text(path.read_text().replace(digest, "0" * 64))
    with pytest.raises(RunError, match="was measured on other data"):
        bench.run(tmp_path / "out", against=tmp_path / "farm")
    assert not (tmp_path / "out" / "episodes.jsonl").exists()
    (tmp_path / "farm" / "episodes.jsonl").unlink()
    with pytest.raises(RunError, match="no finished episode"):
        bench.run(tmp_path / "out", against=tmp_path / "farm")
