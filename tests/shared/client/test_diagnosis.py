"""Addresses that can't work are reported within 10 s, with the reason.

`localhost.pem` has a key and its self-signed certificate.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shared.client import SQLEnvClient
from shared.client.limits import ClientLimits
from shared.errors import ServerUnreachable, SQLEnvError, WrongAddress

PEM = Path(__file__).with_name("localhost.pem")
Start = Callable[..., int]


class Program(BaseHTTPRequestHandler):
    """Another program: its reply has a status, a body and headers."""

    def __init__(self, reply: tuple[int, bytes, dict[str, str]], *arguments: object) -> None:
        self.reply = reply
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        status, body, headers = self.reply
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_program() -> Iterator[Start]:
    """Start a program that gives one reply, with TLS or without; returns its port."""
    with ExitStack() as stack:

        def run(
            status: int = 200, body: bytes = b"{}", *, tls: bool = False, **headers: str
        ) -> int:
            handler = partial(Program, (status, body, headers))
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(PEM)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(server.shutdown)
            return server.server_port

        yield run


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def banner_port() -> int:
    """Return the port of a program that speaks first, and no HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        while True:
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    threading.Thread(target=greet, daemon=True).start()
    return int(listener.getsockname()[1])


def wrong_urls(other_program: Start) -> dict[str, str]:
    """Return URLs that can't work, by what an error must say."""
    answers = [
        other_program(200, b"<html>"),
        other_program(404, b"no"),
        other_program(200, b'{"status": "ok"}'),
    ]
    moved = other_program(308, b"", Location="https://127.0.0.1/")
    return {
        "does not speak https; write http://": f"https://127.0.0.1:{answers[0]}",
        "speaks https; write https://": f"http://127.0.0.1:{other_program(tls=True)}",
        "self-signed certificate; name .* in SSL_CERT_FILE": f"https://localhost:{other_program(tls=True)}",
        r"\(connection refused\); start it": f"http://127.0.0.1:{closed_port()}",
        "does not speak HTTP": f"http://127.0.0.1:{banner_port()}",
        "answered HTTP 200 with a body that is not SQLEnv's": f"http://127.0.0.1:{answers[0]}",
        "answered HTTP 404 with a body that is not SQLEnv's": f"http://127.0.0.1:{answers[1]}",
        "answered not a ServerMetadata": f"http://127.0.0.1:{answers[2]}",
        "redirects to https://127.0.0.1/: write that URL": f"http://127.0.0.1:{moved}",
    }


def test_an_address_that_cannot_work_is_reported_with_the_reason(other_program):
    limits = ClientLimits(max_attempts=2)
    for reason, url in wrong_urls(other_program).items():
        began = time.monotonic()
        client = SQLEnvClient(url, limits).sync()
        with client, pytest.raises(SQLEnvError, match=reason) as caught:
            client.metadata()
        assert url in str(caught.value)
        assert time.monotonic() - began < 10


def test_what_a_wait_waits_for_is_logged(caplog, monkeypatch):
    monkeypatch.setattr("shared.client.fleet.REPORT_AFTER_S", 0.3)
    url = f"http://127.0.0.1:{closed_port()}"
    with SQLEnvClient(url).sync() as client, pytest.raises(ServerUnreachable, match="after 1 s"):
        client.wait_ready(1.0)
    assert f"waiting up to 1 s: can't reach the environment server at {url} (con" in caplog.text
    assert caplog.text.count("waiting") == 1


def test_the_certificate_of_an_authority_can_be_named(other_program, monkeypatch, tmp_path):
    url = f"https://localhost:{other_program(tls=True)}"
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    with SQLEnvClient(url).sync() as client:
        client.wait_ready(5.0)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with SQLEnvClient(url).sync() as client, pytest.raises(WrongAddress, match=r"=\S+none\.pem "):
        client.wait_ready(5.0)
