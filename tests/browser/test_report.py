"""A run's page in a real Chromium: drawn, chosen from, read on a narrow screen and without scripts,
and never online.

The browser is Debian's (`apt-get install chromium`); CHROMIUM names another one. Without one these
tests are skipped.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs_program
from tests.trainer.played_run import GROUP, HOSTILE, STEPS, record_run
from trainer.report.page import run_page

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'"
)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
MISSING = None if CHROMIUM else "no Chromium here: apt-get install chromium, or set CHROMIUM"
pytestmark = needs_program("chromium", MISSING)

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),  # root has no sandbox
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    path = folder / "report.html"
    path.write_text(run_page(record_run(folder))[0], encoding="utf-8")
    return path


class Opened:
    """The page in a window of its own, with its console messages and its requests."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def overflow(self) -> int:
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Any]:
    windows: list[Opened] = []

    def make(**options: Any) -> Opened:
        windows.append(Opened(browser, page_file, **{"viewport": DESKTOP, **options}))
        return windows[-1]

    yield make
    for window in windows:
        window.context.close()


@pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"]
)
def test_it_opens_without_messages_and_requests(opened, page_file, scheme, size):
    window = opened(color_scheme=scheme, viewport=size)
    assert window.messages == []
    assert [url for url in window.requests if not url.startswith("data:")] == [page_file.as_uri()]
    assert window.overflow() <= 0
    assert window.page.title() != "taken"
    body = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (body == "rgb(255, 255, 255)") == (scheme == "light")
    window.page.evaluate(
        "for (const one of document.querySelectorAll('details'))"
        " { one.open = true; one.hidden = false; }"
    )
    assert window.overflow() <= 0


def test_the_charts_are_drawn(opened):
    boxes = opened().page.eval_on_selector_all(
        "img.plot", "all => all.map((one) => [one.complete, one.naturalWidth, one.width])"
    )
    assert len(boxes) >= 10
    assert all(complete and natural > 600 and width > 300 for complete, natural, width in boxes)


def field(page: Any, section: str, name: str) -> Any:
    role = "searchbox" if name == "text contains" else "combobox"
    return page.locator(f"#{section}").get_by_role(role, name=name, exact=True)


def shown(page: Any, section: str, wanted: str) -> Any:
    """Return the item of a section once it is the `wanted` one."""
    page.wait_for_selector(f"#{section} .browser > #{wanted}")
    return page.locator(f"#{section} .browser > .item")


def test_a_group_is_chosen_by_filters_by_buttons_or_by_a_link(opened, page_file):
    page = opened().page
    field(page, "groups", "step").select_option(str(STEPS))
    item = shown(page, "groups", f"group-{STEPS}-1")
    assert item.count() == 1
    assert item.locator("table.group > tbody > tr").count() == GROUP
    assert f"4 of {STEPS * 4}" in page.locator("#groups output").first.inner_text()
    field(page, "groups", "group").select_option(index=2)
    shown(page, "groups", f"group-{STEPS}-3")
    page.locator("#groups").get_by_role("button", name="next").click()
    shown(page, "groups", f"group-{STEPS}-4")
    assert page.locator("#groups").get_by_role("button", name="next").is_disabled()
    page.locator("#groups").get_by_role("button", name="previous").focus()
    page.keyboard.press("Enter")
    item = shown(page, "groups", f"group-{STEPS}-3")
    item.locator("summary", has_text="the episode with its results").first.click()
    assert item.locator(".turns .result").first.is_visible()
    page.goto(f"{page_file.as_uri()}#group-2-3")
    shown(page, "groups", "group-2-3")


def test_questions_are_filtered_by_outcome_and_text_and_stand_side_by_side(opened):
    window = opened()
    page = window.page
    count = page.locator("#transcripts output").first
    whole = int(count.inner_text().split(" of ")[1])
    policies = field(page, "transcripts", "policy")
    names = policies.locator("option").all_inner_texts()
    assert names[:3] == ["any", "before training, greedy", "after training, greedy"]
    found = {}
    for outcome in field(page, "transcripts", "outcome").locator("option").all_inner_texts()[1:]:
        policies.select_option(names[1])
        field(page, "transcripts", "outcome").select_option(outcome)
        found[outcome] = int(count.inner_text().split(" of ")[0])
    assert sum(found.values()) == whole
    assert min(found["correct"], whole - found["correct"]) > 0
    field(page, "transcripts", "outcome").select_option("")
    page.keyboard.press("Tab")
    field(page, "transcripts", "text contains").fill("no such text")
    assert count.inner_text().startswith("0 of ")
    assert page.locator("#transcripts .browser > .item").is_hidden()
    field(page, "transcripts", "text contains").fill(HOSTILE[:20])
    page.wait_for_selector("#transcripts .browser > .item:visible")
    item = page.locator("#transcripts .browser > .item")
    assert HOSTILE[:20] in item.locator("blockquote").inner_text()
    before, after = (one.bounding_box() for one in item.locator(".sides > .play").all())
    assert before["y"] == after["y"]
    assert before["x"] + before["width"] <= after["x"]
    assert page.title() != "taken"
    assert window.messages == []


def test_without_scripts_everything_can_be_opened(opened):
    page = opened(java_script_enabled=False).page
    assert page.locator("blockquote", has_text=HOSTILE).count() > 0
    assert page.locator("img:not(.plot)").count() == 0
    assert (
        page.locator("#groups .item").count()
        == page.locator("#groups .item:visible").count()
        == STEPS * 4
    )
    closed = page.locator("#groups .item:not([open]) > summary").first
    closed.click()
    assert page.locator("#groups .item[open]").count() == 2
    assert page.locator("#groups select").count() == 0
    assert page.locator("#chart-success .plot").is_visible()
