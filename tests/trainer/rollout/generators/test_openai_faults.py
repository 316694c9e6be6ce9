"""A model server that is busy, broken, unreachable or refuses: retries and error messages."""

import signal
import socket
from typing import Any

import pytest

from shared.errors import SQLEnvError
from tests.trainer.chat_server import AT_ONCE, ChatServer, Fault, refusal
from tests.trainer.rollout.generators.conftest import TURNS, act, play, policy_of, view_of
from trainer.config import GRPOConfig
from trainer.errors import ModelServerError, RolloutError
from trainer.rollout.generators.openai import OpenAIPolicy

BROKEN: Fault = (0, None, {})  # connection


@pytest.mark.parametrize(
    "fault", [*(refusal(n, "", AT_ONCE) for n in (408, 409, 429, 500)), BROKEN]
)
def test_a_request_that_fails_is_repeated(chat: ChatServer, fault: Fault) -> None:
    chat.faults += [fault] * 2
    policy = policy_of(chat)
    assert act(policy, [view_of()]) == [TURNS[0]]
    assert (len(chat.requests), policy.usage.retries, policy.usage.requests) == (3, 2, 1)


def test_one_request_that_always_fails_loses_its_episode_and_no_other(
    chat: ChatServer, config: GRPOConfig
) -> None:
    chat.faults += [refusal(500, "out of memory", AT_ONCE)] * 3
    policy = policy_of(chat, concurrency=1)
    rows = play(policy, config, "ab", check_lost=False)
    assert [row.outcome for row in rows] == ["infra_failed", "correct"]
    assert rows[0].lost is not None
    assert "out of memory" in rows[0].lost
    assert chat.url in rows[0].lost
    assert rows[0].correctness is None
    chat.faults += [refusal(500, "out of memory", AT_ONCE)] * 6
    with pytest.raises(RolloutError, match="2 of 2"):
        play(policy, config, "ab")


def test_a_request_may_take_so_long(chat: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.rollout.generators.model_server.TIMEOUT_S", 0.05)
    chat.delay_s = 0.5
    [error] = act(policy_of(chat, max_attempts=1), [view_of()])
    assert isinstance(error, SQLEnvError)
    assert "no answer in 0.05 s" in error.message


def test_nobody_there_is_said_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        policy = OpenAIPolicy("fake", url, max_attempts=1)
        with pytest.raises(ModelServerError, match=url):
            act(policy, [view_of(), view_of()])
        with pytest.raises(ModelServerError, match=url):
            policy.check()


def test_a_refused_key_names_the_variable(
    chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.key = "right"
    policy = policy_of(chat)
    with pytest.raises(ModelServerError, match=r"Incorrect API key.*OPENAI_API_KEY"):
        act(policy, [view_of()])
    with pytest.raises(ModelServerError, match="OPENAI_API_KEY"):
        policy.check()
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    policy_of(chat).check()


def test_a_model_that_is_not_there_is_named(chat: ChatServer) -> None:
    policy = OpenAIPolicy("other", chat.url)
    with pytest.raises(ModelServerError, match=r"'other'.*/models lists"):
        act(policy, [view_of()])
    with pytest.raises(ModelServerError, match=r"no model 'other'; it has fake: .*--model"):
        policy.check()
    assert len(chat.requests) == 1  # not tried again


@pytest.mark.parametrize(
    ("status", "body"),
    [
        # vLLM up to 0.9, vLLM now, FastAPI's own, llama.cpp, text
        (400, {"object": "error", "message": "no such thing", "type": "BadRequest", "code": 400}),
        (400, {"error": {"message": "no such thing", "type": "BadRequestError", "code": 400}}),
        (422, {"detail": [{"loc": ["body"], "msg": "no such thing", "type": "value_error"}]}),
        (501, {"error": {"code": 501, "message": "no such thing", "type": "not_supported_error"}}),
        (418, "no such thing"),
    ],
)
def test_the_error_bodies_of_servers_are_shown(chat: ChatServer, status: int, body: Any) -> None:
    chat.faults += [(status, body, AT_ONCE)] * 3
    with pytest.raises(ModelServerError, match=f"{chat.url}[^\n]*no such thing[^\n]*$"):
        act(policy_of(chat), [view_of()])


@pytest.mark.parametrize("body", ["<html>hello</html>", {"hello": 1}, {"choices": []}])
def test_what_is_no_completion_is_said(chat: ChatServer, body: object) -> None:
    chat.faults.append((200, body, {}))
    with pytest.raises(ModelServerError, match=r"/v1"):
        act(policy_of(chat), [view_of()])


@pytest.mark.timeout(30)
def test_an_interruption_does_not_wait_for_the_server(chat: ChatServer) -> None:
    chat.delay_s = 300.0

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    policy = policy_of(chat)
    try:
        with pytest.raises(KeyboardInterrupt):
            act(policy, [view_of(), view_of()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    chat.delay_s = 0.0
    assert act(policy, [view_of()]) == [TURNS[0]]
