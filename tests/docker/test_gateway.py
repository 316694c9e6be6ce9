"""docker/haproxy.cfg in the real HAProxy, if installed: which server gets which request."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest

from shared.client import SQLEnvClient
from shared.errors import WrongAddress
from shared.server_process import running_server
from tests.chaos.gateway import CONFIG, haproxy, missing, running_gateway
from tests.chaos.gateway import SERVERS as SERVERS_FILE
from tests.conftest import needs_program
from tests.docker.conftest import PATIENT_CHECK_S, SERVERS, asked

pytestmark = needs_program("haproxy", missing())
PEM = Path(__file__).parents[1] / "shared" / "client" / "localhost.pem"


def mcp_call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def test_haproxy_accepts_the_configuration():
    result = subprocess.run(
        [str(haproxy()), "-c", "-f", str(CONFIG), "-f", str(SERVERS_FILE)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr + result.stdout


def requests_of(name: str) -> Iterator[tuple[str, str, Any]]:
    """Yield method, path and body of every request of an episode."""
    item = {"episode_id": name, "action": "QUERY: " + "x" * 9000}
    yield "POST", "/reset", {"episode_id": name}
    yield "POST", "/reset", {"actions": ["QUERY: '\"episode_id\": 7'"], "episode_id": name}
    yield "POST", "/step", dict(reversed(item.items()))
    yield "POST", "/step_batch", {"steps": [item]}
    yield "POST", "/reset_batch", {"resets": [{"episode_id": name}]}
    yield "POST", "/mcp", mcp_call("query", episode_id=name, sql="SELECT 1")
    for quoted in (name, quote(name)):
        yield "GET", f"/state?episode_id={quoted}", None
        yield "GET", f"/ws?episode_id={quoted}", None
        yield "DELETE", f"/episodes/{quoted}", None


def test_every_request_of_an_episode_goes_to_one_server(http):
    seen = set()
    for n in range(30):
        name = f"episode-{n}"
        where = {
            asked(http, method, path, json=body)["server"]
            for method, path, body in requests_of(name)
        }
        assert len(where) == 1, name
        seen |= where
    assert len(seen) == SERVERS, "all of them play"


def test_the_page_for_people_is_that_of_one_server(http):
    gets = ["/", "/signin", "/page/events", "/page/play?split=eval", "/page/episode?id=a"]
    where = {asked(http, "GET", path)["server"] for path in gets for _ in range(3)}
    where |= {
        asked(http, "POST", f"/page/{name}", data={"step": "0"})["server"]
        for name in ("play", "step")
    }
    assert len(where) == 1


def test_the_affinity_header_takes_precedence(http):
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


def test_a_reset_without_an_id_gets_one_that_routes_back(http):
    seen = set()
    for _ in range(12):
        reset = asked(http, "POST", "/reset", json={"seed": 3})
        assert str(UUID(reset["episode_id"])) == reset["episode_id"]
        for method, path, body in requests_of(f"{reset['episode_id']}:the-servers-own_random-bits"):
            reply = asked(http, method, path, json=body)
            assert reply["server"] == reset["server"], (method, path)
            assert reply["episode_id"] is None, "only a reset without an id gets one"
        seen.add(reset["server"])
    assert len(seen) > 1
    assert asked(http, "POST", "/reset")["episode_id"], "no body at all is a reset too"


def test_sockets_and_mcp_calls_get_the_start_of_their_episodes_ids(http):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    upgrade |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    seen = set()
    for method, path, request in [
        ("GET", "/ws", {"headers": upgrade}),
        ("POST", "/mcp", {"json": mcp_call("start_episode", seed=3)}),
    ] * 6:
        start = http.request(method, path, **request).json()
        assert start["upgrade"] == ("websocket" if path == "/ws" else None)
        name = f"{start['episode_id']}:the-servers-own"
        again = http.get("/ws", headers=upgrade | {"X-Affinity": name}).json()
        assert (again["server"], again["episode_id"]) == (start["server"], None), "resumed there"
        seen.add((path, start["server"]))
    assert len(seen) > 2
    assert http.get("/health", headers=upgrade).json()["upgrade"] is None


def test_an_agent_can_not_forge_the_id_of_the_gateway(http):
    reply = http.post("/reset", json={"episode_id": "a"}, headers={"X-Episode-Id": "forged"})
    assert reply.json()["episode_id"] is None
    assert reply.headers["x-affinity-lanes"] == "32", "what a batching client must know"


def test_real_sockets_and_mcp_calls_play_whole_episodes(tiny_data):
    """Sockets and MCP episodes stay each on one of two servers; a lost socket's episode goes on."""
    sync = pytest.importorskip("websockets.sync.client")
    pytest.importorskip("mcp")
    accept = {"Accept": "application/json, text/event-stream"}
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running_server(tiny_data, "--workers", "1")) for _ in "ab"]
        gateway = stack.enter_context(
            running_gateway([server.url for server in servers], PATIENT_CHECK_S)
        )
        http = stack.enter_context(httpx.Client(base_url=gateway.url, headers=accept, timeout=60))

        def connect(**headers: str) -> Any:
            url = gateway.url.replace("http", "ws", 1) + "/ws"
            return stack.enter_context(sync.connect(url, additional_headers=headers))

        def ask(socket: Any, kind: str, **data: Any) -> dict[str, Any]:
            socket.send(json.dumps({"type": kind, "data": data}))
            reply = dict(json.loads(socket.recv(timeout=60)))
            assert reply["type"] == "observation", reply
            return dict(reply["data"])

        def tool(name: str, **arguments: Any) -> dict[str, Any]:
            reply = http.post("/mcp", json=mcp_call(name, **arguments)).json()
            return dict(reply["result"]["structuredContent"])

        sockets = [connect() for _ in range(8)]
        for socket in sockets:
            name = ask(socket, "reset", question_id="shop-1")["metadata"]["episode_id"]
            ask(socket, "step", action_type="DESCRIBE", argument="customers")
            socket.socket.close()  # without a goodbye
            resumed = connect(**{"X-Affinity": name})
            reply = ask(resumed, "reset", episode_id=name, resume=True)
            assert reply["observation"]["step_count"] == 1
            reply = ask(resumed, "step", action_type="ANSWER", argument="5")
            assert reply["metadata"]["outcome"] == "correct"
        for _ in range(8):
            mine = {"episode_id": tool("start_episode", question_id="shop-1")["episode_id"]}
            assert not tool("describe", **mine, table="customers")["done"]
            assert tool("answer", **mine, answer="5")["outcome"] == "correct"
        started = [
            re.search(r"^sqlenv_episodes_started_total (\d+)", text, re.MULTILINE)
            for text in (httpx.get(f"{server.url}/metrics").text for server in servers)
        ]
        played = [int(found[1]) for found in started if found]
        assert sum(played) == 16
        assert min(played) > 0, "both play"


def test_a_certificate_makes_it_answer_by_tls(tiny_data, monkeypatch):
    with (
        running_server(tiny_data, sql_workers=1) as server,
        running_gateway([server.url], PATIENT_CHECK_S, certificate=PEM) as gateway,
    ):
        with SQLEnvClient(gateway.url).sync() as client, pytest.raises(WrongAddress) as caught:
            client.reset(question_id="shop-1")
        assert "SSL_CERT_FILE" in str(caught.value), "the remedy for a certificate of one's own"
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
        with SQLEnvClient(gateway.url).sync() as client:
            first = client.reset(question_id="shop-1")
            assert client.step(first.episode_id, "ANSWER: 5").info.outcome == "correct"


def test_a_server_that_is_not_ready_gets_nothing_and_only_its_episodes_move(http, gateway, servers):
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
    moved = {name for name in names if before[name] != during[name]}
    assert moved == {name for name in names if before[name] == "0"} != set()
    servers[0].ready = True
    gateway.wait_serving(SERVERS)
    assert homes() == before
