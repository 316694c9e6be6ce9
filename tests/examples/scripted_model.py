"""A model that other trainers' runners ask over HTTP: it plays a script, as texts or tool calls."""

import json
from collections.abc import Callable
from typing import Any

from tests.trainer.chat_server import COMPLETIONS, ChatServer, Fault, Messages, completion


class StreamingChat(ChatServer):
    """Streams a completion as server-sent events if the request asks for it."""

    def complete(self, body: dict[str, Any]) -> Fault:
        read = [
            {**message, "content": message.get("content") or ""} for message in body["messages"]
        ]
        status, reply, headers = super().complete({**body, "messages": read})
        if status != 200:
            return status, reply, headers
        reply["object"] = "chat.completion"
        if not body.get("stream"):
            return status, reply, headers
        return status, events(reply), {"Content-Type": "text/event-stream"}


def events(reply: dict[str, Any]) -> str:
    """Return a completion as the events of a stream: its message, its usage, the end."""
    fields = {key: reply[key] for key in ("id", "created", "model")}
    fields["object"] = "chat.completion.chunk"
    (choice,) = reply["choices"]
    delta = {"index": 0, "delta": choice["message"], "finish_reason": choice["finish_reason"]}
    chunks = [{**fields, "choices": [delta]}, {**fields, "choices": [], "usage": reply["usage"]}]
    lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines)


class ScriptedIds(ChatServer):
    """Completes token ids as vLLM does, in Qwen3's chat format: `answer` writes each turn."""

    def __init__(self, tokenizer: Any, answer: Callable[[Messages], Any]) -> None:
        super().__init__(answer)
        self.tokenizer = tokenizer
        self.paths = {COMPLETIONS}

    def complete_ids(self, body: dict[str, Any]) -> Fault:
        read = self.tokenizer.decode(body["prompt"])
        assistant = {"role": "assistant", "content": ""}
        past = [assistant] * read.count("<tool_response>\n")  # one call per turn
        wrote = self.answer(
            [{"role": "system", "content": ""}, {"role": "user", "content": read}, *past]
        )
        text = wrote if isinstance(wrote, str) else called(wrote)
        ids = self.tokenizer(f"{text}<|im_end|>").input_ids
        logprobs = {"tokens": [], "token_logprobs": [0.0] * len(ids)}
        choice = {"finish_reason": "stop", "text": text, "token_ids": ids, "logprobs": logprobs}
        return completion(choice, len(body["prompt"]), len(ids))


def called(message: dict[str, Any]) -> str:
    """Return a message's tool call in Qwen3's format."""
    function = message["tool_calls"][0]["function"]
    call = {"name": function["name"], "arguments": json.loads(function["arguments"])}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
