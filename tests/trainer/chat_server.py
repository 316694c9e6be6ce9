"""Small OpenAI-compatible servers on a real socket: the model is a Python function or a tiny
transformer, and they can fail on demand."""

import copy
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trainer.grpo.generation import LOAD_ADAPTER, RESET_CACHE, RPC, UNLOAD_ADAPTER
from trainer.rollout.generators.local import LocalGenerator

Messages = list[dict[str, str]]
Fault = tuple[int, Any, dict[str, str]]  # status, body, headers; status 0 breaks the connection
AT_ONCE = {"retry-after-ms": "1"}  # so that tests don't wait
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def refusal(
    status: int, message: str, headers: dict[str, str] | None = None, **error: Any
) -> Fault:
    return (
        status,
        {"error": {"message": message, "type": "test", "param": None, "code": None, **error}},
        headers or {},
    )


class ChatServer:
    """`answer(messages)` writes each completion, one token per word, as a text or as a message's
    fields; `faults` are used up first, one a request.

    It has the endpoints `paths`. `requests` are the bodies in the order of arrival, `keys` the
    Authorization headers with them. `key`, where it is set, is the only one let in. `message` are
    more fields of every message, `listed` of every model. Each completion takes `delay_s`.
    """

    def __init__(
        self, answer: Callable[[Messages], Any], models: tuple[str, ...] = ("fake",)
    ) -> None:
        self.answer, self.models = answer, models
        self.faults: deque[Fault] = deque()
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.key: str | None = None
        self.paths = {CHAT}
        self.message: dict[str, Any] = {}
        self.listed: dict[str, Any] = {}
        self.delay_s = 0.0
        self.finish_reason = "stop"
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.url = ""

    def reply(self, path: str, body: dict[str, Any], key: str) -> Fault:
        if self.key is not None and key != f"Bearer {self.key}":
            return refusal(401, "Incorrect API key provided")
        if path == "/v1/models":
            listed = [{"id": name, "object": "model", **self.listed} for name in self.models]
            return 200, {"object": "list", "data": listed}, {}
        with self.lock:
            self.requests.append(body)
            self.keys.append(key)
            fault = self.faults.popleft() if self.faults else None
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            time.sleep(self.delay_s)
            if fault is None and path not in self.paths:
                return 404, {"detail": "Not Found"}, {}
            return fault or (self.complete(body) if path == CHAT else self.complete_ids(body))
        finally:
            with self.lock:
                self.in_flight -= 1

    def complete(self, body: dict[str, Any]) -> Fault:
        if body["model"] not in self.models:
            return refusal(
                404, f"The model `{body['model']}` does not exist", code="model_not_found"
            )
        wrote = self.answer(body["messages"])
        fields = wrote if isinstance(wrote, dict) else {"content": wrote}
        text = fields.get("content")
        choice = {
            "finish_reason": self.finish_reason,
            "message": {"role": "assistant", "content": text, **fields, **self.message},
        }
        read = sum(len(message["content"].split()) for message in body["messages"])
        return completion(choice, read, len((text or "").split()))

    def complete_ids(self, body: dict[str, Any]) -> Fault:
        raise NotImplementedError


def tool_call(name: str, arguments: Any, content: str | None = None) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": "x1", "type": "function", "function": function}]
    return {"content": content, "tool_calls": calls}


def completion(choice: dict[str, Any], read: int, wrote: int) -> Fault:
    usage = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
    fields = {"id": "c", "object": "completion", "created": 0, "model": "fake"}
    return 200, {**fields, "choices": [{"index": 0, **choice}], "usage": usage}, {}


