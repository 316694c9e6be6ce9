"""A small OpenAI-compatible server on a real socket: its model is a Python function, and it can
fail on demand."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Messages = list[dict[str, str]]
Fault = tuple[int, Any, dict[str, str]]  # status, body, headers; status 0 breaks the connection
AT_ONCE = {"retry-after-ms": "1"}  # so that tests don't wait


def refusal(
    status: int, message: str, headers: dict[str, str] | None = None, **error: Any
) -> Fault:
    """Return an error as the protocol defines it."""
    return (
        status,
        {"error": {"message": message, "type": "test", "param": None, "code": None, **error}},
        headers or {},
    )


class ChatServer:
    """`answer(messages)` writes each completion, one token per word; `faults` are used up
    first, one a request.

    `requests` are the bodies in the order of arrival, `keys` the Authorization headers with them.
    `key`, where it is set, is the only one let in. Each completion takes `delay_s`.
    """

    def __init__(
        self, answer: Callable[[Messages], str | None], models: tuple[str, ...] = ("fake",)
    ) -> None:
        self.answer, self.models = answer, models
        self.faults: deque[Fault] = deque()
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.key: str | None = None
        self.delay_s = 0.0
        self.finish_reason = "stop"
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.url = ""

    def reply(self, path: str, body: dict[str, Any], key: str) -> Fault:
        if self.key is not None and key != f"Bearer {self.key}":
            return refusal(401, "Incorrect API key provided")
        if path == "/v1/models":
            return (
                200,
                {
                    "object": "list",
                    "data": [{"id": name, "object": "model"} for name in self.models],
                },
                {},
            )
        with self.lock:
            self.requests.append(body)
            self.keys.append(key)
            fault = self.faults.popleft() if self.faults else None
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            time.sleep(self.delay_s)
            return fault or self.complete(body)
        finally:
            with self.lock:
                self.in_flight -= 1

    def complete(self, body: dict[str, Any]) -> Fault:
        if body["model"] not in self.models:
            return refusal(
                404, f"The model `{body['model']}` does not exist", code="model_not_found"
            )
        text = self.answer(body["messages"])
        choice = {
            "index": 0,
            "finish_reason": self.finish_reason,
            "message": {"role": "assistant", "content": text},
        }
        read = sum(len(message["content"].split()) for message in body["messages"])
        wrote = len((text or "").split())
        usage = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
        fields = {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"]}
        return 200, {**fields, "choices": [choice], "usage": usage}, {}


@contextmanager
def served(chat: ChatServer) -> Iterator[ChatServer]:
    """Serve `chat` on a free port while the block lasts; `chat.url` ends in /v1."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send({})

        def do_POST(self) -> None:
            self.send(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def send(self, body: dict[str, Any]) -> None:
            status, content, headers = chat.reply(
                self.path, body, self.headers.get("Authorization", "")
            )
            if status == 0:
                self.close_connection = True
                self.connection.close()
                return
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            kind = "text/html" if isinstance(content, str) else "application/json"
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            # the client gave up, or the connection was closed here
            except (ConnectionError, ValueError):
                self.close_connection = True

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    chat.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
