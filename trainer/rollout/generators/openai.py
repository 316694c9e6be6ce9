"""Policies played by chat completions of an OpenAI-compatible server: vLLM, llama.cpp, Ollama or a
hosted API; `ToolPolicy` by tool calls (`--api tools`).

Each turn is one chat completion of the conversation so far, in the messages that a local model
reads. The server renders them with its own chat template and returns text, so these episodes have
no ids to train on. A conversation longer than the server's context window is cut to the question
and its last turns.
"""

import json
from functools import cache
from typing import Any

from shared.agents.tools import SQLEnvTools
from shared.errors import SQLEnvError
from trainer.errors import ModelServerError
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.model_server import ContextOverflow, ModelServer
from trainer.rollout.parsing import TOOL_CALL, first_turn, without_half_pairs, without_thinking
from trainer.rollout.tokens import KEPT_PAIRS

Messages = list[dict[str, Any]]
TOOLS = ("describe", "sample", "query", "answer")
TOOL_CALL_END = "\n</tool_call>"


def cut_down(messages: Messages) -> list[Messages]:
    """Return shorter forms of a conversation: the system prompt, the question, and the last
    `KEPT_PAIRS` pairs of a text and its observation, then fewer, down to 1."""
    pairs = len(messages) // 2 - 1
    most = min(KEPT_PAIRS, pairs - 1)
    return [messages[:2] + messages[-2 * kept :] for kept in range(most, 0, -1)]


class OpenAIPolicy(ModelServer):
    """Plays by chat completions; `connection` is passed to `ModelServer`.

    If `temperature` is above 0, each request has a seed from its episode's own stream, so a server
    that honours it repeats its texts. `thinking` is passed to the server's chat template; a turn's
    thinking is in its text, within <think> tags, whether the server separates it or not.
    """

    endpoint = "chat.completions"
    alternative = "--api completions"

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        one_action_per_turn: bool = True,
        thinking: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(model, base_url, **connection)
        self._thinking = thinking
        self._one_action_per_turn = one_action_per_turn
        self._options["chat_template_kwargs"] = {"enable_thinking": thinking}

    async def act_one(self, view: EpisodeView) -> str | SQLEnvError | None:
        """Return the next text of an episode; None if not even the last turn fits the model's
        context window. `ModelServerError` is returned if all attempts at this request failed, and
        raised for what every request would meet."""
        seed = {"seed": int(view.rng.integers(2**31))} if self._seeded else {}
        # old turns without their thinking: templates that know thinking drop it too
        whole: Messages = [
            {**one, "content": without_thinking(one["content"])}
            if one["role"] == "assistant"
            else one
            for one in view.messages
        ]
        for messages in (whole, *cut_down(whole)):
            try:
                reply = await self._ask({"messages": self._shown(messages)}, seed)
            except ContextOverflow:
                continue
            if isinstance(reply, ModelServerError):
                return reply
            self.usage.truncations += messages is not whole
            if usage := reply.usage:
                view.prompt_tokens += usage.prompt_tokens or 0
                view.sampled_tokens += usage.completion_tokens or 0
            return without_half_pairs(self._text(reply.choices[0]))
        self.usage.overflows += 1
        return None

    def _shown(self, messages: Messages) -> Messages:
        """Return a conversation as the server gets it."""
        return messages

    def _text(self, choice: Any) -> str:
        """Return what the model wrote; its thinking is at the start, within <think> tags."""
        message = choice.message
        text: str = message.content or ""
        thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        mistaken = thought and not (text or message.tool_calls or self._thinking)
        if mistaken and choice.finish_reason != "length":
            return str(thought)  # vLLM's parsers may take a text without thinking for thinking
        if thought:
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        # the server goes on to the model's own end of the turn
        cuts = self._one_action_per_turn and not message.tool_calls
        turn = first_turn(text) if cuts else None
        # with its newline, which a turn of sampled ids keeps too
        return text if turn is None else turn + "\n"


@cache
def tool_schemas() -> list[dict[str, Any]]:
    """Return the tools as the API takes them, made of the methods that TRL's loop calls."""
    from transformers.utils import get_json_schema

    tools = SQLEnvTools(None)  # type: ignore[arg-type]  # nothing is called
    schemas = [get_json_schema(getattr(tools, name)) for name in TOOLS]
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
    return f"{before}\n{TOOL_CALL}\n{call}{TOOL_CALL_END}".lstrip("\n")


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
        call = json.loads(rest.removesuffix(TOOL_CALL_END))
        name, arguments = call["name"], call["arguments"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    known = tag and name in TOOLS and isinstance(arguments, dict)
    return (content.removesuffix("\n"), name, arguments) if known else None


class ToolPolicy(OpenAIPolicy):
    """Plays by tool calls.

    The first call of a reply is the turn; its text is the call as models write it, `<tool_call>`
    and JSON, so that transcripts show it and `parse_with_fallback` reads it. A reply without a call
    is played as text.
    """

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
        function = calls[0].function
        visible = without_thinking(text)
        before = text.removesuffix(visible) + visible.split(TOOL_CALL)[0]
        return call_text(function.name, function.arguments, before)
