"""Authorization, with each of the keys set or not."""

import importlib
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from env_server.app import create_app
from env_server.commands import command
from env_server.http import auth
from env_server.settings import Settings
from env_server.telemetry import Metrics
from shared.errors import Unauthorized
from tests.env_server.http.conftest import AGENT, OPERATOR, TRAINER, bearer, reset_scope, serving

pytestmark = pytest.mark.anyio
# those that need no key: probes, and pages, to which a browser sends none
PROBES = {"/health", "/ready", "/docs", "/openapi.json", "/docs/scripts/nothing"}
AGENTS = PROBES | {"/metadata", "/schema", "/state?episode_id=e", "/nothing", "/operators"}
AGENTS |= {"/docsx", "/questions", "/databases"}
ALL = AGENTS | {"/operator/tries", "/operator/nothing", "/metrics"}


async def opened(http: httpx.AsyncClient, key: str | None) -> set[str]:
    replies = {path: await http.get(path, headers=bearer(key)) for path in ALL}
    for reply in replies.values():
        if reply.status_code == 401:
            assert reply.json()["error"]["code"] == "unauthorized"
            assert reply.headers["www-authenticate"] == "Bearer"
    return {path for path, reply in replies.items() if reply.status_code != 401}


@pytest.mark.parametrize(
    ("keys", "by_nobody", "by_trainer", "by_agent", "by_operator"),
    [
        ({}, ALL, ALL, ALL, ALL),
        ({"api_key": TRAINER}, PROBES, AGENTS, PROBES, PROBES),
        ({"operator_key": OPERATOR}, AGENTS, AGENTS, AGENTS, ALL),
        ({"api_key": f"old-{TRAINER},{TRAINER}", "agent_keys": f"another-{AGENT}, {AGENT}",
          "operator_key": OPERATOR},
         PROBES, AGENTS, AGENTS, ALL),
    ],
    ids=["no keys", "the trainer's", "the operator's", "all"],
)  # fmt: skip
async def test_what_each_key_opens(tiny_data, keys, by_nobody, by_trainer, by_agent, by_operator):
    async with serving(tiny_data, **keys) as http:
        found = [await opened(http, key) for key in (None, TRAINER, AGENT, OPERATOR)]
    assert found == [by_nobody, by_trainer, by_agent, by_operator]


async def test_a_wrong_key_opens_nothing_and_is_not_echoed(tiny_data):
    bare = ("", "Bearer", "Bearer ", TRAINER, f"Basic {TRAINER}")
    wrong = (*bare, f"Bearer {TRAINER}x", f"Bearer {TRAINER[:-1]}", "Bearer é")
    async with serving(tiny_data, api_key=TRAINER, operator_key=OPERATOR) as http:
        for header in wrong:
            reply = await http.post("/reset", headers={"Authorization": header.encode()}, json={})
            assert reply.status_code == 401, header
            assert TRAINER[:-1] not in reply.text, header
            assert "SQLENV_API_KEY" in reply.json()["error"]["message"], header
        any_case = {"Authorization": f"bearer  {TRAINER}"}
        assert (await http.post("/reset", headers=any_case)).status_code == 200


