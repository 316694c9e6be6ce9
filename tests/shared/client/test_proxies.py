"""Requests to this machine use no proxy; all others use the environment's."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from shared.client import SQLEnvClient
from shared.client.proxies import proxy_of, through_proxy
from shared.errors import ServerUnreachable

DEAD = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Recorder(ThreadingHTTPServer):
    """Answers as a healthy server does, to itself and as a proxy; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self.asked.append(handler.path)
                body = json.dumps({"status": "healthy"}).encode()
                handler.send_response(200)
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def ask(url: str, within_s: float = 10.0, **options: Any) -> None:
    async def main() -> None:
        async with SQLEnvClient(url, **options) as client:
            await client.wait_ready(within_s)

    asyncio.run(main())


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_this_machine_is_reached_without_the_proxy(recorder, monkeypatch, variable):
    monkeypatch.setenv(variable, DEAD)
    ask(recorder.url)
    assert recorder.asked == ["/ready"]


def test_other_hosts_go_through_the_proxy(recorder, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", recorder.url)
    ask("http://env.example:8000")
    assert recorder.asked == ["http://env.example:8000/ready"]


def test_a_name_without_a_proxy_is_resolved_and_its_addresses_have_none(recorder, monkeypatch):
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setenv("HTTP_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", "env-server")
    ask(f"http://env-server:{recorder.server_port}", resolve=resolve)
    assert recorder.asked == ["/ready"]


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        ("http://a.example", {"HTTP_PROXY": "p:1"}, "http://p:1"),
        ("https://a.example", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.example", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.example", {"HTTP_PROXY": "http://p:1", "NO_PROXY": ".example"}, None),
        ("http://10.1.2.3", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://[::1]:8000", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://0.0.0.0:8000", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://sub.localhost", {"HTTP_PROXY": "http://p:1"}, None),
        (f"http://{socket.gethostname()}", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://localhost.example", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
    ],
)
def test_the_variables(monkeypatch, url, variables, proxy):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(url) == proxy


def test_an_error_names_the_proxy_without_its_password(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    with pytest.raises(ServerUnreachable) as caught:
        ask("http://env.example:8000", within_s=0.1)
    assert "env.example:8000 through the proxy http://127.0.0.1:9 (" in caught.value.message
    assert "secret" not in caught.value.message
    assert through_proxy("http://localhost:8000") == ""


@pytest.mark.parametrize("value", ["ftp://p:1", "http://", "http://p:notaport", "socks5://p:1"])
def test_a_proxy_that_cannot_be_used_is_named(monkeypatch, recorder, value):
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(ServerUnreachable, match=r"ALL_PROXY.*or list env\.example in NO_PROXY"):
        ask("http://env.example:8000", within_s=0.1)
    ask(recorder.url)