class ModelBehind(ChatServer):
    """Serves a transformers model by both endpoints, with a context window of `window` tokens.

    Ids come back as vLLM returns them, or as llama.cpp does.
    """

    def __init__(self, model: Any, tokenizer: Any, window: int = 2048, ids: str = "vllm") -> None:
        super().__init__(lambda messages: None)
        self.model, self.tokenizer, self.window, self.ids = model, tokenizer, window, ids
        self.paths = {CHAT, COMPLETIONS}
        self.prompts: list[list[int]] = []  # what the model read, in the order of the requests
        self.one = threading.Lock()  # of torch's threads

    def complete(self, body: dict[str, Any]) -> Fault:
        prompt = self.tokenizer.apply_chat_template(
            body["messages"],
            add_generation_prompt=True,
            return_dict=False,
            **body.get("chat_template_kwargs", {}),
        )
        return self.generate(prompt, body, chat=True)

    def complete_ids(self, body: dict[str, Any]) -> Fault:
        return self.generate(body["prompt"], body, chat=False)

    def generate(
        self, prompt: list[int], body: dict[str, Any], chat: bool, model: Any = None
    ) -> Fault:
        if len(prompt) + body["max_tokens"] > self.window:
            return refusal(400, f"This model's maximum context length is {self.window} tokens")
        ends = self.model.generation_config.eos_token_id
        ends = frozenset([ends] if isinstance(ends, int) else ends)
        generator = LocalGenerator(
            model or self.model,
            ends,
            max_new_tokens=body["max_tokens"],
            max_context_tokens=self.window,
            temperature=body["temperature"] or 1.0,
            greedy=body["temperature"] == 0,
        )
        with self.one:
            self.prompts.append(prompt)
            generator.start([(body.get("seed", 0),)])
            sample = generator.sample({0: prompt})[0]
        text = self.tokenizer.decode(sample.ids, skip_special_tokens=True)
        choice: dict[str, Any] = {"finish_reason": "stop" if sample.ids[-1] in ends else "length"}
        if chat:
            choice["message"] = {"role": "assistant", "content": text}
        elif self.ids == "vllm":
            logprobs = {"tokens": [], "token_logprobs": sample.logprobs}
            choice |= {"text": text, "token_ids": sample.ids, "logprobs": logprobs}
        else:
            both = zip(sample.ids, sample.logprobs, strict=True)
            listed = [{"id": one, "token": "", "logprob": logprob} for one, logprob in both]
            choice |= {"text": text, "logprobs": {"content": listed}}
        return completion(choice, len(prompt), len(sample.ids))


class VLLM(ModelBehind):
    """vLLM, which loads weights while it serves: `base` is its own copy of a model.

    `loaded` are the folders and the adapters' names of its loads, in order. It has the
    `endpoints`; a load fails with `failure`.
    """

    def __init__(self, base: Any, tokenizer: Any, window: int = 2048) -> None:
        super().__init__(copy.deepcopy(base), tokenizer, window)
        self.listed = {"max_model_len": window}
        self.endpoints = {"/version", RPC, RESET_CACHE, LOAD_ADAPTER, UNLOAD_ADAPTER}
        self.adapters: dict[str, Any] = {}
        self.loaded: list[str] = []
        self.failure: Fault | None = None
        self.unscaled = False  # whether its log-probabilities are of temperature 1
        self.stale = False  # whether its prefix cache is that of former weights

    def reply(self, path: str, body: dict[str, Any], key: str) -> Fault:
        if path.startswith("/v1/") and path not in (LOAD_ADAPTER, UNLOAD_ADAPTER):
            return super().reply(path, body, key)
        if path not in self.endpoints:
            return 404, {"detail": "Not Found"}, {}
        if path == "/version":
            return 200, {"version": "0.32.0"}, {}
        if path == RESET_CACHE:
            self.stale = False
            return 200, {"success": True}, {}
        if not body:
            return 405, {"detail": "Method Not Allowed"}, {}
        if self.failure is not None:
            return self.failure
        with self.one:
            return self.load(path, body)

    def load(self, path: str, body: dict[str, Any]) -> Fault:
        if path == UNLOAD_ADAPTER:
            del self.adapters[body["lora_name"]]
            return 200, "removed", {}
        if path == RPC:
            assert body["method"] == "reload_weights"
            folder = Path(body["kwargs"]["weights_path"])
            self.model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
            self.model.tie_weights()
            self.loaded.append(folder.name)
            self.stale = True
            return 200, {"results": [None]}, {}
        from peft import PeftModel

        name = body["lora_name"]
        if name in self.adapters:
            return refusal(400, f"The lora adapter '{name}' has already been loaded.")
        own = copy.deepcopy(self.model)
        self.adapters[name] = PeftModel.from_pretrained(own, body["lora_path"]).eval()
        self.loaded.append(name)
        return 200, "Success", {}

    def complete_ids(self, body: dict[str, Any]) -> Fault:
        if self.stale:
            return refusal(400, "the prefix cache holds keys and values of former weights")
        name = body["model"]
        if name not in (*self.models, *self.adapters):
            return refusal(404, f"The model `{name}` does not exist.")
        adapted = self.adapters.get(name)
        status, reply, headers = self.generate(body["prompt"], body, chat=False, model=adapted)
        if self.ids == "none" and status == 200:
            del reply["choices"][0]["logprobs"]
        elif self.unscaled and status == 200:
            choice, prompt = reply["choices"][0], body["prompt"]
            ids = torch.tensor([prompt + choice["token_ids"]])
            with self.one, torch.no_grad():
                logps = self.model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            own = logps.gather(-1, ids[0, len(prompt) :, None])[:, 0]
            choice["logprobs"]["token_logprobs"] = own.tolist()
        return status, reply, headers


@contextmanager
def served(chat: ChatServer) -> Iterator[ChatServer]:
    """Serve `chat` on a free port while the block lasts; `chat.url` ends in /v1."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body waited 40 ms for the ACK of its head

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