@pytest.mark.parametrize(
    ("host", "settings", "key", "status"),
    [
        ("evil.example", {}, None, 403),
        ("Evil.Example.:8000", {}, None, 403),
        ("localhost:8000", {}, None, 200),
        ("sqlenv.localhost", {}, None, 200),
        ("[::ffff:127.0.0.1]:8000", {}, None, 200),
        ("sqlenv", {}, None, 200),
        ("127.1:8000", {}, None, 200),
        ("box.local", {}, None, 200),
        ("Env-Server.Sqlenv.svc:8000", {}, None, 200),
        ("env-server.sqlenv.svc.cluster.local.", {}, None, 200),
        ("local.evil.example", {}, None, 403),
        ("evil.notlocal", {}, None, 403),
        ("1.evil", {}, None, 403),
        ("evil.example", {"host": "0.0.0.0"}, None, 403),
        ("env.example", {"host": "env.example"}, None, 200),
        ("b.example:80", {"host": "::", "hosts": "a.example, B.example"}, None, 200),
        ("evil.b.example", {"hosts": "a.example, b.example"}, None, 403),
        ("evil.example", {"hosts": "*"}, None, 200),
        ("evil.example", {"operator_key": OPERATOR}, None, 403),
        ("sqlenv.example", {"operator_key": OPERATOR}, OPERATOR, 200),
        ("evil.example", {"api_key": TRAINER}, None, 401),
        ("sqlenv.example", {"api_key": TRAINER}, TRAINER, 200),
    ],
)
async def test_no_site_reaches_a_server_by_a_name_of_its_own(
    tiny_data, host, settings, key, status
):
    headers = {"Host": host} | bearer(key)
    async with serving(tiny_data, **settings) as http:
        for path in ("/metadata", "/"):
            reply = await http.get(path, headers=headers)
            assert reply.status_code == status
            assert ("www-authenticate" in reply.headers) == (status == 401)
        assert (await http.get("/health", headers=headers)).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://env:81", "http://env"])
@pytest.mark.parametrize("path", ["/reset", "/reset_batch", "/mcp", "/page/play"])
async def test_no_page_of_another_site_starts_an_episode(tiny_data, origin, path):
    bodies: dict[str, Any] = {
        "/reset": {"json": {}},
        "/reset_batch": {"json": {"resets": [{}]}},
        "/mcp": {"json": {"jsonrpc": "2.0", "id": 1, "method": "ping"}},
        "/page/play": {"data": {"question_id": "zoo-2", "step_budget": ""}},
    }
    own = origin == "http://env"
    for settings, key in (({}, None), ({"api_key": TRAINER}, TRAINER)):
        async with serving(tiny_data, **settings) as http:
            headers = {"Origin": origin} | bearer(key)
            reply = await http.post(path, headers=headers, **bodies[path])
            assert (reply.status_code in (200, 303)) == own, reply.text
            if not own:
                assert reply.status_code == 403
                assert origin in reply.text
            assert (await http.get("/health", headers=headers)).status_code == 200


def test_keys_are_compared_in_constant_time_and_all_of_them(monkeypatch):
    compared: list[bytes] = []
    monkeypatch.setattr(auth.hmac, "compare_digest", lambda _, key: compared.append(key))
    settings = Settings(api_key=TRAINER, operator_key=OPERATOR)
    with pytest.raises(Unauthorized):
        auth.Keys(create_app(settings), settings, Metrics()).check("/step", b"Bearer x")
    assert compared == [TRAINER.encode(), OPERATOR.encode()]


async def test_a_body_is_not_read_before_the_key_is_right():
    app = create_app(Settings(api_key=TRAINER))
    read: list[bool] = []
    sent: list[Any] = []

    async def receive() -> dict[str, object]:
        read.append(True)
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        sent.append(message.get("status"))

    await app(reset_scope(app), receive, send)
    assert (sent[0], read) == (401, [])


@pytest.mark.parametrize(
    ("host", "keys", "closed"),
    [
        ("127.8.8.8", {}, []),
        ("::1", {}, []),
        ("localhost", {}, []),
        ("0.0.0.0", {}, ["/operator"]),
        ("::", {}, ["/operator"]),
        ("env-server", {}, ["/operator"]),
        ("0.0.0.0", {"operator_key": OPERATOR}, []),
        ("127.0.0.1", {"agent_keys": AGENT}, ["/operator", "/metrics"]),
        ("127.0.0.1", {"api_key": TRAINER}, ["/operator", "/metrics"]),
    ],
)
async def test_operators_need_a_key_unless_the_server_listens_on_loopback(
    tiny_data, host, keys, closed
):
    async with serving(tiny_data, host=host, **keys) as http:
        for path in ("/operator", "/metrics"):
            reply = await http.get("/operator/tries" if path == "/operator" else path)
            assert reply.status_code == (401 if path in closed or "operator_key" in keys else 200)
            assert path not in closed or "SQLENV_OPERATOR_KEY" in reply.json()["error"]["message"]


