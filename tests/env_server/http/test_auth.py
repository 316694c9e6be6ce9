"""Authorization, with each of the keys set or not."""

import hmac
import importlib
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from pydantic import SecretStr
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient
from typer.testing import CliRunner

from env_server.app import create_app
from env_server.commands import command
from env_server.episodes import ANYONE, Caller
from env_server.http import auth
from env_server.http.auth import Keys
from env_server.settings import Settings
from env_server.telemetry import Metrics
from shared.client import ClientLimits, in_process
from shared.client.auth import bearer
from shared.errors import Unauthorized
from tests.env_server.http.conftest import reset_scope

pytestmark = pytest.mark.anyio
AGENT, OPERATOR = "agent-key-0123456789", "operator-key-0123456789"
# those that need no key: probes, and pages, to which a browser sends none
PROBES = ["/health", "/ready", "/docs", "/redoc", "/openapi.json", "/docs/scripts/nothing"]
AGENTS = ["/metadata", "/schema", "/state?episode_id=e", "/nothing", "/operators", "/docsx"]
AGENTS += ["/questions", "/databases"]
OPERATORS = ["/operator/verdicts", "/operator/verdicts/e", "/metrics"]


@asynccontextmanager
async def serving(data_dir: Path, **given: str | None) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(data_dir=data_dir, sql_workers=1, **given))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://e") as http,
    ):
        yield http


