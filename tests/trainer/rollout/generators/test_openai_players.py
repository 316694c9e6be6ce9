"""A policy behind an OpenAI-compatible server: requests, thinking, full contexts, and servers that
are busy, broken, unreachable or refuse."""

import json
import signal
import socket

import pytest

from tests.trainer.chat_server import AT_ONCE, Fault, refusal
from tests.trainer.conftest import observation
from tests.trainer.rollout.generators.conftest import TURNS, act, play, policy_of, seen, view_of
from trainer.config.settings import ConfigError
from trainer.errors import ModelServerError, RolloutError
from trainer.rollout.generators.openai_players import OpenAIPolicy

BROKEN: Fault = (0, None, {})  # connection


def test_episodes_are_played_and_the_server_reads_what_a_local_model_would(chat, config):
    policy = policy_of(chat)
    rows = play(policy, config, "aba")
    assert [row.outcome for row in rows] == ["correct"] * 3
    assert [row.texts for row in rows] == [TURNS] * 3
    assert [row.actions[1] for row in rows] == ["QUERY: SELECT COUNT(*) FROM orders"] * 3
    last = [body["messages"] for body in chat.requests if len(body["messages"]) == 6]
    # system, then three observations with two texts between
    assert last == [row.transcript[:6] for row in rows]
    assert policy.usage.requests == len(chat.requests) == 9
    assert policy.usage.completion_tokens == 3 * sum(len(text.split()) for text in TURNS)
    assert policy.usage.prompt_tokens == sum(
        len(message["content"].split()) for body in chat.requests for message in body["messages"]
    )


def test_requests_carry_the_settings_and_the_key(chat, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    policy = policy_of(chat, temperature=0.5, max_tokens=33, thinking=True)
    assert act(policy, [view_of()]) == [TURNS[0]]
    act(policy_of(chat, temperature=0), [view_of()])
    sampled, greedy = chat.requests
    assert (sampled["model"], sampled["temperature"], sampled["max_tokens"]) == ("fake", 0.5, 33)
    assert isinstance(sampled["seed"], int)
    assert greedy["temperature"] == 0
    assert "seed" not in greedy
    thinks = [body["chat_template_kwargs"]["enable_thinking"] for body in chat.requests]
    assert thinks == [True, False]
    assert chat.keys == ["Bearer secret"] * 2


@pytest.mark.parametrize("one", [True, False])
def test_a_turn_ends_with_the_newline_after_its_first_action(chat, one):
    """As a turn of sampled ids does; the next turn reads it so."""
    wrote = "DESCRIBE: orders\nQUERY: SELECT 1\nANSWER: 1"
    chat.answer = lambda messages: wrote
    view, ended = view_of(), "DESCRIBE: orders\n" if one else wrote
    assert act(policy_of(chat, one_action_per_turn=one), [view]) == [ended]


def test_the_seed_follows_from_the_episodes_own_stream(chat):
    for _ in range(2):
        view, policy = view_of(), policy_of(chat)
        act(policy, [view])
        act(policy, [view])
    first, second, *again = [body["seed"] for body in chat.requests]
    assert first != second
    assert again == [first, second]


def test_at_most_so_many_requests_at_once_and_replies_keep_their_order(chat):
    chat.delay_s = 0.02
    chat.answer = lambda messages: "ANSWER: " + messages[-1]["content"].split("\n")[0]
    views = [view_of() for _ in range(12)]
    for number, view in enumerate(views):
        seen(view, observation(1, 5, result=str(number)))
    assert act(policy_of(chat, concurrency=4), views) == [f"ANSWER: {n}" for n in range(12)]
    assert 2 <= chat.most_in_flight <= 4


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Unknown parameters: chat_template_kwargs, top_k"}},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "chat_template_kwargs"]}]},
        {"detail": "Unexpected keys in the request: {'chat_template_kwargs', 'top_k'}"},
    ],
)
def test_parameters_that_a_server_does_not_know_are_left_out_with_one_warning(chat, body, caplog):
    name = "chat_template_kwargs"
    answer, refused = chat.complete, (422 if "detail" in body else 400, body, dict[str, str]())
    chat.complete = lambda sent: refused if name in sent else answer(sent)  # type: ignore[method-assign]
    policy = policy_of(chat, concurrency=2)
    assert act(policy, [view_of(), view_of()]) == [TURNS[0]] * 2
    assert act(policy, [view_of()]) == [TURNS[0]]
    assert len(chat.requests) <= 5
    assert sum(name in body for body in chat.requests) == len(chat.requests) - 3
    assert sum(f"accepts no {name}" in record.message for record in caplog.records) == 1
    assert ("top_k" in chat.requests[-1]) == ("top_k" not in str(body))


