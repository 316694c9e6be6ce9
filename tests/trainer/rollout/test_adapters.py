"""`rollout_func` with question texts, a plain model and a tokenizer, as in a notebook; and the wait
for its servers."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.dataset import data_digest
from shared.errors import DigestMismatch, ServerUnreachable, SQLEnvError
from shared.server_process import running_server
from tests.shared.client.test_diagnosis import other_program, wrong_urls
from tests.trainer.conftest import FakeClient
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import PromptError
from trainer.rollout import rollout_func, servers
from trainer.rollout.dataset import prompt_of
from trainer.rollout.loop import play_episodes
from trainer.rollout.row import RolloutStats

__all__ = ["other_program"]  # a fixture
TEXTS = ["How many orders cost more than 3.0?", "How many  members cost more than 0.0? "]
IDS = ["train-shop-2", "train-club-0"]


@pytest.fixture
def here(config: GRPOConfig, data_dir: Path) -> GRPOConfig:
    return config.override(data_dir=data_dir)


def test_question_texts_give_one_dict_per_prompt(model, tokenizer, here):
    model.train()
    stats = RolloutStats()
    results = rollout_func(TEXTS, model, tokenizer, here, client=FakeClient(), stats=stats)
    assert model.training
    assert stats.episodes == 2
    assert [one["question_id"] for one in results] == IDS
    assert [one["question"] for one in results] == [" ".join(text.split()) for text in TEXTS]
    for one in results:
        lengths = {len(one[name]) for name in ("completion_ids", "env_mask", "logprobs")}
        assert lengths == {len(one["completion_ids"])}
        assert one["prompt_ids"]
        assert one["correct"] is (one["outcome"] == "correct")
        assert one["transcript"][0]["role"] == "system"
    # the same episodes as those of the chat prompts that training uses
    chats = [prompt_of(name, "", here) for name in IDS]
    model.eval()
    rows = play_episodes(chats, model, tokenizer, here, client=FakeClient())
    assert [{**asdict(row), "question": one["question"], "correct": one["correct"]}
            for row, one in zip(rows, results, strict=True)] == results  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("How many orders cost more then 3.0?", "no question of .* has the text 'How many"),
        ("How many orders are red?", r"2 questions of .*\(a on shop, b on club\).*prompt_of"),
    ],
)
def test_a_text_of_no_question_or_of_several_is_refused(here, data_dir, text, message):
    path = data_dir / "questions" / "questions_eval.json"
    rows = json.loads(path.read_text())
    for name, database in (("a", "shop"), ("b", "club")):
        changes = {"question_id": name, "database_name": database}
        rows.append(rows[0] | changes | {"question_text": "How many orders are red?"})
    path.write_text(json.dumps(rows))
    with pytest.raises(PromptError, match=message):
        rollout_func([text], None, object(), here, client=FakeClient())


def test_what_is_missing_is_named(here):
    call: Any = rollout_func
    with pytest.raises(ValueError, match=r"functools\.partial"):
        call(TEXTS, object())
    with pytest.raises(ValueError, match="needs a tokenizer beside the model"):
        call(TEXTS, object(), config=here)
    with pytest.raises(PromptError, match="put the text into a list"):
        call(TEXTS[0], object(), object(), here)


@pytest.fixture(scope="module")
def server_url(tiny_data: Path) -> Iterator[str]:
    with running_server(tiny_data) as server:
        yield server.url


def test_it_plays_on_the_servers_of_the_config(
    model, tokenizer, config, here, tiny_data, server_url
):
    there = config.override(data_dir=tiny_data, server_urls=server_url)
    [one] = rollout_func(["How many customers are there?"], model, tokenizer, there)
    assert one["question_id"] == "shop-1"
    assert one["transcript"][1]["content"].startswith("Question: How many customers are there?")
    assert one["correct"] in (True, False)
    with pytest.raises(DigestMismatch, match=r"serves other data .* start it with --data"):
        rollout_func(TEXTS, model, tokenizer, here.override(server_urls=server_url))


def test_it_starts_a_server_where_the_default_one_does_not_serve_the_data(
    model, tokenizer, here, monkeypatch
):
    url = "http://127.0.0.1:9"
    monkeypatch.setattr("trainer.rollout.servers.DEFAULT_SERVER_URL", url)
    monkeypatch.setattr("trainer.rollout.servers.DEFAULT_READY_S", 0.1)
    results = rollout_func(TEXTS, model, tokenizer, here.override(server_urls=url))
    assert [one["question_id"] for one in results] == IDS
    assert all(one["lost"] is None for one in results)


def test_a_server_that_was_named_must_answer(model, tokenizer, here):
    nowhere = here.override(server_urls="http://127.0.0.1:9", server_wait_s=0.1)
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9"):
        rollout_func(TEXTS, model, tokenizer, nowhere)


def test_an_address_that_cannot_work_is_not_waited_for(other_program, here, monkeypatch):
    monkeypatch.setattr(servers, "ROUND_S", 0.5)
    for reason, url in wrong_urls(other_program).items():
        began = time.monotonic()
        with pytest.raises(SQLEnvError, match=reason):
            servers.check_servers(here.override(server_urls=url), "digest")
        assert time.monotonic() - began < 10


def test_a_server_that_starts_is_waited_for(here):
    digest = data_digest(here.data_dir)
    with running_server(here.data_dir) as server:
        config = here.override(server_urls=server.url, server_wait_s=60)
        server.stop()
        threading.Timer(0.5, server.start).start()
        assert servers.check_servers(config, digest).data_digest == digest


@pytest.mark.parametrize("away", [0, 2])
def test_the_first_server_is_waited_for(away, monkeypatch, caplog):
    """Each round has a client of its own, so that names are looked up again."""
    rounds: list[float] = []
    there = SimpleNamespace(data_digest="digest", standard="strict")

    class Client:
        def __init__(self, urls: list[str]) -> None:
            assert urls == ["http://env-server:8000"]

        def sync(self) -> "Client":
            return self

        def __enter__(self) -> "Client":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def wait_ready(self, timeout_s: float) -> None:
            rounds.append(timeout_s)
            if len(rounds) <= away:
                raise ServerUnreachable("nobody answers", url="http://env-server:8000")

        def metadata(self) -> Any:
            return there

    monkeypatch.setattr(servers, "SQLEnvClient", Client)
    config = GRPOConfig().override(server_urls="http://env-server:8000")
    with caplog.at_level(logging.WARNING):
        assert servers.check_servers(config, "digest") is there
    assert rounds == [servers.ROUND_S] * (away + 1)
    said = [line for line in caplog.messages if "waiting up to 600 s" in line]
    assert len(said) == away
    with pytest.raises(ConfigError, match="--standard spider"):
        servers.check_servers(config.override(standard="spider"), "digest")