async def opened(http: httpx.AsyncClient, key: str | None) -> set[str]:
    """The paths whose reply is not 401."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    open_paths = set()
    for path in [*PROBES, *AGENTS, *OPERATORS]:
        reply = await http.get(path, headers=headers)
        if reply.status_code == 401:
            assert reply.json()["error"]["code"] == "unauthorized"
            assert reply.headers["www-authenticate"] == "Bearer"
        else:
            open_paths.add(path)
    return open_paths


@pytest.mark.parametrize(
    ("agent", "operator", "by_nobody", "by_agent", "by_operator"),
    [
        (
            None,
            None,
            [*PROBES, *AGENTS, *OPERATORS],
            [*PROBES, *AGENTS, *OPERATORS],
            [*PROBES, *AGENTS, *OPERATORS],
        ),
        (AGENT, None, PROBES, [*PROBES, *AGENTS], PROBES),
        (None, OPERATOR, [*PROBES, *AGENTS], [*PROBES, *AGENTS], [*PROBES, *AGENTS, *OPERATORS]),
        (AGENT, OPERATOR, PROBES, [*PROBES, *AGENTS], [*PROBES, *AGENTS, *OPERATORS]),
    ],
    ids=["no keys", "the agents'", "the operator's", "both"],
)
async def test_what_each_key_opens(
    tiny_data: Path,
    agent: str | None,
    operator: str | None,
    by_nobody: list[str],
    by_agent: list[str],
    by_operator: list[str],
) -> None:
    async with serving(tiny_data, api_key=agent, operator_key=operator) as http:
        assert await opened(http, None) == set(by_nobody)
        assert await opened(http, AGENT) == set(by_agent)
        assert await opened(http, OPERATOR) == set(by_operator)


async def test_a_wrong_key_opens_nothing_and_is_not_echoed(tiny_data: Path) -> None:
    bare = ("", "Bearer", "Bearer ", AGENT, f"Basic {AGENT}")
    wrong = (*bare, f"Bearer {AGENT}x", f"Bearer {AGENT[:-1]}", "Bearer é")
    async with serving(tiny_data, api_key=AGENT, operator_key=OPERATOR) as http:
        for header in wrong:
            reply = await http.post("/reset", headers={"Authorization": header.encode()}, json={})
            assert reply.status_code == 401, header
            assert AGENT[:-1] not in reply.text, header
            assert "SQLENV_API_KEY" in reply.json()["error"]["message"], header


@pytest.mark.parametrize(
    ("host", "settings", "key", "status"),
    [
        ("evil.example", {}, None, 403),
        ("Evil.Example.:8000", {}, None, 403),
        ("localhost:8000", {}, None, 200),
        ("sqlenv.localhost", {}, None, 200),
        ("127.0.0.1:8000", {}, None, 200),
        ("[::ffff:127.0.0.1]:8000", {}, None, 200),
        ("sqlenv", {}, None, 200),
        ("evil.example", {"host": "0.0.0.0"}, None, 200),
        ("evil.example", {"operator_key": OPERATOR}, None, 403),
        ("sqlenv.example", {"operator_key": OPERATOR}, OPERATOR, 200),
        ("evil.example", {"api_key": AGENT}, None, 401),
        ("sqlenv.example", {"api_key": AGENT}, AGENT, 200),
    ],
)
async def test_no_site_reaches_a_local_server_by_a_name_of_its_own(
    tiny_data: Path, host: str, settings: dict[str, str], key: str | None, status: int
) -> None:
    headers = {"Host": host} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with serving(tiny_data, **settings) as http:
        for path in ("/metadata", "/"):
            reply = await http.get(path, headers=headers)
            assert reply.status_code == status
            assert ("www-authenticate" in reply.headers) == (status == 401)
            assert status != 403 or "accepts localhost" in reply.json()["error"]["message"]
        assert (await http.get("/health", headers=headers)).status_code == 200


async def test_the_scheme_is_case_insensitive(tiny_data: Path) -> None:
    async with serving(tiny_data, api_key=AGENT) as http:
        assert (
            await http.post("/reset", headers={"Authorization": f"bearer  {AGENT}"})
        ).status_code == 200


def test_a_client_is_its_connection_without_keys_and_its_key_with_them() -> None:
    def counted(peer: tuple[str, int] | None, caller: Caller = ANYONE) -> str:
        scope = {"type": "http", "headers": [], "client": peer, "state": {"caller": caller}}
        return auth.client_of(HTTPConnection(scope))

    assert counted(("127.0.0.1", 4711)) == "127.0.0.1:4711"
    assert counted(("127.0.0.1", 4711), Caller("agent-1")) == "agent-1"
    assert counted(None) == "unknown"


def test_keys_are_compared_in_constant_time_and_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[bytes] = []
    compare_digest = hmac.compare_digest

    def compare(given: bytes, key: bytes) -> bool:
        compared.append(key)
        return compare_digest(given, key)

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)
    settings = Settings(api_key=SecretStr(AGENT), operator_key=SecretStr(OPERATOR))
    keys = Keys(create_app(settings), settings, Metrics())
    for given in (AGENT, OPERATOR):
        compared.clear()
        keys.check("/step", f"Bearer {given}".encode())
        assert set(compared) == {AGENT.encode(), OPERATOR.encode()}


async def test_a_body_is_not_read_before_the_key_is_right(tiny_data: Path) -> None:
    read: list[int] = []
    async with serving(tiny_data, api_key=AGENT) as http:
        app = http._transport.app  # type: ignore[attr-defined]
        sent: list[int] = []

        async def receive() -> dict[str, object]:
            read.append(1)
            return {"type": "http.request", "body": b"{}"}

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                sent.append(message["status"])  # type: ignore[arg-type]

        await app(reset_scope(app), receive, send)
    assert (sent, read) == ([401], [])


# -- agents' keys and loopback

ONE, TWO = "agent-one-0123456789", "agent-two-0123456789"


def sent(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_every_agent_has_a_key_and_episodes_of_its_own(tiny_data: Path) -> None:
    keys = {"api_key": AGENT, "agent_keys": f"{ONE}, {TWO}", "operator_key": OPERATOR}
    async with serving(tiny_data, **keys) as http:
        for key in (ONE, TWO):
            assert await opened(http, key) == {*PROBES, *AGENTS}
        body = {"episode_id": "e", "seed": 1}
        assert (await http.post("/reset", json=body, headers=sent(ONE))).status_code == 200
        action = {"episode_id": "e", "action": "QUERY: SELECT 1"}
        for path, sends in (("/step", action), ("/step_batch", {"steps": [action]})):
            reply = await http.post(path, json=sends, headers=sent(TWO))
            assert "unknown_episode" in reply.text
        reply = await http.post("/reset", json={"rewards": "step"}, headers=sent(TWO))
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
        step = await http.post("/step", json=action, headers=sent(ONE))
        assert step.json()["reward"] is step.json()["info"]["ledger"] is None
        trained = await http.post(
            "/reset", json={"actions": ["QUERY: SELECT 1"]}, headers=sent(AGENT)
        )
        assert trained.json()["info"]["ledger"] is not None
        state = await http.get("/state?episode_id=e", headers=sent(OPERATOR))
        assert state.json()["step_count"] == 1
        metrics = (await http.get("/metrics", headers=sent(OPERATOR))).text
        assert 'sqlenv_key_leases{key="agent-1"} 1.0' in metrics
        assert ONE not in metrics


async def test_an_agents_places_are_counted(tiny_data: Path) -> None:
    async with serving(tiny_data, agent_keys=ONE, agent_capacity="2") as http:
        resets = {"resets": [{"seed": number} for number in range(3)]}
        reply = await http.post("/reset_batch", json=resets, headers=sent(ONE))
        refused = reply.json()["results"][2]["error"]
        assert refused["code"] == "capacity"
        assert "key agent-1" in refused["message"]
        assert "SQLENV_AGENT_CAPACITY" in refused["message"]


@pytest.mark.parametrize(
    ("host", "keys", "closed"),
    [
        ("127.0.0.1", {}, []),
        ("127.8.8.8", {}, []),
        ("::1", {}, []),
        ("localhost", {}, []),
        ("0.0.0.0", {}, ["/operator"]),
        ("::", {}, ["/operator"]),
        ("10.1.2.3", {}, ["/operator"]),
        ("env-server", {}, ["/operator"]),
        ("0.0.0.0", {"operator_key": OPERATOR}, []),
        ("127.0.0.1", {"agent_keys": ONE}, ["/operator", "/metrics"]),
        ("127.0.0.1", {"api_key": AGENT}, ["/operator", "/metrics"]),
    ],
)
async def test_operators_need_a_key_unless_the_server_listens_on_loopback(
    tiny_data: Path,
    caplog: pytest.LogCaptureFixture,
    host: str,
    keys: dict[str, str],
    closed: list[str],
) -> None:
    async with serving(tiny_data, host=host, **keys) as http:
        for path in ("/operator", "/metrics"):
            warned = f"{path} is closed: set SQLENV_OPERATOR_KEY" in caplog.text
            assert warned == (path in closed)
            reply = await http.get("/operator/verdicts" if path == "/operator" else path)
            assert reply.status_code == (401 if path in closed or "operator_key" in keys else 200)
            if path in closed:
                assert "SQLENV_OPERATOR_KEY" in reply.json()["error"]["message"]


def test_operators_need_a_key_where_another_server_listens(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may listen on any address: `uvicorn env_server.asgi:app --host 0.0.0.0`."""
    monkeypatch.setenv("SQLENV_DATA_DIR", str(tiny_data))
    monkeypatch.setenv("SQLENV_SQL_WORKERS", "1")
    monkeypatch.setenv("SQLENV_HOST", "127.0.0.1")
    with TestClient(importlib.import_module("env_server.asgi").app) as http:
        assert http.get("/questions").status_code == 200
        assert http.get("/operator/verdicts").status_code == 401