def test_parameters_that_a_server_refuses_are_left_out_or_renamed(chat):
    chat.faults += [
        refusal(400, "Unsupported parameter: use 'max_completion_tokens'", param="max_tokens"),
        refusal(400, "Unsupported parameter", param="seed"),
    ]
    policy = policy_of(chat, max_tokens=9)
    for _ in range(2):
        assert act(policy, [view_of()]) == [TURNS[0]]
    assert len(chat.requests) == 4  # refused only once
    for body in chat.requests[2:]:
        assert body["max_completion_tokens"] == 9
        assert not {"max_tokens", "seed"} & body.keys()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_that_the_server_separates_is_in_the_text_and_not_in_the_history(
    chat, config, field
):
    chat.message = {field: "I look first."}
    policy = policy_of(chat, thinking=True)
    [row] = play(policy, config, "a")
    assert row.texts == [f"<think>\nI look first.\n</think>\n\n{text}" for text in TURNS]
    assert row.parse_failures == 0
    shown = [message["content"] for message in chat.requests[-1]["messages"]]
    assert [text for text in shown if text in TURNS] == TURNS[:2]
    assert not any("think" in text for text in shown)


def test_a_text_that_the_server_takes_for_thinking_is_the_text(chat):
    """vLLM's parsers do so where no thinking was asked for; a cut thought is no text."""
    chat.answer, chat.message = lambda messages: None, {"reasoning_content": "ANSWER: 42"}
    assert act(policy_of(chat), [view_of()]) == ["ANSWER: 42"]
    chat.finish_reason = "length"
    assert act(policy_of(chat), [view_of()]) == ["<think>\nANSWER: 42\n</think>\n\n"]


def test_a_conversation_that_overflows_goes_on_with_the_question_and_its_last_pairs(chat):
    """The server accepts 6 messages: the system prompt, the question and two pairs."""
    answer = chat.complete
    full = refusal(400, "too long", code="context_length_exceeded")
    chat.complete = lambda body: answer(body) if len(body["messages"]) <= 6 else full  # type: ignore[method-assign]
    view, policy = view_of(turns=5), policy_of(chat)
    whole = view.row.transcript
    assert act(policy, [view]) == [TURNS[2]]
    sent = [whole, whole[:2] + whole[-6:], whole[:2] + whole[-4:]]
    assert [body["messages"] for body in chat.requests] == sent
    assert whole[-4]["content"] == "SAMPLE: t3"
    assert (policy.usage.truncations, policy.usage.overflows, policy.usage.requests) == (1, 0, 1)


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "This model's maximum context length is 9", "code": 400},
        {"error": {"message": "the request exceeds the available context size", "code": 400}},
        {"error": {"message": "However, the model's context length is only 9", "code": 400}},
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
    ],
)
def test_a_conversation_beyond_the_context_window_ends_the_episode(chat, config, body):
    """By the words of vLLM, llama.cpp, SGLang and OpenAI."""
    chat.faults.append((400, body, {}))
    policy = policy_of(chat)
    [row] = play(policy, config, "a")
    assert row.outcome == "abandoned"
    assert policy.usage.overflows == 1


