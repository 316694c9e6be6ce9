"""The API's page in a real Chromium: every call is on it, and no request leaves the server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from env_server.http.openapi import scripts_folder
from shared.server_process import ServerProcess
from tests.browser.test_report import CHROMIUM, FLAGS, MISSING, sync_api
from tests.conftest import needs_program

pytestmark = [
    needs_program("chromium", MISSING),
    needs_program("fastapi-offline", None if scripts_folder() else "pip install fastapi-offline"),
]
KEY = "trainer-key-0123456789"


@pytest.fixture(scope="module")
def server(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("pages") / "server.log"
    process = ServerProcess(tiny_data, log, settings={"sql_workers": 1, "api_key": KEY})
    process.start()
    process.wait_ready()
    yield process
    process.stop()


@pytest.fixture
def page(server: ServerProcess) -> Iterator[Any]:
    """A page of a browser that resolves no name, with what it asked for and what went wrong."""
    flags = [*FLAGS, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page(base_url=server.url)
        page.asked, page.errors = [], []
        page.on("requestfinished", lambda request: page.asked.append((request.url, "")))
        page.on("requestfailed", lambda request: page.asked.append((request.url, request.failure)))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        yield page
        browser.close()


def outside(page: Any, server: ServerProcess) -> list[str]:
    """Return the requests to anywhere else, but for those that the page's own policy stopped."""
    assert len(page.asked) >= 3
    asked = [url for url, failure in page.asked if failure != "csp"]
    return [url for url in asked if not url.startswith((server.url, "blob:", "data:"))]


def test_swagger_shows_every_call_and_sends_one_with_a_key(
    page: Any, server: ServerProcess
) -> None:
    page.goto("/docs")
    page.wait_for_selector(".opblock")
    assert page.locator(".opblock").count() >= 15
    page.click("button.authorize")
    assert page.locator(".auth-container h4").count() == 1  # one key for all calls
    page.fill(".auth-container input >> nth=0", KEY)
    page.click(".auth-container button[type=submit] >> nth=0")
    page.click(".close-modal")
    page.click("#operations-data-databases")
    page.click("#operations-data-databases .try-out__btn")
    page.click("#operations-data-databases .execute")
    page.wait_for_selector("#operations-data-databases .live-responses-table .response")
    shown = page.inner_text("#operations-data-databases .live-responses-table")
    assert '"db_id": "shop"' in shown
    assert outside(page, server) == []
    assert page.errors == []
