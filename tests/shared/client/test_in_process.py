"""An app in the client's own process."""

from typing import Any

import pytest

from shared.client import in_process
from shared.errors import SQLEnvError, UnknownEpisode
from tests.shared.client.fake_server import FakeServer, drive

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
            if scope["path"] == "/health":
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


def test_in_process_runs_the_apps_lifespan() -> None:
    async def main() -> None:
        app = WithLifespan()
        async with in_process(app) as client:
            await client.reset(episode_id="e")
            assert (await client.step("e", "QUERY: 0")).observation.step_count == 1
            with pytest.raises(SQLEnvError, match="HTTP 500"):
                await client.health()
        assert app.events == ["startup", "shutdown"]

    drive(main())


@pytest.mark.parametrize("event", ["startup", "shutdown"])
def test_in_process_raises_what_the_app_raised(event: str) -> None:
    async def main() -> None:
        with pytest.raises(LookupError, match="no data"):
            async with in_process(WithLifespan(fail_at=event)):
                assert event == "shutdown"

    drive(main())


def test_in_process_refuses_an_app_without_lifespan_and_a_client_not_entered() -> None:
    async def main() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            return

        with pytest.raises(RuntimeError, match="did not complete its startup"):
            async with in_process(app):
                pass
        client = in_process(WithLifespan())
        with pytest.raises(RuntimeError, match="async with"):
            await client.health()
        await client.aclose()

    drive(main())


def test_the_sync_client_has_every_method_and_plays() -> None:
    app = WithLifespan()
    with in_process(app).sync() as client:
        client.wait_ready(5.0)
        assert client.metadata().digest == "d1"
        first = client.reset(question_id="q")
        assert client.step(first.episode_id, "QUERY: 0").observation.step_count == 1
        assert client.state(first.episode_id).step_count == 1
        assert (client.open_episodes, client.urls) == ([first.episode_id], ["http://in-process"])
        client.close_episode(first.episode_id)
        ids = [
            reset.episode_id
            for reset in client.reset_many([{}] * 8)
            if not isinstance(reset, SQLEnvError)
        ]
        client.step_many((name, "QUERY: 0") for name in ids)
        assert app.sent("/step_batch") == [1, 8]
        with pytest.raises(UnknownEpisode):
            client.step("nobody's", "QUERY: 0")
        assert client.stats.steps == 9
    assert app.events == ["startup", "shutdown"]
    with pytest.raises(RuntimeError, match="inside 'with'"):
        client.reset()
