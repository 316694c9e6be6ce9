"""A model that other trainers' runners ask over HTTP: it plays a script, as texts or tool calls."""

import json
from typing import Any

from tests.trainer.chat_server import ChatServer, Fault


class StreamingChat(ChatServer):
    """Streams a completion as server-sent events if the request asks for it."""

    def complete(self, body: dict[str, Any]) -> Fault:
        read = [{**message, "content": message.get("content") or ""} for message in body["messages"]]
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
