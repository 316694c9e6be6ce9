"""Tool calls of an OpenAI-compatible server: what it is offered, plays and reads again."""

import json
from typing import Any

import pytest

from tests.trainer.chat_server import ChatServer, Messages, refusal, served, tool_call
from tests.trainer.conftest import observation
from tests.trainer.rollout.generators.conftest import act, acted, play, seen, view_of
from trainer.config import GRPOConfig
from trainer.errors import ModelServerError
from trainer.rollout.generators.openai import TOOLS, ToolPolicy, call_text, with_tool_calls
from trainer.rollout.parsing import parse_with_fallback
from trainer.rollout.prompts import get_system_prompt
from trainer.rollout.served import served_model

SQL = "SELECT COUNT(*)\nFROM orders -- ANSWER: 3\nWHERE name = '```'"


TURNS = [
    tool_call("describe", {"table": "orders"}),
    tool_call("query", {"sql": SQL}, "I count them.\nQUERY: SELECT 7"),
    "Let me think about it.",
    tool_call("answer", {"answer": 42}),
]


def in_turn(messages: Messages) -> Any:
    return TURNS[sum(message["role"] == "assistant" for message in messages)]


@pytest.fixture
def config(config: GRPOConfig) -> GRPOConfig:
    return config.override(system_prompt="tools", model_name="fake")


def test_the_calls_of_a_model_are_played(config: GRPOConfig) -> None:
    with served(ChatServer(in_turn)) as chat:
        model = served_model(config, chat.url, "tools")
        [row] = play(model.policy, config, "a")
        usage = model.server.usage
    assert row.outcome == "correct"
    thought = "QUERY: Let me think about it."
    assert row.actions == ["DESCRIBE: orders", f"QUERY: {SQL}", thought, "ANSWER: 42"]
    assert (row.parse_failures, usage.requests) == (1, 4)

    for request in chat.requests:
        assert [tool["function"]["name"] for tool in request["tools"]] == list(TOOLS)
        assert request["parallel_tool_calls"] is False
        for tool in request["tools"]:
            described = tool["function"]["parameters"]["properties"].values()
            assert tool["function"]["description"]
            assert all(one["description"] for one in described)
    system, question, first, result, second, rows, text, error = chat.requests[-1]["messages"]
    assert system["content"] == get_system_prompt("tools")
    assert question["role"] == "user"
    [described] = first["tool_calls"]
    assert first["content"] == ""
    assert described["function"] == {"name": "describe", "arguments": '{"table": "orders"}'}
    assert result["role"] == rows["role"] == "tool"
    assert result["tool_call_id"] == described["id"] != second["tool_calls"][0]["id"]
    assert "Steps left:" in result["content"]
    assert second["content"] == "I count them.\nQUERY: SELECT 7"
    assert json.loads(second["tool_calls"][0]["function"]["arguments"]) == {"sql": SQL}
    assert text == {"role": "assistant", "content": "Let me think about it."}
    assert error["role"] == "user"
    shown = row.transcript
    assert [one["content"] for one in shown if one["role"] == "user"] == [
        one["content"] for one in (question, result, rows, error)
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "action", "kept"),
    [
        ("query", {"sql": SQL}, f"QUERY: {SQL}", True),
        ("answer", {"answer": [["Ann", 3]]}, 'ANSWER: [["Ann", 3]]', True),
        ("answer", "42", "ANSWER: 42", False),
        ("query", "SELECT 1", "QUERY: SELECT 1", False),
        ("describe_table", {"name": "orders"}, "DESCRIBE: orders", False),
        ("drop", {"table": "orders"}, None, False),
        ("query", {}, None, True),
        ("query", "{", "QUERY: {", False),
        ("sample", None, None, False),
    ],
)
def test_odd_calls(name: str, arguments: Any, action: str | None, kept: bool) -> None:
    """A call that names no action is shown to the model as it is, with the error that it gave."""
    given = json.dumps(arguments) if isinstance(arguments, dict) else arguments
    text = call_text(name, given, "Before.")
    parsed = parse_with_fallback(text)
    kind = parsed.action.action_type
    assert parsed.fallback == (action is None)
    assert action in (None, f"{kind}: {parsed.action.argument}")
    turns = [{"role": "assistant", "content": text}, {"role": "user", "content": "seen"}]
    shown, after = with_tool_calls(turns)
    assert ("tool_calls" in shown) == (after["role"] == "tool") == kept
    assert shown["content"] == ("Before." if kept else text)


@pytest.mark.parametrize(
    "turn",
    [
        tool_call("query", {"sql": "SELECT '\ud83d'"}),  # written as an escape
        '<tool_call>\n{"name": "query", "arguments": {"sql": "SELECT \'\\ud83d\'"}}\n</tool_call>',
        "QUERY: SELECT '\ud83d'",
    ],
)
def test_half_a_surrogate_pair_ends_no_episode(config: GRPOConfig, turn: Any) -> None:
    turns = [turn, "ANSWER: 42"]
    with served(ChatServer(lambda messages: turns[len(messages) // 2 - 1])) as chat:
        [row] = play(served_model(config, chat.url, "tools").policy, config, "a")
    assert (row.outcome, row.actions) == ("correct", ["QUERY: SELECT '?'", "ANSWER: 42"])
    json.dumps(row.transcript, ensure_ascii=False).encode()  # as the run's files hold it


def test_thinking_before_a_call_is_in_the_text_and_not_in_the_history(config: GRPOConfig) -> None:
    view = view_of()
    with served(ChatServer(lambda messages: tool_call("describe", {"table": "t"}))) as chat:
        chat.message = {"reasoning_content": "I look first, by <tool_call>."}
        policy = ToolPolicy("fake", chat.url, temperature=0, thinking=True)
        [text] = act(policy, [view])
        assert isinstance(text, str)
        acted(view, text)
        seen(view, observation(1, 5))
        act(policy, [view])
    assert text.startswith("<think>\nI look first, by <tool_call>.\n</think>\n\n")
    assert parse_with_fallback(text).action.argument == "t"
    *_, turn, _ = chat.requests[-1]["messages"]
    assert turn["tool_calls"]
    assert turn["content"] == ""


def test_a_server_without_tools_is_named_with_its_words(config: GRPOConfig) -> None:
    with served(ChatServer(lambda messages: "ANSWER: 1")) as chat:
        chat.faults += [
            refusal(400, "unknown field parallel_tool_calls"),
            refusal(400, '"auto" tool choice requires --enable-auto-tool-choice'),
        ]
        with pytest.raises(ModelServerError, match="enable-auto-tool-choice"):
            act(ToolPolicy("fake", chat.url, temperature=0), [view_of()])
    assert "parallel_tool_calls" not in chat.requests[-1]
