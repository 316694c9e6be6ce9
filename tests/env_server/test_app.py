import ast
import sys
from pathlib import Path

import httpx
import pytest

from env_server import service
from env_server.app import create_app
from env_server.questions import QuestionBank
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql import SqlPolicy
from shared.errors import QuestionLoadError

pytestmark = pytest.mark.anyio


async def test_it_is_healthy_but_not_ready_until_it_runs_and_again_after(tiny_data: Path) -> None:
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:

        async def statuses() -> list[int]:
            return [(await http.get("/health")).status_code, (await http.get("/ready")).status_code]

        assert await statuses() == [200, 503]
        reply = await http.post("/reset")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
        async with app.router.lifespan_context(app):
            assert await statuses() == [200, 200]
            pids = app.state.service.sql.pids
        assert await statuses() == [200, 503]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "its SQL workers are gone"


async def test_missing_data_stops_the_start_and_names_the_path(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path / "nothing"))
    with pytest.raises(QuestionLoadError, match=r"nothing.*--data"):
        async with app.router.lifespan_context(app):
            pass


async def test_two_apps_of_the_same_data_agree_to_the_byte(tiny_data: Path) -> None:
    replies = []
    for _ in range(2):
        app = create_app(Settings(data_dir=tiny_data, sql_workers=1))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://e") as http,
        ):
            body = {
                "episode_id": "x",
                "seed": 7,
                "actions": ["QUERY: SELECT 1", "QUERY: SELECT nonsense"],
            }
            replies.append((await http.post("/reset", json=body)).content)
            replies.append((await http.get("/metadata")).content)
    assert replies[:2] == replies[2:]


def test_the_digest_changes_with_data_rules_limits_and_budget(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bank = QuestionBank.load(tiny_data)
    here = describe(bank, Settings()).digest
    assert describe(bank, Settings(port=9)).digest == here
    others = {
        describe(bank, Settings(step_budget=3)).digest,
        describe(QuestionBank.load(tiny_data, SqlPolicy(max_vm_steps=7)), Settings()).digest,
    }
    monkeypatch.setattr(service, "rules_digest", lambda: "other rules")
    others.add(describe(bank, Settings()).digest)
    assert len(others | {here}) == 4


def test_the_rules_name_every_room_that_an_environment_imports() -> None:
    """What `environment.py` reaches by imports decides its replies, so it must be part of the
    digest.

    The policy's values are in the bank's own.
    """
    paths = {
        f"{package}.{name.removesuffix('.py')}"
        for package, files in service.RULES.items()
        for name in files
    }
    named = {path.removesuffix(".__init__") for path in paths}
    root = Path(sys.modules["env_server"].__file__ or "").parents[1]
    pool = "env_server.sql"  # whose __init__ names the worker pool too, which decides no reply
    reached, todo = {pool}, ["env_server.environment", "env_server.sql.runner"]
    while todo:
        module = todo.pop()
        path = root / (module.replace(".", "/") + ".py")
        if not path.is_file():
            path = root / module.replace(".", "/") / "__init__.py"
        if module in reached or not path.is_file():
            continue
        reached.add(module)
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.split(".")[0] in ("env_server", "shared")
            ):
                todo.append(node.module)
                todo += [f"{node.module}.{alias.name}" for alias in node.names]
    assert "env_server.verifier.cells" in reached
    beside = {
        pool,
        "shared.errors",
        "shared.dataset",
        "env_server.sql.jobs",
        "env_server.sql.limits",
    }
    assert reached - beside <= named