def test_operators_need_a_key_where_another_server_listens(tiny_data, monkeypatch):
    """It may listen on any address: `uvicorn env_server.asgi:app --host 0.0.0.0`.

    In a Space it answers under the Space's name.
    """
    monkeypatch.setenv("SPACE_HOST", "me-sqlenv.hf.space")
    monkeypatch.setenv("SQLENV_DATA_DIR", str(tiny_data))
    monkeypatch.setenv("SQLENV_SQL_WORKERS", "1")
    monkeypatch.setenv("SQLENV_HOST", "127.0.0.1")
    with TestClient(importlib.import_module("env_server.asgi").app) as http:
        assert http.get("/operator/tries").status_code == 401
        names = ("testserver", "me-sqlenv.hf.space", "evil.hf.space")
        found = [http.get("/questions", headers={"Host": name}).status_code for name in names]
        assert found == [200, 200, 403]


def test_keys_hold_below_a_root_path(tiny_data):
    """`uvicorn --root-path /sql` puts it before every path."""
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1, operator_key=OPERATOR))
    with TestClient(app, root_path="/sql") as http:
        paths = ("/questions", "/operator/tries", "/metrics", "/")
        assert [http.get(f"/sql{path}").status_code for path in paths] == [200, 401, 401, 200]


# -- settings


def test_keys_are_read_from_files(tmp_path, monkeypatch):
    monkeypatch.setenv("SQLENV_API_KEY", "")  # as compose passes one that is not set
    for name, text in {
        "api_key": f" {TRAINER}\nnew-{TRAINER}\n", "agent_keys": f"{AGENT}\nanother-{AGENT}\n",
        "operator_key": OPERATOR,
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"SQLENV_{name.upper()}_FILE", str(tmp_path / name))
    settings = Settings()
    assert settings.trainers == [TRAINER, f"new-{TRAINER}"]
    assert settings.agents == [AGENT, f"another-{AGENT}"]
    assert settings.operator_key
    assert settings.operator_key.get_secret_value() == OPERATOR


@pytest.mark.parametrize(
    ("content", "variable", "problem"),
    [
        (None, "", "SQLENV_API_KEY_FILE: can't read {}: No such file"),
        (b"\n", "", "SQLENV_API_KEY_FILE: {} is empty"),
        (b"SECRET\xff-0123456789", "", "api_key may hold only visible ASCII"),
        (b"SECRET-0123456789", "SECRET-0123456789", "SQLENV_API_KEY_FILE are both set"),
    ],
)
def test_a_bad_key_file_is_one_line(tmp_path, content, variable, problem):
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    environment = {"SQLENV_API_KEY": variable, "SQLENV_API_KEY_FILE": str(file)}
    result = CliRunner().invoke(command, ["--port", "0"], env=environment)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert problem.format(file) in result.stderr
    assert "SECRET" not in result.output


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"SQLENV_API_KEY": "short-SECRET"}, "api_key"),
        ({"SQLENV_API_KEY": "SECRET with a space in it"}, "api_key"),
        ({"SQLENV_API_KEY": "SECRET-0123456789,"}, "api_key"),
        ({"SQLENV_API_KEY": " "}, "api_key"),
        ({"SQLENV_OPERATOR_KEY": "SECRETé-0123456789"}, "operator_key"),
        ({"SQLENV_API_KEY": "SECRET-0123456789", "SQLENV_OPERATOR_KEY": "SECRET-0123456789"},
         "operator_key"),
        ({"SQLENV_AGENT_KEYS": "agent-SECRET-0123456789,short-SECRET"}, "agent_keys"),
        ({"SQLENV_AGENT_KEYS": ",".join(["agent-SECRET-0123456789"] * 2)}, "agent_keys"),
        ({"SQLENV_API_KEY": "SECRET-0123456789", "SQLENV_AGENT_KEYS": "agent-SECRET-0123456789",
          "SQLENV_CAPACITY": "1000"}, "lower agent_capacity"),
    ],
)  # fmt: skip
def test_a_bad_key_is_refused_at_the_start_and_not_shown(environment, named):
    result = CliRunner().invoke(command, ["--port", "0"], env=environment)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert named in result.stderr
    assert "SECRET" not in result.output
