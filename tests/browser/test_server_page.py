"""The server's page in a real Chromium: signed in, played by hand, replayed by keys, on a narrow
screen, light and dark, without a message of the console and without a request to another server."""

from collections.abc import Iterator
from typing import Any

import pytest

from shared.server_process import ServerProcess
from tests.browser.test_report import CHROMIUM, DESKTOP, FLAGS, MISSING, sync_api
from tests.conftest import needs_program
from tests.trainer.played_run import HOSTILE, record_run

pytestmark = needs_program("chromium", MISSING)
KEY = "operator-key-0123456789"
PHONE = {"width": 400, "height": 850}
MARKUP = "<img src=x onerror=alert(1)>"  # without quotes, for SQL


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("page")
    record_run(folder)
    settings = {"sql_workers": 1, "operator_key": KEY, "runs_dir": str(folder)}
    process = ServerProcess(folder / "data", folder / "server.log", settings=settings)
    process.start()
    process.wait_ready()
    yield process
    process.stop()


@pytest.fixture(params=["light", "dark"])
def page(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of the operator's: light on a desktop, dark on a phone."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
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
            "request",
            lambda one: one.url.startswith((server.url, "data:")) or messages.append(one.url),
        )
        page.goto("/signin")
        yield page
        browser.close()
        assert messages == []


def fits(page: Any) -> None:
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) <= 0
    assert page.title() != "taken"
    scheme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != scheme


def test_an_episode_is_played_with_the_keyboard_and_the_board_counts_it(page: Any) -> None:
    fits(page)
    sync_api.expect(page.locator("#feed")).to_have_text("Live.", timeout=30_000)
    page.goto("/page/play?split=eval")
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


def test_the_board_reconnects_and_the_usual_end_of_a_stream_is_no_loss(page: Any) -> None:
    page.add_init_script(
        """const later = setTimeout, heard = [];
        window.heard = heard;
        window.setTimeout = (call, ms) => later(call, ms / 100);
        addEventListener("DOMContentLoaded", () => {
            const feed = document.getElementById("feed");
            new MutationObserver(() => {
                heard.push(feed.textContent);
                document.body.dataset.numbers = heard.filter((one) => one === "Live.").length;
            }).observe(feed, {childList: true});
        });"""
    )
    ended = {"content_type": "text/event-stream", "body": 'retry: 200\ndata: "ended"\n\n'}
    page.route("**/page/events", lambda route: route.fulfill(**ended), times=1)
    page.goto("/")
    page.wait_for_selector("body[data-numbers='2']")
    assert set(page.evaluate("heard")) == {"Live."}
    # after a reply that is no stream a browser itself asks no more (204: without a console message)
    page.route("**/page/events", lambda route: route.fulfill(status=204), times=2)
    page.goto("/")
    page.wait_for_selector("body[data-numbers='1']")
    assert page.evaluate("heard")[:2] == ["The connection is lost; trying again.", "Live."]


def test_a_recorded_episode_is_found_and_replayed_by_keys(page: Any) -> None:
    page.goto("/page/episodes")
    fits(page)
    page.get_by_label("outcome").select_option("wrong")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**outcome=wrong**")
    fits(page)
    page.locator("tbody a").first.click()
    page.wait_for_selector(".turn")
    fits(page)
    steps = page.locator(".turn").count()
    assert page.locator(".turn[open]").count() == steps > 1
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
    page.get_by_role("link", name="The question by all policies").click()
    page.wait_for_selector("article.play h2")
    assert page.locator("article.play").count() > 1
    fits(page)
