"""What a connection may send before any check: raw sockets against a real server."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from shared.server_process import ServerProcess, running_server
from tests.conftest import eventually

MIB = 1024 * 1024
HEAD = b"GET /health HTTP/1.1\r\nHost: e\r\n"
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: e\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
HEALTHY = b'{"status":"healthy"}'
CHUNKED = b"POST /reset HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW = (
    "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000) "
    "SELECT count(*) FROM n"
)


@pytest.fixture(scope="module")
def server(tiny_data: Path) -> Iterator[ServerProcess]:
    with running_server(tiny_data, "--workers", "1", head_timeout_s=3, send_timeout_s=2) as server:
        yield server


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def received(connection: socket.socket) -> bytes:
    pieces = []
    with suppress(ConnectionError):
        while piece := connection.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


def get(connection: socket.socket, path: str, headers: bytes = b"") -> bytes:
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: e\r\n%b\r\n" % (path.encode(), headers))
    return body_of_reply(connection)


def body_of_reply(connection: socket.socket) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content:
        content += connection.recv(65_536)
    head, _, body = content.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65_536)
    return body


def exchange(server: ServerProcess, *pieces: bytes) -> bytes:
    with connect(server) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        return received(connection)


def error(reply: bytes) -> tuple[int, str, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    fields = json.loads(body)["error"]
    return int(head.split()[1]), fields["code"], fields["message"]


def resident_bytes(server: ServerProcess) -> int:
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096


def honest(server: ServerProcess) -> float:
    start = time.monotonic()
    with httpx.Client(base_url=server.url, timeout=30) as http:
        episode = {"episode_id": http.post("/reset", json={"seed": 1}).json()["episode_id"]}
        reply = http.post("/step", json=episode | {"action": "QUERY: SELECT 1"})
        assert reply.status_code == 200
        assert http.delete(f"/episodes/{episode['episode_id']}").status_code == 200
    return time.monotonic() - start


TOO_LARGE = (431, "request_header_fields_too_large")
REFUSED: dict[str, tuple[Sequence[bytes], tuple[int, str], str]] = {
    "a streamed name": ([HEAD, *[b"x" * MIB] * 40], TOO_LARGE, "MAX_HEAD_BYTES"),
    "empty lines": ([b"\r\n" * MIB] * 20, TOO_LARGE, "MAX_HEAD_BYTES"),
    "many headers": ([HEAD + b"a: b\r\n" * 100 + b"\r\n"], TOO_LARGE, "over 100 headers"),
    "extensions": ([CHUNKED, *[b"1;" + b"x" * 999 + b"\r\n \r\n"] * 60], (400, "bad_request"),
                   "chunks"),
    "tiny chunks": ([CHUNKED + b"1\r\n \r\n" * 20_000], (400, "bad_request"), "chunks"),
    "trailers": ([CHUNKED + b"0\r\n", *[b"X: y\r\n" * MIB] * 10], (400, "bad_request"), "chunks"),
    "no HTTP": ([b"HELLO\r\n\r\n"], (400, "bad_request"), "not HTTP"),
    "no target": ([b"GET http://[ HTTP/1.1\r\n\r\n"], (400, "bad_request"), "not HTTP"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_head_beyond_the_limits_is_refused_and_costs_nothing(server, name):
    pieces, (status, code), text = REFUSED[name]
    before = resident_bytes(server)
    found = error(exchange(server, *pieces))
    assert (*found[:2], text in found[2]) == (status, code, True), found
    assert resident_bytes(server) - before < 10 * MIB
    assert honest(server) < 10


def test_requests_within_the_limits_are_answered(server):
    long = b"X-Long: " + b"x" * 30_000 + b"\r\n"
    for lines in (long, b"a: b\r\n" * 98, b"a: b\r\n" * 20 + b"X: " + b"y" * 7000 + b"\r\n"):
        reply = exchange(server, HEAD, lines, b"Connection: close\r\n\r\n")
        assert reply.endswith(HEALTHY), lines[:20]
    with httpx.Client(base_url=server.url) as http:
        assert http.get("/health?" + "x" * 7000).status_code == 200
        body = iter([b" " * 400] * 2000 + [b"{}"])  # 14 KB of framing
        assert http.post("/reset", content=body).status_code == 200


def test_pipelined_requests_are_answered_in_order(server):
    gets = b"".join(b"GET /nothing/%d HTTP/1.1\r\nHost: e\r\n\r\n" % n for n in range(1500))
    post = b"POST /reset HTTP/1.1\r\nHost: e\r\nContent-Length: 70002\r\n\r\n{}" + b" " * 70_000
    last = HEAD + b"Connection: close\r\n\r\n"
    with connect(server) as connection:
        threading.Thread(target=connection.sendall, args=(gets + post + last,)).start()
        reply = received(connection)
    assert [int(part.split(b";")[0]) for part in reply.split(b"GET /nothing/")[1:]] == [
        *range(1500)
    ]
    assert reply.count(b"HTTP/1.1 404") == 1500
    assert reply.count(b"HTTP/1.1 200") == 2
    assert reply.endswith(HEALTHY)


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (b"HELLO\r\n\r\n", 400),
        (HEAD + b"X: " + b"x" * 40_000, 431),
        (b"GET http://e HTTP/1.1\r\nHost: e\r\n\r\n", 400),  # a URL without a path
        (b"CONNECT e:1 HTTP/1.1\r\nHost: e\r\n\r\n", 400),
    ],
)
def test_an_error_follows_the_replies_that_are_owed(server, bad, status):
    reply = exchange(server, HEAD + b"\r\n" + HEAD + b"\r\n" + bad)
    assert reply.count(HEALTHY) == 2
    assert error(reply.rpartition(HEALTHY)[2])[0] == status
    with connect(server) as connection:
        assert get(connection, "/health") == HEALTHY
        connection.sendall(bad)
        assert error(received(connection))[0] == status


def test_pipelining_without_reading_costs_no_memory(server):
    before, sent, flood = resident_bytes(server), 0, (HEAD + b"\r\n") * 10_000
    with connect(server) as connection:
        connection.settimeout(1.0)
        with suppress(TimeoutError, ConnectionError):
            while sent < 20 * MIB:
                sent += connection.send(flood)
        assert resident_bytes(server) - before < 10 * MIB
        assert honest(server) < 10


def test_a_client_that_leaves_after_a_stray_line_end_is_noticed(server):
    with httpx.Client(base_url=server.url, timeout=30) as http:
        episode = http.post("/reset", json={"seed": 1}).json()["episode_id"]
        step = json.dumps({"episode_id": episode, "action": SLOW.replace("4000000", "999999999")})
        head = "POST /step HTTP/1.1\r\nHost: e\r\nContent-Length: "

        def in_flight() -> bool:
            return "sqlenv_in_flight 1.0" in http.get("/metrics").text

        with connect(server) as connection:
            connection.sendall(f"{head}{len(step)}\r\n\r\n{step}".encode())
            eventually(in_flight)
            connection.sendall(b"\r\n")
        eventually(lambda: not in_flight(), 10)
        assert http.get("/state", params={"episode_id": episode}).json()["step_count"] == 0
        http.delete(f"/episodes/{episode}")


def test_an_upgrade_is_ignored_or_refused_with_a_body(server):
    """httptools takes the body of such a request for the next request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
    smuggled = b"DELETE /episodes/e HTTP/1.1\r\n\r\n"
    for length in (
        b"Content-Length: %d\r\n\r\n" % len(smuggled),
        b"Transfer-Encoding: chunked\r\n\r\n",
    ):
        post = b"POST /reset HTTP/1.1\r\nHost: e\r\n" + upgrade + length + smuggled
        reply = exchange(server, HEAD + upgrade + b"\r\n" + HEAD + b"\r\n" + post)
        assert reply.count(HEALTHY) == 2
        assert error(reply[reply.index(b"HTTP/1.1 4") :])[:2] == (400, "bad_request")