def test_keys_hold_below_a_root_path(tiny_data: Path) -> None:
    """`uvicorn --root-path /sql` puts it before every path."""
    settings = Settings(
        data_dir=tiny_data, sql_workers=1, operator_key=SecretStr("operator-0123456789")
    )
    with TestClient(create_app(settings), root_path="/sql") as http:
        replies = [
            http.get(f"/sql{path}") for path in ("/questions", "/operator/verdicts", "/metrics")
        ]
        assert [reply.status_code for reply in replies] == [200, 401, 401]
        assert http.get("/sql/").status_code == 200


async def test_ids_of_the_server_have_122_random_bits(tiny_data: Path) -> None:
    async with serving(tiny_data) as http:
        replies = [await http.post("/reset", json={}) for _ in range(3)]
        ids = [UUID(reply.json()["episode_id"]) for reply in replies]
        assert [one.version for one in ids] == [4, 4, 4], "random, but for 6 bits"
        assert len(set(ids)) == 3
        replies = [
            await http.post("/reset", json={}, headers={"X-Episode-Id": "by-a-gateway"})
            for _ in range(2)
        ]
        names = [reply.json()["episode_id"] for reply in replies]
        for name in names:
            start, _, tail = name.partition(":")
            assert (start, len(urlsafe_b64decode(tail + "=="))) == ("by-a-gateway", 16)
        assert names[0] != names[1]
        replies = [
            await http.post("/step", json={"episode_id": name, "action": "QUERY: SELECT 1"})
            for name in ("by-a-gateway", names[0])
        ]
        assert [reply.status_code for reply in replies] == [404, 200]
        body = {"episode_id": names[0], "actions": ["QUERY: SELECT 1"]}
        state = (await http.get("/state", params={"episode_id": names[0]})).json()
        rebuilt = await http.post("/reset", json=body | {"question_id": state["question_id"]})
        assert rebuilt.status_code == 200, "such an id can be rebuilt, too"


