"""OpenEnv's sessions: every frame, and their unmodified clients against a real server."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from env_server.app import create_app
from env_server.settings import Settings
from shared.server_process import running_server
from tests.conftest import eventually
from tests.env_server.http.conftest import AGENT, TRAINER, bearer
from tests.test_imports import ROOT

DESCRIBE = {"action_type": "DESCRIBE", "argument": "customers"}
GOOD = {"action_type": "QUERY", "argument": "SELECT count(*) FROM customers"}
RIGHT = {"action_type": "ANSWER", "argument": "5"}


@pytest.fixture
def http(tiny_data: Path, settings: dict[str, Any]) -> Iterator[TestClient]:
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1, **settings))
    with TestClient(app) as http:
        yield http


def call(socket: WebSocketTestSession, kind: str, /, **data: Any) -> tuple[str, dict[str, Any]]:
    socket.send_json({"type": kind, "data": data} if kind in ("reset", "step") else {"type": kind})
    reply = socket.receive_json()
    assert set(reply) == {"type", "data"}
    return reply["type"], reply["data"]


def test_an_episode(http):
    with http.websocket_connect("/ws") as socket:
        kind, first = call(socket, "reset", question_id="shop-1")
        assert kind == "observation"
        assert set(first) == {"observation", "reward", "done", "metadata"}
        assert (first["reward"], first["done"]) == (None, False)
        typed = DESCRIBE | {"metadata": {"by": "me"}}  # as OpenEnv's clients send it
        replies = [call(socket, "step", **step)[1] for step in (typed, GOOD, RIGHT)]
        assert all(isinstance(reply["reward"], float) for reply in replies)
        assert [reply["done"] for reply in replies] == [False, False, True]
        assert replies[-1]["metadata"]["outcome"] == "correct"
        kind, state = call(socket, "state")
        assert (kind, state["step_count"], state["outcome"]) == ("state", 3, "correct")
        again = http.get("/state", params={"episode_id": state["episode_id"]})
        assert again.json() == state, "the one pool"
        _, over = call(socket, "step", **GOOD)
        assert (over["code"], over["error_code"]) == ("EXECUTION_ERROR", "conflict")


@pytest.mark.parametrize(
    ("frame", "code", "text"),
    [
        ('{"type"', "INVALID_JSON", "not JSON"),
        ("[" * 200_000, "INVALID_JSON", "over 100,000"),
        ("7", "VALIDATION_ERROR", "7 is wrong; expected an object"),
        ('{"type": "step", "data": 1}', "VALIDATION_ERROR", "1 is wrong"),
        ('{"type": "dance"}', "UNKNOWN_TYPE", "expected one of reset, step"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE", "a list of 1"),
        ('{"type": "reset", "data": {"colour": 1}}', "VALIDATION_ERROR", "no such field"),
        ('{"type": "reset", "data": {"resume": true}}', "VALIDATION_ERROR", "episode_id"),
        ('{"type": "reset", "data": {"resume": "x"}}', "VALIDATION_ERROR", "valid boolean"),
        ('{"type": "reset", "data": {"question_id": "x"}}', "EXECUTION_ERROR", "x"),
        ('{"type": "step", "data": {"action_type": "QUERY"}}', "EXECUTION_ERROR", "a reset first"),
        ('{"type": "state"}', "EXECUTION_ERROR", "send a reset first"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_errors(http, frame, code, text):
    with http.websocket_connect("/ws") as socket:
        socket.send_text(frame)
        reply = socket.receive_json()
        assert (reply["type"], reply["data"]["code"]) == ("error", code)
        assert text in reply["data"]["message"]
        assert call(socket, "reset", question_id="shop-1")[0] == "observation", "it goes on"


def test_a_lost_connection_resumes_its_episode_by_id(http):
    with http.websocket_connect("/ws") as lost:
        call(lost, "reset", question_id="shop-1", episode_id="mine")
        call(lost, "step", **DESCRIBE)
    with http.websocket_connect("/ws") as socket:
        kind, error = call(socket, "step", **GOOD)
        assert kind == "error"
        kind, error = call(socket, "reset", question_id="shop-1", episode_id="mine")
        assert (kind, error["error_code"]) == ("error", "conflict")
        assert "resume: true" in error["message"]
        kind, reply = call(socket, "reset", episode_id="mine", resume=True)
        assert kind == "observation"
        assert reply["observation"]["action_history"] == ["DESCRIBE: customers"]
        assert call(socket, "step", **RIGHT)[1]["metadata"]["outcome"] == "correct"
    with http.websocket_connect("/ws") as socket:  # the reply to the last step was lost
        _, reply = call(socket, "reset", episode_id="mine", resume=True)
        assert (reply["done"], reply["metadata"]["outcome"]) == (True, "correct")
        _, fresh = call(socket, "reset", question_id="shop-1", episode_id="mine")
        assert (fresh["done"], fresh["observation"]["step_count"]) == (False, 0)


def test_a_resume_leaves_the_episode_before_it(http):
    with http.websocket_connect("/ws") as lost:
        call(lost, "reset", question_id="shop-1", episode_id="mine")
    with http.websocket_connect("/ws") as socket:
        call(socket, "reset", question_id="shop-1", episode_id="other")
        assert call(socket, "reset", episode_id="none", resume=True)[0] == "error"
        assert http.get("/state", params={"episode_id": "other"}).status_code == 200
        for _ in range(2):  # its own episode again
            assert call(socket, "reset", episode_id="mine", resume=True)[0] == "observation"
        assert http.get("/state", params={"episode_id": "other"}).status_code == 404
        assert http.get("/state", params={"episode_id": "mine"}).status_code == 200


@pytest.mark.parametrize("settings", [{"capacity": 1}])
def test_a_reset_leaves_the_episode_before(http):
    with http.websocket_connect("/ws") as socket, http.websocket_connect("/ws") as other:
        for _ in range(3):
            assert call(socket, "reset", question_id="shop-1")[0] == "observation"
        _, error = call(other, "reset", question_id="shop-1")
        assert error["code"] == "CAPACITY_REACHED"
        assert (error["active_sessions"], error["max_sessions"]) == (1, 1)
        socket.send_json({"type": "close"})
        with pytest.raises(WebSocketDisconnect):
            socket.receive_json()
        call(other, "reset", question_id="shop-1", episode_id="a")
        call(other, "step", **RIGHT)
        call(other, "reset", question_id="shop-1", episode_id="b")
        state = http.get("/state?episode_id=a").json()
        assert state["outcome"] == "correct", "an ended episode stays"


with_keys = pytest.mark.parametrize("settings", [{"api_key": TRAINER, "agent_keys": AGENT}])


@with_keys
def test_an_agent_sees_rewards_at_the_end_only(http):
    with pytest.raises(WebSocketDisconnect), http.websocket_connect("/ws"):
        pass
    with http.websocket_connect("/ws", headers=bearer(AGENT)) as socket:
        assert call(socket, "reset", rewards="step")[1]["error_code"] == "forbidden"
        _, first = call(socket, "reset", question_id="shop-1", episode_id="mine")
        replies = [call(socket, "step", **step)[1] for step in (DESCRIBE, GOOD)]
        for reply in (first, *replies):
            assert (reply["reward"], reply["observation"]["reward"]) == (None, None)
            assert reply["metadata"]["ledger"] is None
        last = call(socket, "step", **RIGHT)[1]
        assert (last["reward"], last["metadata"]["ledger"]) == (1.0, None)
    with http.websocket_connect("/ws", headers=bearer(TRAINER)) as socket:
        _, error = call(socket, "reset", episode_id="mine", resume=True)
        assert error["error_code"] == "unknown_episode", "another key's"


@with_keys
def test_an_agent_cant_play_an_ended_id_again_and_a_trainer_can(http):
    for key, again in ((AGENT, "error"), (TRAINER, "observation")):
        with http.websocket_connect("/ws", headers=bearer(key)) as socket:
            call(socket, "reset", question_id="shop-1", episode_id="e")
            call(socket, "step", **RIGHT)
            kind, reply = call(socket, "reset", question_id="shop-1", episode_id="e")
            assert (kind, reply.get("error_code")) == (again, "conflict" if key == AGENT else None)
    state = http.get("/state", params={"episode_id": "e"}, headers=bearer(AGENT))
    assert state.json()["outcome"] == "correct", "a refused reset leaves it"
    with http.websocket_connect("/ws", headers=bearer(AGENT)) as socket:
        wanted = {"question_id": "shop-1", "episode_id": "e", "actions": ["ANSWER: 5"]}
        for _ in range(2):  # the episode itself, held and then rebuilt
            assert call(socket, "reset", **wanted)[1]["metadata"]["outcome"] == "correct"
            assert http.delete("/episodes/e", headers=bearer(AGENT)).status_code == 200


@with_keys
def test_no_page_of_another_site_opens_one(http):
    headers = bearer(AGENT) | {"Origin": "https://evil.example"}
    with pytest.raises(WebSocketDisconnect), http.websocket_connect("/ws", headers=headers):
        pass
    headers["Origin"] = "http://testserver"
    with http.websocket_connect("/ws", headers=headers) as socket:
        assert call(socket, "reset")[0] == "observation"


def test_a_plain_request_is_told_to_upgrade(http):
    reply = http.get("/ws")
    assert reply.status_code == 426
    assert "WebSocket" in reply.json()["error"]["message"]


@pytest.mark.parametrize("settings", [{"lease_s": 0.2}])
def test_an_idle_connection_ends_with_the_lease(http):
    with http.websocket_connect("/ws") as socket, pytest.raises(WebSocketDisconnect) as end:
        socket.receive_json()
    assert "SQLENV_LEASE_S" in end.value.reason


def test_over_real_sockets(tiny_data):
    """The handshake, the limits on a connection, and that episodes outlive their connections."""
    sync = pytest.importorskip("websockets.sync.client")
    from websockets.exceptions import ConnectionClosedError, InvalidStatus

    limits = {"max_connections": 8}
    with running_server(tiny_data, "--workers", "1", **limits) as server, ExitStack() as opened:
        url = f"ws://127.0.0.1:{server.port}"

        def connect() -> Any:
            return opened.enter_context(sync.connect(f"{url}/ws", open_timeout=60))

        def ask(socket: Any, **frame: Any) -> dict[str, Any]:
            socket.send(json.dumps(frame))
            return dict(json.loads(socket.recv(timeout=60)))

        first = connect()
        reply = ask(first, type="reset", data={"question_id": "shop-1", "episode_id": "mine"})
        assert reply["type"] == "observation"
        for path in ("/none", "/docs/scripts/x", "/step"):  # ignored, as HTTP allows
            with pytest.raises(InvalidStatus) as refused:
                sync.connect(url + path, open_timeout=60)
            assert refused.value.response.status_code in (404, 405)
        threads = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
        large = connect()
        large.send("x" * 200_000)
        with pytest.raises(ConnectionClosedError, match="1009"):
            large.recv(timeout=60)
        others = [connect() for _ in range(8)]  # the oldest gives way
        assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) == threads
        with pytest.raises(ConnectionClosedError, match="1013"):
            first.recv(timeout=60)
        reply = ask(others[-1], type="reset", data={"episode_id": "mine", "resume": True})
        assert reply["data"]["metadata"]["question_id"] == "shop-1"
        assert ask(others[-1], type="step", data=RIGHT)["data"]["done"] is True


SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000) "
SLOW_STEP = {"action_type": "QUERY", "argument": SLOW + "SELECT count(*) FROM n"}


def test_a_step_is_answered_before_its_connection_gives_way_or_the_server_stops(tiny_data):
    sync = pytest.importorskip("websockets.sync.client")
    with (
        running_server(tiny_data, "--workers", "1", max_connections=8) as server,
        sync.connect(f"ws://127.0.0.1:{server.port}/ws", open_timeout=60) as socket,
        ExitStack() as opened,
    ):
        socket.send(json.dumps({"type": "reset", "data": {}}))
        socket.recv(timeout=60)
        for stops in (False, True):
            socket.send(json.dumps({"type": "step", "data": SLOW_STEP}))
            eventually(lambda: "sqlenv_in_flight 1.0" in httpx.get(server.url + "/metrics").text)
            if stops:
                server.send_signal(signal.SIGTERM)
            else:
                for _ in range(9):  # which are idle, and newer
                    client = opened.enter_context(httpx.Client(base_url=server.url))
                    assert client.get("/health").status_code == 200
            assert "4000000" in socket.recv(timeout=60)
        assert server.wait(60) == 0


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"max_unfinished_bytes": 50_000}, "1013"), ({"body_timeout_s": 0.3}, "1008")],
)
def test_a_message_that_does_not_arrive_is_not_held(tiny_data, limits, code):
    """Its bytes have a limit, as those of unfinished bodies do, and its time too."""
    sync = pytest.importorskip("websockets.sync.client")
    from websockets.exceptions import ConnectionClosedError

    begun = bytes([0x81, 0xFF]) + (120_000).to_bytes(8, "big") + bytes(4) + b" " * 60_000
    with (
        running_server(tiny_data, "--workers", "1", **limits) as server,
        sync.connect(f"ws://127.0.0.1:{server.port}/ws", open_timeout=60) as socket,
    ):
        socket.socket.sendall(begun)
        with pytest.raises(ConnectionClosedError, match=code):
            socket.recv(timeout=60)


def test_after_a_late_step_the_session_goes_on_from_its_state(http):
    service = http.app.state.service
    with http.websocket_connect("/ws") as socket:
        call(socket, "reset", question_id="shop-1")
        service.settings = service.settings.model_copy(update={"request_timeout_s": 0.01})
        kind, late = call(socket, "step", **SLOW_STEP)
        assert (kind, late["error_code"]) == ("error", "timeout")
        assert "or ask for the episode's state" in late["message"]
        service.settings = service.settings.model_copy(update={"request_timeout_s": 60.0})
        eventually(lambda: call(socket, "state")[1]["step_count"] == 1)
        assert call(socket, "step", **RIGHT)[1]["done"] is True


@pytest.mark.slow  # importing openenv takes most of it
def test_openenvs_clients_and_validator(tiny_data):
    """With the installed one of openenv 0.10 and openenv-core 0.3."""
    pytest.importorskip("openenv", reason="openenv or openenv-core is not installed")
    from openenv.cli._validation import validate_running_environment
    from openenv.core.generic_client import GenericEnvClient

    from shared.agents.openenv import SQLEnv

    with running_server(tiny_data, "--workers", "1") as server:
        report = validate_running_environment(server.url, timeout_s=60)
        assert report["passed"], report["summary"]
        with GenericEnvClient(base_url=server.url).sync() as generic:
            assert generic.reset(question_id="shop-1").done is False
            rewards = [generic.step(step).reward for step in (DESCRIBE, GOOD, RIGHT)]
            assert rewards[-1] == 1.0
            assert generic.state()["outcome"] == "correct"
            with pytest.raises(RuntimeError, match="EXECUTION_ERROR"):
                generic.step(GOOD)
        with SQLEnv(base_url=server.url).sync() as typed:
            first = typed.reset(question_id="shop-1")
            assert first.observation.tables == ["customers", "products", "orders"]
            assert typed.step("ANSWER: 5").observation.done
            assert typed.state().outcome == "correct"


def test_the_manifest():
    manifest = yaml.safe_load((ROOT / "openenv.yaml").read_text())
    assert (manifest["type"], manifest["runtime"], manifest["port"]) == ("space", "fastapi", 8000)
    assert manifest["app"] == "env_server.asgi:app"
    validation = pytest.importorskip("openenv.validation.parsers.openenv_yaml")
    assert validation.OpenEnvYamlParser().parse(ROOT).name == "sqlenv"