def test_no_text_is_a_counted_fall_back_and_a_cut_text_is_counted(chat, config):
    chat.answer, chat.finish_reason = lambda messages: None, "length"
    policy = policy_of(chat)
    [row] = play(policy, config.override(step_budget=2), "a")
    assert (row.parse_failures, row.actions) == (2, ["QUERY: (empty)"] * 2)
    assert policy.usage.cut == 2


def test_half_a_surrogate_pair_ends_no_episode(chat, config):
    turns = ["QUERY: SELECT '\ud83d'", "ANSWER: 42"]
    chat.answer = lambda messages: turns[len(messages) // 2 - 1]
    [row] = play(policy_of(chat), config, "a")
    assert (row.outcome, row.actions) == ("correct", ["QUERY: SELECT '?'", "ANSWER: 42"])
    json.dumps(row.transcript, ensure_ascii=False).encode()  # as the run's files hold it


def test_an_address_is_a_whole_url():
    with pytest.raises(ConfigError, match="whole URL"):
        OpenAIPolicy("m", "host:8000")


@pytest.mark.parametrize(
    "fault", [*(refusal(n, "", AT_ONCE) for n in (408, 409, 429, 500)), BROKEN]
)
def test_a_request_that_fails_is_repeated(chat, fault):
    chat.faults += [fault] * 2
    policy = policy_of(chat)
    assert act(policy, [view_of()]) == [TURNS[0]]
    assert (len(chat.requests), policy.usage.retries, policy.usage.requests) == (3, 2, 1)


def test_one_request_that_always_fails_loses_its_episode_and_no_other(chat, config):
    chat.faults += [refusal(500, "out of memory", AT_ONCE)] * 3
    policy = policy_of(chat, concurrency=1)
    rows = play(policy, config, "ab", check_lost=False)
    assert [row.outcome for row in rows] == ["infra_failed", "correct"]
    assert "out of memory" in rows[0].lost
    assert chat.url in rows[0].lost
    assert rows[0].correctness is None
    chat.faults += [refusal(500, "out of memory", AT_ONCE)] * 6
    with pytest.raises(RolloutError, match="2 of 2"):
        play(policy, config, "ab")


def test_a_request_may_take_so_long(chat, monkeypatch):
    monkeypatch.setattr("trainer.rollout.generators.model_server.TIMEOUT_S", 0.05)
    chat.delay_s = 0.5
    [error] = act(policy_of(chat, max_attempts=1), [view_of()])
    assert "no answer in 0.05 s" in error.message


def test_nobody_there_is_said_with_the_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        policy = OpenAIPolicy("fake", url, max_attempts=1)
        with pytest.raises(ModelServerError, match=url):
            act(policy, [view_of(), view_of()])
        with pytest.raises(ModelServerError, match=url):
            policy.check()


def test_a_refused_key_names_the_variable(chat, monkeypatch):
    chat.key = "right"
    policy = policy_of(chat)
    with pytest.raises(ModelServerError, match=r"Incorrect API key.*OPENAI_API_KEY"):
        act(policy, [view_of()])
    with pytest.raises(ModelServerError, match="OPENAI_API_KEY"):
        policy.check()
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    policy_of(chat).check()


def test_a_model_that_is_not_there_is_named(chat):
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
def test_the_error_bodies_of_servers_are_shown(chat, status, body):
    chat.faults += [(status, body, AT_ONCE)] * 3
    with pytest.raises(ModelServerError, match=f"{chat.url}[^\n]*no such thing[^\n]*$"):
        act(policy_of(chat), [view_of()])


@pytest.mark.parametrize("body", ["<html>hello</html>", {"hello": 1}, {"choices": []}])
def test_what_is_no_completion_is_said(chat, body):
    chat.faults.append((200, body, {}))
    with pytest.raises(ModelServerError, match=r"/v1"):
        act(policy_of(chat), [view_of()])


@pytest.mark.timeout(30)
def test_an_interruption_does_not_wait_for_the_server(chat):
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