# -- the client


async def test_the_client_sends_its_key(tiny_data: Path) -> None:
    settings = Settings(data_dir=tiny_data, sql_workers=1, api_key=SecretStr(AGENT))
    async with in_process(create_app(settings), api_key=AGENT) as client:
        reply = await client.reset(seed=1)
        assert (await client.step(reply.episode_id, "QUERY: SELECT 1")).observation.result
    async with in_process(create_app(settings), ClientLimits(max_attempts=1)) as client:
        with pytest.raises(Unauthorized, match="SQLENV_API_KEY"):
            await client.reset(seed=1)


async def test_client_and_server_read_the_same_variable(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLENV_API_KEY", AGENT)
    async with in_process(create_app(Settings(data_dir=tiny_data, sql_workers=1))) as client:
        await client.reset(seed=1)
    async with in_process(
        create_app(Settings(data_dir=tiny_data)), api_key="another-key-0123456789"
    ) as client:
        with pytest.raises(Unauthorized):
            await client.reset(seed=1)


def test_a_key_that_headers_cannot_carry_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SQLENV_API_KEY", raising=False)
    assert bearer() == {}
    with pytest.raises(Unauthorized) as caught:
        bearer("line\nbreak")
    assert "line" not in caught.value.message


# -- settings


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"SQLENV_API_KEY": "short-SECRET"}, "api_key"),
        ({"SQLENV_API_KEY": "SECRET with a space in it"}, "api_key"),
        ({"SQLENV_OPERATOR_KEY": "SECRETé-0123456789"}, "operator_key"),
        (
            {"SQLENV_API_KEY": "SECRET-0123456789", "SQLENV_OPERATOR_KEY": "SECRET-0123456789"},
            "operator_key",
        ),
        ({"SQLENV_AGENT_KEYS": "agent-SECRET-0123456789,short-SECRET"}, "agent_keys"),
        ({"SQLENV_AGENT_KEYS": "agent-SECRET-0123456789,"}, "agent_keys"),
        ({"SQLENV_AGENT_KEYS": ",".join(["agent-SECRET-0123456789"] * 2)}, "agent_keys"),
        (
            {"SQLENV_API_KEY": "SECRET-0123456789", "SQLENV_AGENT_KEYS": "SECRET-0123456789"},
            "agent_keys",
        ),
    ],
)
def test_a_bad_key_is_refused_at_the_start_and_not_shown(
    environment: dict[str, str], named: str
) -> None:
    result = CliRunner().invoke(command, ["--port", "0"], env=environment)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert named in result.stderr
    assert "SECRET" not in result.output


def test_an_empty_key_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQLENV_API_KEY", "SQLENV_AGENT_KEYS"):
        monkeypatch.setenv(name, "")
    assert (Settings().api_key, Settings().agents) == (None, [])