def test_a_trailer_is_no_header(server):
    body = b"2\r\n{}\r\n0\r\nX-Episode-Id: forged\r\n\r\n"
    reply = exchange(server, CHUNKED + body + HEAD + b"Connection: close\r\n\r\n")
    assert reply.count(b"HTTP/1.1 200") == 2
    assert b"forged" not in reply


def test_heads_that_are_late_end_with_408(server):
    with connect(server) as silent, connect(server) as trickling, connect(server) as second:
        assert get(second, "/health") == HEALTHY
        second.sendall(b"GET /hea")
        trickling.sendall(HEAD)
        for _ in range(12):
            with suppress(ConnectionError):
                trickling.sendall(b"a: b\r\n")
            time.sleep(0.3)
        for connection in (trickling, second):
            assert error(received(connection))[:2] == (408, "request_timeout")
        assert received(silent) == b""


def test_unfinished_bodies_give_way_to_whole_requests(tiny_data):
    with (
        running_server(tiny_data, "--workers", "1", max_connections=20) as server,
        ExitStack() as opened,
    ):
        held = [opened.enter_context(connect(server)) for _ in range(40)]
        for connection in held:
            with suppress(ConnectionError):
                connection.sendall(b"POST /reset HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        assert honest(server) < 10
        assert error(received(held[0]))[:2] == (503, "not_ready")


def test_idle_connections_give_way_and_busy_ones_do_not(tiny_data):
    with (
        running_server(tiny_data, "--workers", "1", max_connections=3) as server,
        ExitStack() as opened,
    ):
        names = "ab"
        for name in names:
            assert httpx.post(server.url + "/reset", json={"episode_id": name}).status_code == 200
        idle = opened.enter_context(connect(server))
        assert get(idle, "/health") == HEALTHY
        busy = [opened.enter_context(connect(server)) for _ in names]
        for name, connection in zip(names, busy, strict=True):
            body = json.dumps({"episode_id": name, "action": SLOW}).encode()
            head = b"POST /step HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
        eventually(lambda: b"sqlenv_in_flight 2.0" in get(idle, "/metrics"))
        with connect(server) as next_one:
            assert received(idle) == b"", "the idle one is closed for the next"
            with connect(server) as refused:  # which closes `next_one`, that has sent nothing
                refused.sendall(HEAD + b"Connection: close\r\n\r\n")
                assert received(refused).endswith(HEALTHY)
            assert error(received(next_one))[:2] == (503, "not_ready")
        for connection in busy:
            assert b"4000000" in received(connection)


def test_idle_connections_give_way_before_new_ones_that_have_not_sent_anything_yet(tiny_data):
    with (
        running_server(tiny_data, "--workers", "1", max_connections=16) as server,
        ExitStack() as opened,
    ):
        idle = [opened.enter_context(connect(server)) for _ in range(15)]
        for connection in idle:
            assert get(connection, "/health") == HEALTHY
        new = [opened.enter_context(connect(server)) for _ in range(2)]
        assert received(idle[0]) == b""
        for connection in new:
            assert get(connection, "/health") == HEALTHY


def test_connections_that_sent_a_key_give_way_last(tiny_data):
    limits = {"max_connections": 4, "api_key": "k" * 20}
    key = b"Authorization: Bearer " + b"k" * 20 + b"\r\n"
    with running_server(tiny_data, "--workers", "1", **limits) as server, ExitStack() as opened:
        known = opened.enter_context(connect(server))
        unknown = [opened.enter_context(connect(server)) for _ in range(3)]
        assert b'"digest"' in get(known, "/metadata", key)
        for connection in unknown:
            assert get(connection, "/health") == HEALTHY
            assert b"unauthorized" in get(connection, "/metadata", b"Authorization: Bearer x\r\n")
        for oldest in unknown:
            newest = opened.enter_context(connect(server))
            assert get(newest, "/metadata", key), "which is known from now on"
            assert received(oldest) == b"", "the oldest without a key is closed"
        last = opened.enter_context(connect(server))
        assert received(known) == b"", "all have keys: the oldest is closed"
        assert get(last, "/health") == HEALTHY


def test_a_body_that_is_refused_is_dropped_and_the_connection_stays(server):
    body = b" " * 30_000_000
    with connect(server) as connection:
        for _ in range(2):
            before = server.cpu_s()
            connection.sendall(b"POST /step HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body))
            assert b"body_too_large" in body_of_reply(connection)
            connection.sendall(body)
            assert get(connection, "/health") == HEALTHY
            assert server.cpu_s() - before < 0.5
        connection.sendall(b"POST /step HTTP/1.1\r\nContent-Length: 300000\r\n\r\n")
        assert b"body_too_large" in body_of_reply(connection)
        connection.sendall(b" " * 300_000 + HEAD + b"\r\n" + HEAD + b"\r\n")
        content = b""
        while content.count(HEALTHY) < 2:
            content += connection.recv(4096)


def test_a_pipelined_body_is_not_taken_for_the_rest_of_another(server):
    with httpx.Client(base_url=server.url) as http:
        episode = http.post("/reset", json={"seed": 1}).json()["episode_id"]
    slow = json.dumps({"episode_id": episode, "action": SLOW}).encode()
    reset = json.dumps({"seed": 2}).encode()
    head = b"POST %s HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n"
    with connect(server) as connection:
        connection.sendall(head % (b"/step", len(slow)) + slow + head % (b"/reset", len(reset)))
        content = b""
        while b"4000000" not in content:
            content += connection.recv(65_536)
        connection.sendall(reset)
        while b'"step_count":0' not in content:
            content += connection.recv(65_536)


def test_a_line_a_minute_of_each_kind_says_what_was_refused(tiny_data):
    with running_server(tiny_data, "--workers", "1", api_key="k" * 20) as server:
        with ExitStack() as opened:
            for number in range(50):
                connection = opened.enter_context(connect(server))
                connection.sendall(HANDSHAKE if number % 2 else b"GET /\x1b HTTP/1.1\r\n\r\n")
        with connect(server) as connection:
            assert b"unauthorized" in get(connection, "/metadata")
        for digest in ("of others", "of\nothers"):
            headers = {"Authorization": f"Bearer {'k' * 20}"}
            reply = httpx.post(f"{server.url}/reset", json={"digest": digest}, headers=headers)
            assert reply.status_code == 409
        lines = server.log().splitlines()[1:]
        assert len(lines) == 2, lines
        assert all("WARNING" in line for line in lines)
        assert "refused a request of 127.0.0.1" in lines[0]
        assert "refused an episode of other data or rules: this server's digest is" in lines[1]


def test_bytes_of_unfinished_bodies_have_a_limit(tiny_data):
    limits = {"max_unfinished_bytes": 100_000}
    with running_server(tiny_data, "--workers", "1", **limits) as server, ExitStack() as opened:
        held = [opened.enter_context(connect(server)) for _ in range(4)]
        for connection in held:
            connection.sendall(b"POST /reset HTTP/1.1\r\nContent-Length: 40002\r\n\r\n{}")
            connection.sendall(b" " * 39_000)
            time.sleep(0.05)
        for connection in held[:2]:
            assert error(received(connection))[:2] == (503, "not_ready")
        for connection in held[2:]:
            connection.sendall(b" " * 1000)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def connect_and_read_nothing(server: ServerProcess) -> socket.socket:
    """Return a connection whose peer asks for 5 MB, more than the system's buffers hold, by whole
    requests that are parsed at once."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(b"GET /openapi.json HTTP/1.1\r\n\r\n" * 130)
    time.sleep(0.5)
    return connection


def test_connections_whose_peers_read_nothing_give_way(tiny_data):
    key = b"Authorization: Bearer " + b"k" * 20 + b"\r\n"
    limits = {"max_connections": 4, "api_key": "k" * 20}
    with running_server(tiny_data, "--workers", "1", **limits) as server, ExitStack() as opened:
        known = opened.enter_context(connect(server))
        assert b'"digest"' in get(known, "/metadata", key)
        for _ in range(5):
            opened.enter_context(connect_and_read_nothing(server))
        with connect(server) as another:
            assert b'"digest"' in get(another, "/metadata", key)
        assert b'"digest"' in get(known, "/metadata", key)


def test_a_stop_does_not_wait_for_peers_that_read_nothing(tiny_data):
    limits = {"shutdown_grace_s": 300, "send_timeout_s": 300}
    with (
        running_server(tiny_data, "--workers", "1", **limits) as server,
        connect_and_read_nothing(server),
    ):
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_a_connection_gives_way_after_the_reply_that_it_is_owed(tiny_data):
    with running_server(tiny_data, "--workers", "1", max_connections=2) as server:
        assert httpx.post(server.url + "/reset", json={"episode_id": "a"}).status_code == 200
        body = json.dumps({"episode_id": "a", "action": SLOW}).encode()
        head = b"POST /step HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        with connect(server) as busy, connect(server) as watching:
            busy.sendall(head + body + b"GET /health HT")
            eventually(lambda: b"sqlenv_in_flight 1.0" in get(watching, "/metrics"))
            with connect(server), connect(server):
                assert b"4000000" in received(busy)


def test_a_request_that_is_refused_unread_costs_no_memory(tiny_data):
    request = b"POST /step HTTP/1.1\r\nContent-Length: 250000\r\n\r\n" + b"z" * 250_000
    with (
        running_server(tiny_data, "--workers", "1", api_key="k" * 20) as server,
        ExitStack() as opened,
    ):
        before = resident_bytes(server)
        for _ in range(400):
            connection = opened.enter_context(connect(server))
            connection.sendall(request)
            assert b"unauthorized" in body_of_reply(connection)
        assert resident_bytes(server) - before < 30 * MIB


def test_the_page_of_the_api_opens_no_files(tiny_data):
    with running_server(tiny_data, "--workers", "1") as server, ExitStack() as opened:
        script = httpx.get(server.url + "/docs/scripts/swagger-ui-bundle.js")
        if script.status_code == 404:
            pytest.skip("fastapi-offline is not installed")
        assert script.headers["content-type"].startswith("text/javascript")
        open_files = Path(f"/proc/{server.pid}/fd")
        before = len([*open_files.iterdir()])
        request = b"GET /docs/scripts/swagger-ui-bundle.js HTTP/1.1\r\nHost: e\r\n\r\n" * 5
        for _ in range(10):
            opened.enter_context(connect(server)).sendall(request)
        time.sleep(1)
        assert len([*open_files.iterdir()]) <= before + 10


@pytest.mark.slow
def test_a_reply_that_nobody_reads_ends(server):
    open_files = Path(f"/proc/{server.pid}/fd")
    before = len([*open_files.iterdir()])
    with connect_and_read_nothing(server):
        eventually(lambda: len([*open_files.iterdir()]) <= before)
