from pathlib import Path

import httpx
import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.errors import QuestionLoadError

pytestmark = pytest.mark.anyio


async def test_it_is_healthy_always_and_ready_only_while_it_runs(tiny_data: Path) -> None:
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


async def test_missing_data_fails_startup_with_the_path(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path / "nothing"))
    with pytest.raises(QuestionLoadError, match=r"nothing.*--data"):
        async with app.router.lifespan_context(app):
            pass


async def test_two_apps_of_the_same_data_reply_with_equal_bytes(tiny_data: Path) -> None:
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
