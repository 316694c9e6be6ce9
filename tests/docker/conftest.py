"""HAProxy with docker/haproxy.cfg before servers that return their name and the request."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.chaos.gateway import Gateway, running_gateway

SERVERS = 3
PATIENT_CHECK_S = 30  # on a busy machine a server can get no CPU time for seconds


class Server(ThreadingHTTPServer):
    """A server that returns its name and the request."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.ready = name, True
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the gateway closes connections to a server that is down


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # head and body in one segment: otherwise each reply would be delayed by 40 ms
    wbufsize = 65_536

    def reply(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        refusal = self.headers.get("x-refusal")
        status = 422 if refusal else 503 if self.path == "/ready" and not server.ready else 200
        said = {
            "refusal": refusal,
            "server": server.name,
            "body_bytes": len(body),
            "episode_id": self.headers.get("x-episode-id"),
            "upgrade": self.headers.get("upgrade"),
        }
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = reply

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    servers = [Server(str(n)) for n in range(SERVERS)]
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def gateway(servers: list[Server]) -> Iterator[Gateway]:
    with running_gateway([server.url for server in servers], PATIENT_CHECK_S) as gateway:
        yield gateway


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        yield client


def asked(
    http: httpx.Client, method: str, path: str, affinity: str | None = None, **request: Any
) -> dict[str, Any]:
    headers = {"X-Affinity": affinity} if affinity is not None else {}
    reply = http.request(method, path, headers=headers, **request)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())
