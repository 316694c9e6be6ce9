"""MCP: the official client plays an episode, and what happens without the package."""

from typing import Any

import pytest

from env_server.episode_pool import EpisodePool
from env_server.http import mcp as route
from shared.server_process import running_server
from tests.env_server.http.conftest import AGENT, TRAINER, bearer

pytestmark = pytest.mark.anyio
HEADERS = {"Accept": "application/json, text/event-stream"}
TOOLS = ["start_episode", "describe", "sample", "query", "answer"]
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


def start(question_id: str) -> dict[str, Any]:
    params = {"name": "start_episode", "arguments": {"question_id": question_id}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize("body", [b"{}", b"", b"[]", b"7", b"{", b'{"jsonrpc": "1.0"}'])
async def test_what_is_no_rpc_gets_an_rpc_error_with_200(http, body):
    """As `openenv validate` sends it."""
    reply = await http.post("/mcp", content=body)
    assert reply.status_code == 200
    assert reply.json()["jsonrpc"] == "2.0"
    assert reply.json()["error"]["code"] == -32600


@pytest.mark.parametrize("crowd", [[[]] * 2_000, {str(n): {} for n in range(2_000)}])
async def test_a_crowded_message_is_not_given_to_the_package(http, monkeypatch, crowd):
    monkeypatch.setattr(route, "Call", None)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": [crowd]}}
    reply = await http.post("/mcp", json=message)
    assert reply.json()["error"]["code"] == -32600
    assert "over 1,000 objects and arrays" in reply.json()["error"]["message"]


async def test_without_the_package_one_line_names_it(http, monkeypatch):
    monkeypatch.setattr(route, "find_spec", lambda name: None)
    reply = await http.post("/mcp", json=PING)
    error = {"code": -32001, "message": route.MISSING}
    assert reply.json() == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert "pip install mcp" in route.MISSING


async def test_there_is_no_stream_and_no_way_from_other_sites(http):
    assert (await http.get("/mcp")).status_code == 405
    origin = {"Origin": "https://evil.example"}
    assert (await http.post("/mcp", json=PING, headers=origin)).status_code == 403


async def test_the_official_client_plays(tiny_data):
    pytest.importorskip("mcp")
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def call(session: Any, tool: str, **arguments: Any) -> tuple[bool, Any]:
        found = (await session.call_tool(tool, arguments)).model_dump(by_alias=True)
        wrong = found["isError"]
        return wrong, found["content"][0]["text"] if wrong else found["structuredContent"]

    with running_server(tiny_data, "--workers", "1") as server:
        async with (
            streamable_http_client(f"{server.url}/mcp") as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await session.initialize()
            tools = [tool.model_dump(by_alias=True) for tool in (await session.list_tools()).tools]
            assert [tool["name"] for tool in tools] == TOOLS
            for tool in tools:
                assert tool["description"]
                fields = tool["inputSchema"]["properties"]
                assert all(field["description"] for field in fields.values())
                assert "context" not in fields
            assert tools[3]["inputSchema"]["required"] == ["episode_id", "sql"]

            _, first = await call(session, "start_episode", question_id="shop-1")
            assert first["tables"] == ["customers", "products", "orders"]
            mine = {"episode_id": first["episode_id"]}
            sql = "SELECT count(*) FROM customers"
            seen = [
                (await call(session, "describe", **mine, table="customers"))[1],
                (await call(session, "sample", **mine, table="customers"))[1],
                (await call(session, "query", **mine, sql=sql))[1],
                (await call(session, "query", **mine, sql="SELECT nothing"))[1],
            ]
            assert {one["reward"] for one in seen} == {None}
            assert "customer_id" in seen[0]["result"]
            assert "nothing" in seen[3]["error"]
            again = (await call(session, "query", **mine, sql="SELECT nothing"))[1]
            assert again["steps_left"] == seen[3]["steps_left"] - 1, "a call of its own"
            _, last = await call(session, "answer", **mine, answer="5")
            assert (last["done"], last["outcome"]) == (True, "correct")
            assert last["reward"] == 1

            for tool, arguments, text in (
                ("answer", mine | {"answer": "5"}, "over"),
                ("describe", {"episode_id": "x", "table": "t"}, "call start_episode"),
                ("query", mine | {"sql": "  "}, "needs an argument"),
                ("query", mine | {"sql": "x" * 30_000}, "20,000"),
                ("start_episode", {"question_id": "none"}, "none"),
                ("start_episode", {"difficulty": "odd"}, "odd"),
            ):
                wrong, message = await call(session, tool, **arguments)
                assert wrong, tool
                assert text in message, (tool, message)


@pytest.mark.parametrize("settings", [{"api_key": TRAINER, "agent_keys": AGENT}])
async def test_an_agents_key_plays_its_own_episodes(http):
    pytest.importorskip("mcp")
    call = {"json": start("shop-1"), "headers": HEADERS | {"X-Episode-Id": "gate"}}
    assert (await http.post("/mcp", **call)).status_code == 401
    call["headers"] |= bearer(AGENT)
    reply = (await http.post("/mcp", **call)).json()
    where = {"episode_id": reply["result"]["structuredContent"]["episode_id"]}
    assert where["episode_id"].startswith("gate:"), "begun by a gateway"
    for key, status in ((AGENT, 200), (TRAINER, 404)):
        state = await http.get("/state", headers=bearer(key), params=where)
        assert state.status_code == status


@pytest.mark.parametrize("settings", [{"agent_keys": AGENT, "agent_tries": 1}])
async def test_an_agent_without_tries_left_is_told(http):
    pytest.importorskip("mcp")
    headers = HEADERS | bearer(AGENT)
    for left in (True, False):
        reply = (await http.post("/mcp", json=start("shop-1"), headers=headers)).json()["result"]
        assert reply["isError"] == (not left)
    assert "SQLENV_AGENT_TRIES" in reply["content"][0]["text"]


async def test_errors_are_counted_and_a_fault_is_only_logged(http, monkeypatch, caplog):
    pytest.importorskip("mcp")
    await http.post("/mcp", json=start("none"), headers=HEADERS)
    assert 'sqlenv_errors_total{code="unknown_question"} 1.0' in (await http.get("/metrics")).text

    async def fail(*given: object) -> bytes:
        raise KeyError("a secret")

    monkeypatch.setattr(EpisodePool, "reset", fail)
    reply = (await http.post("/mcp", json=start("none"), headers=HEADERS)).json()["result"]
    assert reply["isError"] is True
    assert "see its log" in reply["content"][0]["text"]
    assert "secret" not in str(reply)
    assert "a secret" in caplog.text
    assert 'sqlenv_errors_total{code="internal"} 1.0' in (await http.get("/metrics")).text
