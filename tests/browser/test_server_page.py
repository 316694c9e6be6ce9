"""The server's page in a real Chromium: signed in, played by hand, replayed by keys, on a narrow
screen, light and dark, without a message of the console and without a request to another server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.server_process import ServerProcess
from tests.browser.test_report import DESKTOP, MISSING, browser, sync_api
from tests.conftest import needs_program

pytestmark = needs_program("chromium", MISSING)
__all__ = ["browser"]  # a fixture
HOSTILE = "</script><img src=x onerror=alert(1)>"
KEY = "operator-key-0123456789"
PHONE = {"width": 400, "height": 850}
MARKUP = "<img src=x onerror=alert(1)>"  # without quotes, for SQL


@pytest.fixture(scope="module")
def server(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("page") / "server.log"
    settings = {"sql_workers": 1, "operator_key": KEY}
    process = ServerProcess(tiny_data, log, settings=settings)
    process.start()
    process.wait_ready()
    yield process
    process.stop()


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.slow)])
def page(browser: Any, server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of the operator's: light on a desktop, dark on a phone."""
    context = browser.new_context(
        base_url=server.url,
        color_scheme=request.param,
        viewport=DESKTOP if request.param == "light" else PHONE,
        http_credentials={"username": "me", "password": KEY},
    )
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda one: messages.append(one.text))
    page.on("pageerror", lambda one: messages.append(str(one)))
    page.on("dialog", lambda one: messages.append(one.message))
    page.on(
        "request", lambda one: one.url.startswith((server.url, "data:")) or messages.append(one.url)
    )
    page.goto("/signin")
    yield page
    context.close()
    assert messages == []


def fits(page: Any) -> None:
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) <= 0
    assert page.title() != "taken"
    scheme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != scheme


def test_an_episode_is_played_with_the_keyboard_and_the_board_counts_it(page):
    fits(page)
    sync_api.expect(page.locator("#feed")).to_have_text("Live.", timeout=30_000)
    page.goto("/page/play")
    fits(page)
    page.get_by_role("button", name="Play").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("textarea:focus")
    page.keyboard.type(f"SELECT '{MARKUP}' AS x -- why")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#step-1 .result td")
    assert page.locator("#step-1 .kw").first.inner_text() == "SELECT"
    assert page.locator("#step-1 .result td").inner_text() == MARKUP
    assert page.locator("#step-1 .ledger svg").count() >= 2
    fits(page)
    page.get_by_role("radio", name="ANSWER").check()
    page.fill("textarea", HOSTILE)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("h1 .wrong")
    fits(page)
    page.goto("/")
    sync_api.expect(page.locator("#board")).to_contain_text("wrong", timeout=30_000)
    page.wait_for_selector(".spark polyline[points]")


# how they look is tested above and below
without_dark = pytest.mark.parametrize("page", ["light"], indirect=True)


@without_dark
def test_the_board_says_when_the_server_is_gone_and_goes_on_when_it_is_back(page):
    page.goto("/")
    feed = page.locator("#feed")
    page.route("**/page/board", lambda route: route.fulfill(status=204), times=1)
    # 204 is no numbers, and no message of the console
    sync_api.expect(page.locator("#board")).to_be_empty(timeout=30_000)
    sync_api.expect(page.locator("#board")).to_contain_text("steps per second", timeout=30_000)
    sync_api.expect(feed).to_have_text("Live.")


@without_dark
def test_the_api_is_read_and_called_on_the_page_of_its_description(page):
    pytest.importorskip("fastapi_offline")
    page.goto("/docs")
    page.locator("#operations-server-health .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    sync_api.expect(page.locator(".live-responses-table")).to_contain_text('"healthy"')
    assert page.evaluate("document.styleSheets.length") >= 1
    assert (
        page.locator(".opblock-summary-control").first.evaluate(
            "one => getComputedStyle(one).display"
        )
        == "flex"
    )


def test_an_episode_is_found_and_replayed_by_keys(page, server):
    actions = ["QUERY: SELECT 1", "QUERY: SELECT 2", "ANSWER: no"]
    reset = {"episode_id": "e", "seed": 1, "actions": actions}
    bearer = {"Authorization": f"Bearer {KEY}"}
    httpx.post(f"{server.url}/reset", json=reset, headers=bearer).raise_for_status()
    page.goto("/page/episodes")
    fits(page)
    page.locator("tbody tr", has_text="wrong").locator("a").first.click()
    page.wait_for_selector(".turn")
    fits(page)
    page.goto("/page/episode?id=e")
    steps = page.locator(".turn").count()
    assert page.locator(".turn[open]").count() == steps == len(actions)
    assert "Gold, which no agent sees" in page.inner_text("body")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**#step-2")  # Playwright hears of a new address later
    assert page.locator(".turn[open]").get_attribute("id") == "step-2"
    link = page.url
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**#step-1")
    page.keyboard.press("Escape")
    assert page.locator(".turn[open]").count() == steps
    page.goto("about:blank")
    page.goto(link)
    assert page.locator(".turn[open]").get_attribute("id") == "step-2"
