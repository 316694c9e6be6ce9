"""A model server that is busy, broken, unreachable or refuses: retries and error messages."""

import signal
import socket

import pytest

from shared.errors import SQLEnvError
from tests.trainer.chat_server import AT_ONCE, ChatServer, refusal
from tests.trainer.conftest import FakeClient
from tests.trainer.rollout.generators.conftest import TURNS, act, policy_of, view_of
from trainer.config import GRPOConfig
from trainer.errors import ModelServerError, RolloutError
from trainer.rollout.dataset import prompt_of
from trainer.rollout.generators.openai import OpenAIPolicy
from trainer.rollout.loop import play_episodes


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_busy_server_is_asked_again_and_given_up_for_one_text_at_last(
    chat: ChatServer, status: int
) -> None:
    chat.faults += [refusal(status, "busy", AT_ONCE)] * 2
    with policy_of(chat) as policy:
        assert act(policy, [view_of()]) == [TURNS[0]]
        assert (len(chat.requests), policy.usage.retries, policy.usage.requests) == (3, 2, 1)
        chat.faults += [refusal(status, "busy", AT_ONCE)] * 3
        [error] = act(policy, [view_of()])  # not raised: the next request may be answered
    assert isinstance(error, SQLEnvError)
    assert "failed 3 times" in error.message
    assert (len(chat.requests), policy.usage.failed) == (6, 1)


def test_a_broken_connection_is_tried_again(chat: ChatServer) -> None:
    chat.faults.append((0, None, {}))
    with policy_of(chat) as policy:
        assert act(policy, [view_of()]) == [TURNS[0]]
    assert policy.usage.retries == 1


def test_one_request_that_always_fails_loses_its_episode_and_no_other(
    chat: ChatServer, config: GRPOConfig
) -> None:
    chat.faults += [refusal(500, "out of memory", AT_ONCE)] * 3
    prompts = [prompt_of(name, "?", config) for name in "ab"]
    with policy_of(chat, concurrency=1) as policy:
        rows = play_episodes(
            prompts, None, None, config, client=FakeClient(), policy=policy, check_lost=False
        )
        assert [row.outcome for row in rows] == ["infra_failed", "correct"]
        assert "out of memory" in rows[0].lost
        assert chat.url in rows[0].lost
        assert rows[0].correctness is None
        assert policy.usage.failed == 1
        chat.faults += [refusal(500, "out of memory", AT_ONCE)] * 6
        with pytest.raises(RolloutError, match="2 of 2"):
            play_episodes(prompts, None, None, config, client=FakeClient(), policy=policy)


def test_a_request_may_take_so_long(chat: ChatServer) -> None:
    chat.delay_s = 0.5
    with policy_of(chat, timeout_s=0.05, max_attempts=1) as policy:
        [error] = act(policy, [view_of()])
    assert isinstance(error, SQLEnvError)
    assert "no answer in 0.05 s" in error.message


def test_nobody_there_is_said_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with OpenAIPolicy("fake", url, max_attempts=1) as policy:
            with pytest.raises(
                ModelServerError, match=f"no connection to the model server at {url}"
            ):
                act(policy, [view_of(), view_of()])
            with pytest.raises(ModelServerError, match="no connection"):
                policy.check()


def test_a_refused_key_names_the_variable(chat: ChatServer) -> None:
    chat.key = "right"
    with policy_of(chat, api_key="wrong") as policy:
        with pytest.raises(
            ModelServerError, match=r"refuses the API key.*Incorrect API key.*OPENAI_API_KEY"
        ):
            act(policy, [view_of()])
        with pytest.raises(ModelServerError, match="refuses the API key"):
            policy.check()
    assert len(chat.requests) == 0
    with policy_of(chat, api_key="right") as policy:
        policy.check()


def test_a_model_that_is_not_there_is_named(chat: ChatServer) -> None:
    with OpenAIPolicy("other", chat.url) as policy:
        with pytest.raises(ModelServerError, match=r"has no model 'other'.*/models"):
            act(policy, [view_of()])
        with pytest.raises(ModelServerError, match=r"no model 'other'; it has fake: .*--model"):
            policy.check()
    assert len(chat.requests) == 1  # not tried again


def test_a_server_without_chat_completions_is_told_what_to_use(chat: ChatServer) -> None:
    chat.paths = {"/v1/completions"}
    with (
        policy_of(chat) as policy,
        pytest.raises(
            ModelServerError, match=r"no /chat/completions .*use --api completions, .*/v1"
        ),
    ):
        act(policy, [view_of()])
    assert len(chat.requests) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        # vLLM up to 0.9, vLLM now, FastAPI's own, llama.cpp, SGLang, text
        (400, {"object": "error", "message": "no such thing", "type": "BadRequest", "code": 400}),
        (400, {"error": {"message": "no such thing", "type": "BadRequestError", "code": 400}}),
        (422, {"detail": [{"loc": ["body"], "msg": "no such thing", "type": "value_error"}]}),
        (501, {"error": {"code": 501, "message": "no such thing", "type": "not_supported_error"}}),
        (400, {"object": "error", "message": {"reason": "no such thing"}}),
        (418, "no such thing"),
    ],
)
def test_the_error_bodies_of_servers_and_their_versions_are_shown(
    chat: ChatServer, status: int, body: object
) -> None:
    chat.faults += [(status, body, AT_ONCE)] * 3
    with policy_of(chat) as policy:
        try:
            [error] = act(policy, [view_of()])
        except ModelServerError as fatal:
            error = fatal
    assert isinstance(error, ModelServerError)
    assert "no such thing" in error.message
    assert chat.url in error.message
    assert "\n" not in error.message


def test_another_bad_request_is_raised_with_the_servers_words(chat: ChatServer) -> None:
    chat.faults.append(refusal(400, "temperature must be 1", param="temperature"))
    with (
        policy_of(chat) as policy,
        pytest.raises(ModelServerError, match=r"400: .*temperature must be 1"),
    ):
        act(policy, [view_of()])


@pytest.mark.parametrize("body", ["<html>hello</html>", {"hello": 1}, {"choices": []}])
def test_what_is_no_completion_is_said(chat: ChatServer, body: object) -> None:
    chat.faults.append((200, body, {}))
    with policy_of(chat) as policy, pytest.raises(ModelServerError, match=r"/v1"):
        act(policy, [view_of()])


@pytest.mark.timeout(30)
def test_an_interruption_does_not_wait_for_the_server(chat: ChatServer) -> None:
    chat.delay_s = 300.0

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with policy_of(chat) as policy, pytest.raises(KeyboardInterrupt):
            act(policy, [view_of(), view_of()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    chat.delay_s = 0.0
    with policy_of(chat) as policy:
        assert act(policy, [view_of()]) == [TURNS[0]]
