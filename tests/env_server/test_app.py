from pathlib import Path

import httpx
import pytest

from env_server.app import create_app
from env_server.settings import Settings
from tests.env_server.sql.conftest import pids

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
            workers = pids(app.state.service.sql)
        assert await statuses() == [200, 503]
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()], "its SQL workers are gone"
