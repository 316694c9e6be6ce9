"""The page for people: who sees what, hostile texts, playing by hand, recorded episodes."""

import asyncio
import base64
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from env_server.app import create_app
from env_server.http.requests import MAX_STEP_BYTES
from env_server.page import episode, routes
from env_server.settings import Settings
from shared.dataset import load_splits
from shared.run_files import RunFiles
from tests.trainer.played_run import HOSTILE, record_run

pytestmark = pytest.mark.anyio
TRAINER, AGENT, OPERATOR = (f"{name}-key-0123456789" for name in ("trainer", "agent", "operator"))
PAGES = ["/", "/page/play", "/page/episodes", "/page/question"]


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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data` and the run `run`, whose texts hold markup."""
    folder = tmp_path_factory.mktemp("recorded")
    record_run(folder)
    return folder


@asynccontextmanager
async def serving(folder: Path, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    given = {"data_dir": folder / "data", "runs_dir": folder, "sql_workers": 1, **given}
    app = create_app(Settings(**given))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http,
    ):
        yield http


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}


def lines(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each recorded episode with the first byte of its line."""
    at = 0
    for line in RunFiles(folder / "run").episodes.read_bytes().splitlines(keepends=True):
        yield at, json.loads(line)
        at += len(line)


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


async def test_texts_of_models_are_escaped_on_every_page(recorded: Path) -> None:
    hostile = [(at, one) for at, one in lines(recorded) if HOSTILE in one["actions"][-1]]
    assert hostile
    async with serving(recorded) as http:
        for at, one in hostile[:3]:
            page = await seen(http, "/page/episode", run="run", at=at)
            assert page.text.count(HOSTILE) >= 2  # what the model wrote, and its answer
            assert "differs from the record" not in page.text
            assert one["actions"][1].partition(": ")[2] in page.text
        question = hostile[0][1]["question_id"]
        side = await http.get("/page/question", params={"id": question, "run": "run"})
        assert HOSTILE in Markup(side.text).text
        assert Markup(side.text).tags["img"] == 0
        broken = await http.get("/page/episodes", params={"run": HOSTILE})
        assert (broken.status_code, Markup(broken.text).tags["img"]) == (404, 0)
        assert "default-src 'none'" in broken.headers["content-security-policy"]


async def test_gold_is_for_the_operators_key_alone(recorded: Path) -> None:
    at, one = next(iter(lines(recorded)))
    splits = load_splits(recorded / "data").values()
    question = next(q for split in splits for q in split if q.question_id == one["question_id"])
    keys: dict[str, Any] = {"api_key": TRAINER, "operator_key": OPERATOR}

    async def shows_gold(http: httpx.AsyncClient, key: str | None) -> bool:
        http.headers = httpx.Headers(basic(key) if key else {})
        page = await seen(http, "/page/episode", run="run", at=at)
        side = await http.get("/page/question", params={"id": one["question_id"], "run": "run"})
        shown = f"Gold, which no agent sees{question.gold_sql}" in page.text
        assert ("Gold, which" in page.text) == ("Gold, which" in side.text) == shown
        return shown

    async with serving(recorded) as http:  # loopback, without keys
        assert not await shows_gold(http, None)
    async with serving(recorded, **keys) as http:
        assert not await shows_gold(http, TRAINER)
        assert await shows_gold(http, OPERATOR)


async def test_keys_open_the_page_to_browsers(recorded: Path) -> None:
    keys: dict[str, Any] = {"api_key": TRAINER, "agent_keys": AGENT, "operator_key": OPERATOR}
    statuses = {TRAINER: 200, OPERATOR: 200, AGENT: 403, "wrong": 401}
    async with serving(recorded, **keys) as http:
        for path in PAGES:
            asked = await http.get(path)
            assert asked.status_code == 401
            assert asked.headers["www-authenticate"].startswith("Basic ")
            for key, status in statuses.items():
                assert (await http.get(path, headers=basic(key))).status_code == status
        # other paths do not take what a browser sends along by itself
        for path in ("/reset", "/operator/verdicts"):
            assert (await http.post(path, headers=basic(OPERATOR))).status_code == 401
        assert (await http.get("/signin", headers=basic(TRAINER))).status_code == 401
        assert (await http.get("/signin", headers=basic(OPERATOR))).headers["location"] == "./"


async def test_without_a_key_episodes_are_shown_on_loopback_only(recorded: Path) -> None:
    for given, status in (({"host": "0.0.0.0"}, 403), ({"operator_key": OPERATOR}, 403), ({}, 200)):
        async with serving(recorded, **given) as http:
            assert (await http.get("/")).status_code == 200
            assert (await http.get("/page/play")).status_code == 200
            for path in ("/page/episodes", "/page/question", "/page/episode?run=run&at=0"):
                assert (await http.get(path)).status_code == status


async def test_one_setting_turns_it_off(recorded: Path) -> None:
    async with serving(recorded, page=False, operator_key=OPERATOR) as http:
        for path in [*PAGES, "/signin", "/page/events", "/page/episode"]:
            assert (await http.get(path, headers=basic(OPERATOR))).status_code == 404


async def test_an_episode_is_played_by_hand(tiny_data: Path, tmp_path: Path) -> None:
    # which never lets another site's form act
    async with serving(tmp_path, data_dir=tiny_data, cors_origins="*") as http:
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
        listed = await http.get("/page/episodes", params={"run": "", "outcome": "wrong"})
        assert f"episode?id={form['episode_id']}" in Markup(listed.text).links


async def test_withheld_rewards_are_shown_at_the_end_or_to_the_operator(tiny_data: Path) -> None:
    keys: dict[str, Any] = {"api_key": TRAINER, "operator_key": OPERATOR}
    async with serving(tiny_data, data_dir=tiny_data, **keys) as http:
        bearer = {"Authorization": f"Bearer {TRAINER}"}
        reset = {"question_id": "zoo-2", "episode_id": "e", "rewards": "end"}
        assert (await http.post("/reset", json=reset, headers=bearer)).status_code == 200
        step = {"episode_id": "e", "action": "DESCRIBE: animals"}
        assert (await http.post("/step", json=step, headers=bearer)).status_code == 200
        for key, shown in ((TRAINER, False), (OPERATOR, True)):
            page = await http.get("/page/episode?id=e", headers=basic(key))
            assert ("exec_ok" in page.text) == shown


async def test_the_list_is_filtered(recorded: Path) -> None:
    every = [one for _, one in lines(recorded)]
    async with serving(recorded) as http:

        async def total(**filters: str) -> int:
            page = Markup((await http.get("/page/episodes", params=filters)).text)
            found = page.text.partition(" of ")[2].split()[0]
            return int(found.replace(",", ""))

        assert await total() == len(every)
        for name in ("database", "difficulty", "outcome"):
            for value, count in Counter(one[name] for one in every).items():
                assert await total(**{name: value}) == count
        after = [one for one in every if (one["phase"], one["mode"]) == ("after", "greedy")]
        assert await total(policy="after, greedy") == len(after)
        trained = Counter(one["step"] for one in every if one["phase"] == "train")
        assert await total(policy="train, sampled, step 2") == trained[2]
        second = Markup((await http.get("/page/episodes?offset=50")).text)
        assert f"51–100 of {len(every)}" in second.text
        links = [link for link in second.links if link.startswith("episode?")]
        assert len(links) == 50
        assert (await http.get("/page/" + links[-1])).status_code == 200


async def test_checkpoints_stand_side_by_side(recorded: Path) -> None:
    question = next(one["question_id"] for _, one in lines(recorded) if one["phase"] == "after")
    async with serving(recorded) as http:
        page = Markup((await http.get("/page/question", params={"id": question})).text)
        assert page.text.index("before, greedy") < page.text.rindex("after, greedy")
        assert 2 <= page.tags["article"] <= routes.SIDES
        chosen = {"id": question, "run": "run", "policy": ["after, greedy", "before, greedy"]}
        assert Markup((await http.get("/page/question", params=chosen)).text).tags["article"] == 2


async def test_a_run_on_other_data_is_shown_as_recorded(recorded: Path, tiny_data: Path) -> None:
    at, one = next((at, one) for at, one in lines(recorded) if len(one["actions"]) > 1)
    async with serving(recorded, data_dir=tiny_data) as http:
        page = Markup((await http.get("/page/episode", params={"run": "run", "at": at})).text)
    assert "a replay fails here" in page.text
    assert page.tags["details"] == len(one["actions"])
    assert "exec_ok" in page.text


async def test_damaged_lines_are_counted_and_strange_places_refused(
    recorded: Path, tmp_path: Path
) -> None:
    good = RunFiles(recorded / "run").episodes.read_bytes().splitlines(keepends=True)[0]
    folder = tmp_path / "cut"
    folder.mkdir()
    (folder / "episodes.jsonl").write_bytes(b"{}\n" + good + good[:50])
    async with serving(recorded, runs_dir=tmp_path) as http:
        page = Markup((await http.get("/page/episodes")).text)
        assert "2 lines of the file can't be read" in page.text
        assert "1–1 of 1" in page.text
        for place in ("cut&at=1", "cut&at=9999999", "cut&at=x", "../run&at=0"):
            assert (await http.get(f"/page/episode?run={place}")).status_code == 404


async def test_the_board_is_sent_as_events(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "WATCH_S", 1)
    async with serving(tiny_data, data_dir=tiny_data) as http:
        reset = {"question_id": "zoo-2", "episode_id": "e"}
        await http.post("/reset", json=reset)
        await http.post("/step", json={"episode_id": "e", "action": "ANSWER: no"})
        events = await http.get("/page/events")
        assert events.headers["content-type"].startswith("text/event-stream")
        first, data = events.text.removesuffix("\n\n").split("\ndata: ")
        assert first == "retry: 200"
        shown = Markup(json.loads(data)).text
        assert "wrong" in shown
        assert "of 1 started" in shown


async def test_watchers_are_limited(tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WATCH_S", 1), ("WATCHERS", 3)):
        monkeypatch.setattr(routes, name, value)
    async with serving(tiny_data, data_dir=tiny_data) as http:
        replies = await asyncio.gather(*(http.get("/page/events") for _ in range(12)))
        assert Counter(one.status_code for one in replies) == {200: 3, 429: 9}
        assert {one.headers.get("retry-after", "1") for one in replies} == {"1"}
        assert (await http.get("/page/events")).status_code == 200  # those have ended


async def test_large_forms_are_refused(tiny_data: Path) -> None:
    async with serving(tiny_data, data_dir=tiny_data) as http:
        large = await http.post("/page/step", content=b"a=" + b"b" * MAX_STEP_BYTES)
        assert large.status_code == 413
        many = await http.post("/page/play", content=b"a=b&" * (routes.FORM_FIELDS + 1))
        assert many.status_code == 422


async def test_a_long_episode_is_marked_up_off_the_event_loop(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, mark_up = set(), episode.observation_markup

    def marked_up(*given: Any) -> Any:
        threads.add(threading.current_thread())
        return mark_up(*given)

    monkeypatch.setattr(episode, "observation_markup", marked_up)
    async with serving(tiny_data, data_dir=tiny_data) as http:
        actions = [f"QUERY: SELECT 'row' || {one}" for one in range(40)]
        reset = {"question_id": "zoo-2", "episode_id": "e", "step_budget": 99, "actions": actions}
        assert (await http.post("/reset", json=reset)).status_code == 200
        page = await seen(http, "/page/episode", id="e")
        assert (page.tags["details"], page.tags["table"]) == (40, 2 * 40)
        assert all(f"row{one}" in page.text for one in range(40))
    assert threads
    assert threading.main_thread() not in threads
