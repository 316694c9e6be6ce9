"""docker/haproxy.cfg in the real HAProxy, if installed: its limits and its own errors."""

import asyncio
import contextlib
import json
import re
import socket

import httpx
import pytest

from env_server.http.protocol import MAX_HEADERS
from env_server.settings import Settings
from shared.server_process import running_server
from tests.chaos.gateway import CONFIG, missing, running_gateway
from tests.conformance.check import CheckResult, run
from tests.conformance.headers import ENDLESS, exchange
from tests.conformance.suite import all_checks
from tests.conformance.wire import Wire
from tests.conftest import needs_program
from tests.docker.conftest import PATIENT_CHECK_S, SERVERS, asked

pytestmark = needs_program("haproxy", missing())


def test_large_bodies(http):
    """A body longer than the gateway reads needs an affinity header: it is not routed at random."""
    long = {"actions": ["QUERY: " + "x" * 15_000] * 12}
    assert asked(http, "POST", "/reset", affinity="lane", json=long)["body_bytes"] > 180_000
    near = {"episode_id": "near", "actions": ["QUERY: " + "x" * 15_000] * 7}
    first = asked(http, "POST", "/reset", json={"episode_id": "near"})["server"]
    assert asked(http, "POST", "/reset", json=near)["server"] == first
    reply = http.post("/reset", json=long | {"episode_id": "last"}, headers={"X-Refusal": "forged"})
    assert reply.status_code == 422
    assert "X-Affinity" in reply.json()["refusal"]


def test_the_errors_of_the_gateway_have_the_common_shape(http, gateway):
    for url in ("/metrics", "/operator/tries", f"{gateway.admin}/else"):
        reply = http.get(url)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert reply.json()["error"]["message"]
    assert httpx.get(gateway.admin + "/ready").json() == {"status": "ready"}


@pytest.mark.parametrize("allowed", ["", "a.example, B.example", "*"])
def test_a_request_without_a_key_needs_a_name_that_no_site_can_own(servers, monkeypatch, allowed):
    """The gateway knows no keys: any Authorization header passes, and the servers judge it."""
    monkeypatch.setenv("SQLENV_HOSTS", allowed)
    private = ["localhost:8000", "a", "10.0.0.1", "[::1]:80", "[::ffff:127.0.0.1]", "x.localhost"]
    private += ["box.local:1", "gateway.sqlenv.SVC", "a.svc.cluster.local.", "db.internal"]
    foreign = ["evil.example", "Evil.Example.:8000", "localhost.evil.example", "evil.notlocal"]
    foreign += ["1.evil", "a.example,", "xa.example", "x,evil.example,|evil.example"]
    named = ["a.example", "b.EXAMPLE:8000"]
    with (
        running_gateway([server.url for server in servers], PATIENT_CHECK_S) as gateway,
        httpx.Client(base_url=gateway.url, timeout=30) as http,
    ):

        def status(host: str, path: str = "/metadata", **headers: str) -> int:
            return http.get(path, headers={"Host": host} | headers).status_code

        assert {host for host in private if status(host) != 200} == set()
        assert {host for host in named if status(host) == 200} == (set(named) if allowed else set())
        passed = {host for host in foreign if status(host) == 200}
        assert passed == (set(foreign) if allowed == "*" else set())
        for path in ("/health", "/ready", "/docs", "/docs/scripts/x.js", "/openapi.json"):
            assert status("evil.example", path) == 200
        assert status("evil.example", Authorization="Bearer x") == 200, "the server judges the key"
        if not allowed:
            reply = http.post("/reset", headers={"Host": "evil.example"}, json={})
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (403, "forbidden")
            assert error["retryable"] is False
            assert "SQLENV_HOSTS" in error["message"]


HEAD = b"GET /health HTTP/1.1\r\nHost: e\r\nConnection: close\r\n"
CHUNKED = b"POST /reset HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "statuses"),
    [
        ([HEAD, b"X: " + b"x" * 33_000, b"\r\n\r\n"], "431"),
        ([b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nConnection: close\r\n\r\n"], "431"),
        # what HAProxy refuses before a request exists has a page of its own
        ([HEAD, b"a: b\r\n" * 100 + b"\r\n"], "400"),
        ([HEAD, b"X: ", *ENDLESS], "400"),
        ([CHUNKED, b"0\r\nX: ", *ENDLESS], "400"),
        # refused at once, or after the wait for a body: builds differ
        ([CHUNKED, b"1;", *ENDLESS], "400 408"),
        ([HEAD, b"X: " + b"x" * 32_000, b"\r\n\r\n"], "200"),
        ([HEAD, b"a: b\r\n" * 90 + b"\r\n"], "200"),
    ],
)
def test_heads_have_the_limits_of_the_servers(gateway, pieces, statuses):
    reply = exchange(Wire(httpx.AsyncClient(base_url=gateway.url)), pieces) or b""
    assert reply[9:12].decode() in statuses.split(), reply[:200]
    if statuses == "431":
        error = json.loads(reply.partition(b"\r\n\r\n")[2])["error"]
        assert error["code"] == "request_header_fields_too_large"


def test_the_limits_are_the_defaults_of_the_servers():
    text, defaults = CONFIG.read_text(), Settings()
    for line in (
        f"tune.http.maxhdr {MAX_HEADERS} ",
        f"{{ req.hdrs,length gt {defaults.max_head_bytes} }}",
        f"{{ req.body_size 120001:{defaults.max_body_bytes} }}",
        f"timeout http-request {defaults.head_timeout_s:g}s",
    ):
        assert line in text


def test_one_address_can_not_hold_all_connections(http, gateway):
    """600 half-sent heads from one address: it gets 512 connections, others are served."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")

    def connected() -> socket.socket:
        return socket.create_connection((host, int(port)), 30, source_address=("127.0.0.2", 0))

    with contextlib.ExitStack() as opened:
        for _ in range(600):
            with contextlib.suppress(ConnectionError):
                opened.enter_context(connected()).sendall(HEAD)
        assert asked(http, "GET", "/metadata")
        pattern = r'^haproxy_frontend_current_sessions\{proxy="agents"\} (\d+)'
        text = httpx.get(f"{gateway.admin}/metrics").text
        found = re.search(pattern, text, re.MULTILINE)
        assert found
        assert 400 < int(found[1]) <= 520
        with contextlib.suppress(ConnectionError), connected() as refused:
            assert refused.recv(1) == b""


@pytest.mark.slow
def test_conformance_of_heads_and_bodies_through_the_gateway(tiny_data):
    async def main(url: str) -> list[CheckResult]:
        checks = [one for one in all_checks([]) if one.group in ("headers", "parsing")]
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return await run(Wire(client), checks)

    with (
        running_server(tiny_data) as server,
        running_gateway([server.url], PATIENT_CHECK_S) as gateway,
    ):
        results = asyncio.run(main(gateway.url))
    assert [result for result in results if result.status != "ok"] == []
    assert {result.group for result in results} == {"headers", "parsing"}


def test_without_a_server_the_error_is_retryable(http, gateway, servers):
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
