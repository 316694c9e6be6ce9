"""A model server that takes time and no CPU: random actions, each after a random wait."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "slow"
ACTIONS = ("QUERY: SELECT 1", "QUERY: SELECT 2", "QUERY: SELECT 3", "QUERY: SELECT 4", "ANSWER: 5")


def reply_to(body: dict[str, Any], mean_s: float, tokenizer: Any) -> dict[str, Any]:
    """Wait, exponentially distributed, and write an action; both follow from the request's seed."""
    drawn = random.Random(body["seed"])
    time.sleep(drawn.expovariate(1 / mean_s))
    text = drawn.choice(ACTIONS)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if "messages" in body:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        choice |= {"text": text, "token_ids": ids}
        choice["logprobs"] = {"token_logprobs": [-1.0] * len(ids)}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    fields = {"id": "c", "object": "completion", "created": 0, "model": NAME}
    return {**fields, "choices": [choice], "usage": usage}


@contextmanager
def slow_model(mean_s: float, tokenizer: Any = None) -> Iterator[str]:
    """Serve the model `NAME` for the block; yield the URL. Ids need a `tokenizer`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(reply_to(body, mean_s, tokenizer)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
