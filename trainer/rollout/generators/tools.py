"""A policy played by tool calls of an OpenAI-compatible server (`--api tools`).

Every request offers the tools describe, sample, query and answer. The first call of a reply is the
turn; its text is the call as models write it, `<tool_call>` and JSON, so that transcripts show it
and `parse_with_fallback` reads it. A reply without a call is played as text, as with `--api chat`.
"""

import json
from functools import cache
from typing import Any

from shared.agents.tools import SQLEnvTools
from trainer.rollout.generators.openai import Messages, OpenAIPolicy
from trainer.rollout.parsing import TOOL_CALL, without_half_pairs, without_thinking

NAMES = ("describe", "sample", "query", "answer")
_END = "\n</tool_call>"


@cache
def tool_schemas() -> list[dict[str, Any]]:
    """Return the tools as the API takes them, made of the methods that TRL's loop calls."""
    from transformers.utils import get_json_schema

    tools = SQLEnvTools(None)  # type: ignore[arg-type]  # nothing is called
    schemas = [get_json_schema(getattr(tools, name)) for name in NAMES]
    for schema in schemas:
        schema["function"].pop("return", None)  # no field of the API's
        schema["function"]["parameters"]["additionalProperties"] = False
    return schemas


def call_text(name: Any, arguments: Any, before: str = "") -> str:
    """Return a turn's text: what the model wrote `before` a tool call, and the call.

    `arguments` are JSON, or a text that should be.
    """
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        value = arguments
    call = json.dumps({"name": name, "arguments": value}, ensure_ascii=False)
    return f"{before}\n{TOOL_CALL}\n{call}{_END}".lstrip("\n")


def with_tool_calls(messages: Messages) -> Messages:
    """Return a conversation in which a turn whose text is a call is one, and the message after it
    is the call's result."""
    shown: Messages = []
    for number, message in enumerate(messages):
        before = shown[-1] if shown else {}
        if "tool_calls" in before:
            call_id = before["tool_calls"][0]["id"]
            shown.append({"role": "tool", "tool_call_id": call_id, "content": message["content"]})
        elif message["role"] == "assistant" and (call := _call_of(message["content"])):
            content, name, arguments = call
            spelled = without_half_pairs(json.dumps(arguments, ensure_ascii=False))
            function = {"name": name, "arguments": spelled}
            # Mistral's templates take ids of nine letters and digits only
            calls = [{"id": f"call{number:05d}", "type": "function", "function": function}]
            shown.append({"role": "assistant", "content": content, "tool_calls": calls})
        else:
            shown.append(message)
    return shown


def _call_of(text: str) -> tuple[str, str, dict[str, Any]] | None:
    """Return the text before a turn's call, its name and its arguments; None if it is not one that
    every server takes back."""
    content, tag, rest = text.rpartition(f"{TOOL_CALL}\n")
    try:
        call = json.loads(rest.removesuffix(_END))
        name, arguments = call["name"], call["arguments"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    known = tag and name in NAMES and isinstance(arguments, dict)
    return (content.removesuffix("\n"), name, arguments) if known else None


class ToolPolicy(OpenAIPolicy):
    """Plays by tool calls; see `OpenAIPolicy`."""

    alternative = "--api chat"

    def __init__(self, model: str, base_url: str, **options: Any) -> None:
        super().__init__(model, base_url, **options)
        self._options |= {"tools": tool_schemas(), "parallel_tool_calls": False}

    def _shown(self, messages: Messages) -> Messages:
        return with_tool_calls(messages)

    def _text(self, choice: Any) -> str:
        text, calls = super()._text(choice), choice.message.tool_calls
        if not calls:
            return text
        self.usage.tool_calls += 1
        function = calls[0].function
        visible = without_thinking(text)
        before = text.removesuffix(visible) + visible.split(TOOL_CALL)[0]
        return call_text(function.name, function.arguments, before)
