"""The page for people: who sees what, hostile texts, playing by hand."""

import base64
import threading
from collections import Counter
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from env_server.http.requests import MAX_STEP_BYTES
from env_server.page import views
from tests.env_server.http.conftest import AGENT, OPERATOR, TRAINER, bearer, serving

pytestmark = pytest.mark.anyio
PAGES = ["/", "/page/board", "/page/play", "/page/episodes"]
HOSTILE = "</script><img src=x onerror=alert(1)>"


class Markup(HTMLParser):
    """The elements of a page, and its text without style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.text, self._inside = "", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._inside = tag
        found = dict(attrs)
        assert not [name for name in found if name.startswith("on") or name == "style"]
        if tag == "a":
            self.links.append(found["href"] or "")

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.text += data


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}


async def begin(http: httpx.AsyncClient, *actions: str, **given: Any) -> None:
    reset = {"question_id": "zoo-2", "episode_id": "e", "actions": actions, **given}
    assert (await http.post("/reset", json=reset, headers=bearer(TRAINER))).status_code == 200


async def seen(http: httpx.AsyncClient, path: str, **query: Any) -> Markup:
    """Return a page, checked: its policy allows only its own script, of which there is one."""
    reply = await http.get(path, params=query or None)
    assert reply.status_code == 200, reply.text[-500:]
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    found = Markup(reply.text)
    assert (found.tags["script"], found.tags["img"]) == (1, 0)
    return found


async def test_texts_of_models_are_escaped(tiny_data):
    async with serving(tiny_data) as http:
        await begin(http, f"QUERY: SELECT '{HOSTILE}' AS x", f"ANSWER: {HOSTILE}")
        page = await seen(http, "/page/episode", id="e")
        assert page.text.count(HOSTILE) == 3  # the statement, its result and the answer
        await seen(http, "/page/episodes")
        broken = await http.get("/page/episode", params={"id": HOSTILE})
        assert (broken.status_code, Markup(broken.text).tags["img"]) == (404, 0)
        assert "default-src 'none'" in broken.headers["content-security-policy"]


async def test_gold_is_for_the_operators_key_alone(tiny_data):
    async with serving(tiny_data, api_key=TRAINER, operator_key=OPERATOR) as http:
        await begin(http)
        for key, shown in ((TRAINER, False), (OPERATOR, True)):
            http.headers = httpx.Headers(basic(key))
            assert ("Gold, which" in (await seen(http, "/page/episode", id="e")).text) == shown
    async with serving(tiny_data) as http:  # loopback, without keys
        await begin(http)
        assert "Gold, which" not in (await seen(http, "/page/episode", id="e")).text


async def test_keys_open_the_page_to_browsers(tiny_data):
    keys: dict[str, Any] = {"api_key": TRAINER, "agent_keys": AGENT, "operator_key": OPERATOR}
    statuses = {TRAINER: 200, OPERATOR: 200, AGENT: 403, "wrong": 401}
    async with serving(tiny_data, **keys) as http:
        for path in PAGES:
            asked = await http.get(path)
            assert asked.status_code == 401
            assert asked.headers["www-authenticate"].startswith("Basic ")
            for key, status in statuses.items():
                assert (await http.get(path, headers=basic(key))).status_code == status
        # other paths do not take what a browser sends along by itself
        for path in ("/reset", "/operator/tries"):
            assert (await http.post(path, headers=basic(OPERATOR))).status_code == 401
        assert (await http.get("/signin", headers=basic(TRAINER))).status_code == 401
        assert (await http.get("/signin", headers=basic(OPERATOR))).headers["location"] == "./"


async def test_without_a_key_episodes_are_listed_on_loopback_only(tiny_data):
    for given, status in (({"host": "0.0.0.0"}, 403), ({"operator_key": OPERATOR}, 403), ({}, 200)):
        async with serving(tiny_data, **given) as http:
            assert (await http.get("/")).status_code == 200
            assert (await http.get("/page/play")).status_code == 200
            assert (await http.get("/page/episodes")).status_code == status


async def test_an_episode_is_played_by_hand(tiny_data):
    async with serving(tiny_data) as http:
        start = await http.post("/page/play", data={"question_id": "zoo-2", "step_budget": ""})
        assert start.status_code == 303
        where = "/page/" + start.headers["location"]
        form = {"episode_id": parse_qs(urlsplit(where).query)["id"][0], "step": "0"}
        # with a line end as a text area sends it
        sql = "SELECT '<b>' AS x, hex('a\r\nb'), species FROM animals"
        act = {**form, "action_type": "QUERY", "argument": sql}
        foreign = await http.post("/page/step", data=act, headers={"Origin": "http://evil"})
        assert foreign.status_code == 403
        moved = await http.post("/page/step", data=act, headers={"Origin": "http://env"})
        assert moved.headers["location"].endswith("#step-1")
        page = await seen(http, where)
        assert all(text in page.text for text in ("9 steps left", "elephant", "610A62"))
        wrong = await http.post("/page/step", data={**form, "action_type": "QUERY"})
        assert wrong.status_code == 400
        assert "This did not work" in wrong.text
        answer = {**form, "step": "1", "action_type": "ANSWER", "argument": "none"}
        ended = await http.post("/page/step", data=answer)
        assert "#" not in ended.headers["location"]
        assert "wrong answer" in (await seen(http, where)).text
        listed = await http.get("/page/episodes")
        assert f"episode?id={form['episode_id']}" in Markup(listed.text).links


async def test_withheld_rewards_are_shown_at_the_end_or_to_the_operator(tiny_data):
    async with serving(tiny_data, api_key=TRAINER, operator_key=OPERATOR) as http:
        await begin(http, "DESCRIBE: animals", rewards="end")
        for key, shown in ((TRAINER, False), (OPERATOR, True)):
            page = await http.get("/page/episode?id=e", headers=basic(key))
            assert ("exec_ok" in page.text) == shown


async def test_the_list_has_pages(tiny_data):
    async with serving(tiny_data) as http:
        resets = [{"episode_id": f"e{number}", "seed": number} for number in range(51)]
        await http.post("/reset_batch", json={"resets": resets})
        await http.post("/step", json={"episode_id": "e7", "action": "ANSWER: no"})
        first, second = [
            Markup((await http.get(f"/page/episodes?offset={offset}")).text) for offset in (0, 50)
        ]
        assert "1–50 of 51" in first.text
        assert "episode?id=e50" in first.links
        assert [one for one in second.links if one.startswith("episode")] == ["episode?id=e7"]


async def test_the_board_counts(tiny_data):
    async with serving(tiny_data) as http:
        await begin(http, "ANSWER: no")
        for path in ("/", "/page/board"):
            text = Markup((await http.get(path)).text).text
            assert "wrong" in text
            assert "of 1 started" in text


async def test_large_forms_are_refused(tiny_data):
    async with serving(tiny_data) as http:
        large = await http.post("/page/step", content=b"a=" + b"b" * MAX_STEP_BYTES)
        assert large.status_code == 413
        many = await http.post("/page/play", content=b"a=b&" * (views.FORM_FIELDS + 1))
        assert many.status_code == 422


async def test_a_long_episode_is_marked_up_off_the_event_loop(tiny_data, monkeypatch):
    threads, mark_up = set(), views.observation_markup

    def marked_up(*given: Any, **options: Any) -> Any:
        threads.add(threading.current_thread())
        return mark_up(*given, **options)

    monkeypatch.setattr(views, "observation_markup", marked_up)
    async with serving(tiny_data) as http:
        actions = [f"QUERY: SELECT 'row' || {one}" for one in range(40)]
        await begin(http, *actions, step_budget=99)
        page = await seen(http, "/page/episode", id="e")
        assert (page.tags["details"], page.tags["table"]) == (40, 2 * 40)
        assert all(f"row{one}" in page.text for one in range(40))
    assert threads
    assert threading.main_thread() not in threads
