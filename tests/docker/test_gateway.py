"""docker/haproxy.cfg in the real HAProxy, if installed: routing of requests, and errors."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import httpx
import pytest

from benchmarks.chaos.gateway import (
    CONFIG,
    Gateway,
    fixed_servers,
    haproxy,
    missing,
    running_gateway,
)

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SERVERS = 3


class Server(ThreadingHTTPServer):
    """A server that returns its name and the request."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.ready = name, True
        threading.Thread(target=self.serve_forever, daemon=True).start()

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
        status = 503 if self.path == "/ready" and not server.ready else 200
        said = {
            "server": server.name,
            "body_bytes": len(body),
            "episode_id": self.headers.get("x-episode-id"),
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
    with running_gateway([server.url for server in servers]) as gateway:
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


def test_haproxy_accepts_the_configuration() -> None:
    result = subprocess.run(
        [str(haproxy()), "-c", "-f", str(CONFIG)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr + result.stdout


def test_every_request_of_an_episode_goes_to_one_server(http: httpx.Client) -> None:
    seen = set()
    for n in range(30):
        name = f"episode-{n}"
        where = {
            asked(http, method, path, json=body)["server"]
            for method, path, body in [
                ("POST", "/reset", {"episode_id": name}),
                (
                    "POST",
                    "/reset",
                    {
                        "seed": 1,
                        "actions": ["QUERY: SELECT '\"episode_id\": 7'"],
                        "episode_id": name,
                    },
                ),
                ("POST", "/step", {"episode_id": name, "action": "QUERY: SELECT 1"}),
                (
                    "POST",
                    "/step",
                    {
                        "action": {"action_type": "QUERY", "argument": "x" * 9000},
                        "episode_id": name,
                    },
                ),
                (
                    "POST",
                    "/step_batch",
                    {"steps": [{"episode_id": name, "action": "QUERY: SELECT 1"}]},
                ),
                ("POST", "/reset_batch", {"resets": [{"episode_id": name}]}),
                ("GET", f"/state?episode_id={name}", None),
                ("DELETE", f"/episodes/{name}", None),
                ("GET", f"/operator/verdicts/{name}", None),
            ]
        }
        assert len(where) == 1, name
        seen |= where
    assert len(seen) == SERVERS, "all of them play"


def test_the_affinity_header_takes_precedence(http: httpx.Client) -> None:
    where = {
        asked(http, "POST", path, affinity="lane", json=body)["server"]
        for path, body in [
            ("/reset", {"episode_id": "a"}),
            ("/step", {"episode_id": "b", "action": "QUERY: SELECT 1"}),
            ("/step_batch", {"steps": [{"episode_id": name} for name in "cdefgh"]}),
            ("/reset", {}),
        ]
    }
    assert len(where) == 1
    servers = {asked(http, "GET", "/metadata", affinity=f"shard {n}")["server"] for n in range(32)}
    assert len(servers) == SERVERS


def test_a_reset_without_an_id_gets_one_that_routes_back(http: httpx.Client) -> None:
    seen = set()
    for _ in range(12):
        reset = asked(http, "POST", "/reset", json={"seed": 3})
        assert str(UUID(reset["episode_id"])) == reset["episode_id"]
        step = asked(
            http,
            "POST",
            "/step",
            json={"episode_id": reset["episode_id"], "action": "QUERY: SELECT 1"},
        )
        assert step["server"] == reset["server"]
        assert step["episode_id"] is None, "only a reset adopts one"
        seen.add(reset["server"])
    assert len(seen) > 1
    assert asked(http, "POST", "/reset")["episode_id"], "no body at all is a reset too"


def test_an_agent_can_not_forge_the_id_of_the_gateway(http: httpx.Client) -> None:
    reply = http.post("/reset", json={"episode_id": "a"}, headers={"X-Episode-Id": "forged"})
    assert reply.json()["episode_id"] is None


def test_a_batching_client_is_told_the_lanes(http: httpx.Client) -> None:
    assert http.get("/metadata").headers["x-affinity-lanes"] == "32"


def test_large_bodies(http: httpx.Client) -> None:
    """A body longer than the gateway reads needs an affinity header: it is not routed at random."""
    long = {"actions": ["QUERY: " + "x" * 15_000] * 12}
    assert asked(http, "POST", "/reset", affinity="lane", json=long)["body_bytes"] > 180_000
    near = {"episode_id": "near", "actions": ["QUERY: " + "x" * 15_000] * 7}
    first = asked(http, "POST", "/reset", json={"episode_id": "near"})["server"]
    assert asked(http, "POST", "/reset", json=near)["server"] == first
    reply = http.post("/reset", json=long | {"episode_id": "last"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "bad_request")
    assert "X-Affinity" in reply.json()["error"]["message"]


def test_the_errors_of_the_gateway_have_the_common_shape(
    http: httpx.Client, gateway: Gateway
) -> None:
    for reply, status, code in [
        (http.post("/reset", content=b" " * 8_400_000), 413, "body_too_large"),
        (http.get("/metrics"), 404, "not_found"),
        (http.get("/operator/verdicts"), 404, "not_found"),
        (httpx.get(gateway.admin + "/else"), 404, "not_found"),
    ]:
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
        assert reply.json()["error"]["message"]
    assert httpx.get(gateway.admin + "/ready").json() == {"status": "ready"}


def test_a_server_that_is_not_ready_gets_nothing_and_only_its_episodes_move(
    http: httpx.Client, gateway: Gateway, servers: list[Server]
) -> None:
    names = [f"e{n}" for n in range(60)]

    def homes() -> dict[str, str]:
        return {
            name: asked(http, "POST", "/step", json={"episode_id": name})["server"]
            for name in names
        }

    before = homes()
    servers[0].ready = False
    gateway.wait_serving(SERVERS - 1)
    during = homes()
    assert (
        {name for name in names if before[name] != during[name]}
        == {n for n in names if before[n] == "0"}
        != set()
    )
    servers[0].ready = True
    gateway.wait_serving(SERVERS)
    assert homes() == before


def test_without_a_server_the_error_is_retryable(
    http: httpx.Client, gateway: Gateway, servers: list[Server]
) -> None:
    for server in servers:
        server.ready = False
    try:
        gateway.wait_serving(0)
        reply = http.post("/reset", json={})
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["retryable"]) == (503, "not_ready", True)
        assert reply.headers["retry-after"] == "1"
        assert httpx.get(gateway.admin + "/ready").status_code == 503
        assert httpx.get(gateway.admin + "/live").status_code == 200
    finally:
        for server in servers:
            server.ready = True
        gateway.wait_serving(SERVERS)


def test_a_reworded_configuration_is_noticed() -> None:
    """The tests replace the server template by fixed servers, so it must be found in the file."""
    text = CONFIG.read_text()
    fixed = fixed_servers(text, ["127.0.0.1:1", "127.0.0.1:2"])
    assert "    server server1 127.0.0.1:1\n    server server2 127.0.0.1:2\n" in fixed
    assert "resolvers network init-addr" not in fixed
    for other in (text.replace("server-template", "server"), text.replace(" init-addr none", "")):
        with pytest.raises(RuntimeError, match="replaced here"):
            fixed_servers(other, ["127.0.0.1:1"])
