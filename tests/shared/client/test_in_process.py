"""An app in the client's own process."""

from typing import Any

import pytest

from shared.client import in_process
from shared.errors import SQLEnvError
from tests.shared.client.fake_server import FakeServer

pytestmark = pytest.mark.filterwarnings("error")


class WithLifespan(FakeServer):
    def __init__(self, fail_at: str = "") -> None:
        super().__init__()
        self.fail_at = fail_at
        self.events: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            assert scope["state"] == {"pool": "open"}
            scope["state"]["request"] = "this one's alone"
            assert self.events == ["startup"]
            if scope["path"] == "/state":
                raise ValueError("a bug in the app")
            return await super().__call__(scope, receive, send)
        scope["state"]["pool"] = "open"
        for event in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{event}"
            if self.fail_at == event:
                await send({"type": f"lifespan.{event}.failed", "message": "no data"})
                raise LookupError("no data")
            self.events.append(event)
            await send({"type": f"lifespan.{event}.complete"})


async def test_in_process_runs_the_apps_lifespan() -> None:
    app = WithLifespan()
    async with in_process(app) as client:
        await client.reset(episode_id="e")
        assert (await client.step("e", "QUERY: 0")).observation.step_count == 1
        with pytest.raises(SQLEnvError, match="HTTP 500"):
            await client.state("e")
    assert app.events == ["startup", "shutdown"]


@pytest.mark.parametrize("event", ["startup", "shutdown"])
async def test_in_process_raises_what_the_app_raised(event: str) -> None:
    with pytest.raises(LookupError, match="no data"):
        async with in_process(WithLifespan(fail_at=event)):
            assert event == "shutdown"


async def test_a_client_that_is_not_entered_says_so() -> None:
    client = in_process(WithLifespan())
    with pytest.raises(RuntimeError, match="async with"):
        await client.metadata()
    await client.aclose()
