"""The page's paths.

/                 the board; /page/events sends it every second
/signin           asks the browser for the operator's key
/page/play        questions to play by hand; a POST starts an episode
/page/step        a POST takes a step
/page/episodes    the episodes of a recorded run, or those that this server holds
/page/episode     one of them: of this server (`id`), or of a run (`run`, `at`)
/page/question    one question as several policies played it
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from urllib.parse import parse_qsl, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from env_server.episodes import Caller
from env_server.http.auth import HOME, PAGE, SIGN_IN
from env_server.http.requests import is_foreign, parse_item, read_body
from env_server.http.responses import error_reply
from env_server.http.work import bytes_in_time
from env_server.page.board import Board
from env_server.page.recordings import FACETS, TRAIN, Entry
from env_server.page.view import View
from shared import pages
from shared.errors import Forbidden, InvalidRequest, QueueFull, SQLEnvError
from shared.models import QuestionsRequest, ResetRequest, StepRequest

Handler = Callable[[View], Awaitable[Response]]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src '{style_hash}'; script-src "
    "'{script_hash}'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ROWS = 50  # of a list on one page
SIDES = 6  # episodes of a question side by side
WATCHERS, WATCH_S = 64, 60  # streams of the board, and after how long a browser asks again
RETRY_MS = 200  # until it asks
FORM_FIELDS = 16


def add_page(app: FastAPI) -> None:
    """Add the page to the application."""
    templates = pages.environment("env_server.page", "page.css", "page.js")
    headers = {key: value.format(**templates.globals) for key, value in HEADERS.items()}
    board = Board()

    def add(method: str, path: str, handler: Handler) -> None:
        async def endpoint(request: Request) -> Response:
            view = View(request, templates, board)
            try:
                view.check()
                reply = await handler(view)
            except SQLEnvError as error:
                plain = error_reply(error, request.app.state.metrics)
                reply = html(view.render("error.html.j2", error=error), plain.status_code)
                reply.headers.update({**plain.headers, **reply.headers})  # with its Retry-After
            reply.headers.update(headers)
            return reply

        app.add_api_route(path, endpoint, methods=[method], include_in_schema=False)

    add("GET", HOME, home)
    add("GET", SIGN_IN, sign_in)
    add("GET", f"{PAGE}/events", events)
    add("GET", f"{PAGE}/play", choose)
    add("POST", f"{PAGE}/play", start)
    add("POST", f"{PAGE}/step", step)
    add("GET", f"{PAGE}/episodes", episodes)
    add("GET", f"{PAGE}/episode", partial(in_time, episode))
    add("GET", f"{PAGE}/question", partial(in_time, question))


def html(page: str | bytes, status: int = 200) -> Response:
    return Response(page, status, media_type="text/html")


async def in_time(call: Callable[[View], Awaitable[str]], view: View) -> Response:
    """Return a page whose episodes are replayed, a few at once, within the time of a request."""

    async def page(_: View, caller: Caller) -> bytes:
        async with view.board.replays:
            return (await call(view)).encode()

    return html(await bytes_in_time(view.request, page, view))


async def home(view: View) -> Response:
    """Show what the server does."""
    now = view.board.numbers(view.service)
    return html(view.render("home.html.j2", metadata=view.service.metadata, now=now))


async def sign_in(view: View) -> Response:
    """Return to the board: whoever gets here has shown the key, which the browser now sends."""
    return RedirectResponse("./", 303)


async def events(view: View) -> Response:
    """Send the board every second, for a while; the browser then asks again."""
    service, board = view.service, view.board
    if board.watchers >= WATCHERS:
        raise QueueFull(f"{WATCHERS} browsers watch this server: close one", retry_after_s=WATCH_S)

    async def stream() -> AsyncIterator[bytes]:
        yield b"retry: %d\n" % RETRY_MS
        for _ in range(WATCH_S):
            shown = view.render("board.html.j2", now=board.numbers(service))
            yield b"data: %b\n\n" % to_json(shown)
            if service.pool.draining:
                break
            await asyncio.sleep(1)

    return Watch(board, stream())


class Watch(StreamingResponse):
    """A stream of the board. It counts as a watcher from now until it ends, however it does."""

    def __init__(self, board: Board, stream: AsyncIterator[bytes]) -> None:
        super().__init__(stream, media_type="text/event-stream")
        self.board = board
        board.watchers += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.board.watchers -= 1


# -- playing by hand


async def choose(view: View) -> Response:
    """Show the questions that can be played."""
    asked = {name: value for name, value in view.asked.items() if value}
    wanted = parse_item(QuestionsRequest, {**asked, "limit": ROWS})
    found = view.bank.matching(wanted.split, wanted.difficulty, wanted.db_id)
    page = view.render(
        "play.html.j2",
        wanted=wanted.model_dump(exclude={"offset", "limit"}, exclude_none=True),
        found=found[wanted.offset : wanted.offset + ROWS],
        place=place_of(wanted.offset, len(found)),
        splits=list(view.bank.splits),
        databases=[name for name, _ in view.bank.drawable_counts],
        step_budget=view.service.settings.step_budget,
    )
    return html(page)


async def start(view: View) -> Response:
    """Start an episode, and lead to it."""
    wanted = parse_item(ResetRequest, await form_of(view))
    reply = await bytes_in_time(view.request, view.service.pool.reset, wanted)
    return RedirectResponse("episode?" + urlencode({"id": from_json(reply)["episode_id"]}), 303)


async def step(view: View) -> Response:
    """Take a step, and lead to what it returned."""
    form = await form_of(view)
    action = {name: form.pop(name, "") for name in ("action_type", "argument")}
    wanted = parse_item(StepRequest, {**form, "action": action})
    reply = await bytes_in_time(view.request, view.service.pool.step, wanted)
    taken = from_json(reply)["observation"]
    anchor = "" if taken["done"] else f"#step-{taken['step_count']}"
    return RedirectResponse(f"episode?{urlencode({'id': wanted.episode_id})}{anchor}", 303)


async def form_of(view: View) -> dict[str, str]:
    """Return the filled fields of a form; `Forbidden` if another site's page sent it."""
    if is_foreign(view.request, ()):  # browsers add the key's password to any site's form
        raise Forbidden("this form was sent by another site's page")
    body = (await read_body(view.request, view.service.settings)).decode(errors="replace")
    body = body.replace("%0D%0A", "%0A")  # browsers send a text area's line ends as two characters
    try:
        return dict(parse_qsl(body, max_num_fields=FORM_FIELDS))
    except ValueError:
        raise InvalidRequest(f"the form has over {FORM_FIELDS} fields: send fewer") from None


# -- episodes


async def episodes(view: View) -> Response:
    """List the episodes of a run, or of this server."""
    view.check_watches()
    runs = await view.runs()
    name = view.asked.get("run", next(iter(runs), ""))
    entries, damaged = await view.entries(name)
    asked = {k: view.asked[k] for k in (*FACETS, "question_id") if view.asked.get(k)}
    members = [one for one in entries if all(getattr(one, k) == v for k, v in asked.items())]
    offset = view.number("offset")
    page = view.render(
        "episodes.html.j2",
        runs=["", *runs],
        name=name,
        asked={"run": name, **asked},
        facets={facet: values_of(entries, facet) for facet in FACETS},
        found=[(one, view.text_of(one.question_id)) for one in members[offset : offset + ROWS]],
        place=place_of(offset, len(members)),
        damaged=damaged,
    )
    return html(page)


async def episode(view: View) -> str:
    """Show one episode, with a form for its next action if it has not ended."""
    if run := view.asked.get("run", ""):
        shown = await view.recorded(run, view.number("at"))
    else:
        shown = await view.held(view.asked.get("id", ""))
    asked = view.question(shown.question_id)
    gold = view.gold(asked)
    return await asyncio.to_thread(
        view.render, "episode.html.j2", shown=shown, run=run, question=asked, gold=gold
    )


async def question(view: View) -> str:
    """Show one question as several policies of a run, or of two runs, played it."""
    view.check_watches()
    runs = list(await view.runs())
    names = list(dict.fromkeys(filter(None, view.asked.getlist("run")))) or runs[:1]
    question_id = view.asked.get("id", "")
    first: dict[str, tuple[str, Entry]] = {}  # policy -> its first episode, and the run's name
    for name in names:
        own = [one for one in (await view.entries(name))[0] if one.question_id == question_id]
        for one in sorted(own, key=lambda one: one.order):
            first.setdefault(f"{name}: {one.policy}" if names[1:] else one.policy, (name, one))
    chosen = [policy for policy in view.asked.getlist("policy") if policy in first]
    chosen = chosen[:SIDES] or spread({policy: one for policy, (_, one) in first.items()})
    played = [(policy, *first[policy]) for policy in chosen]
    asked = view.question(question_id)
    return await asyncio.to_thread(
        view.render,
        "question.html.j2",
        sides=[(policy, await view.recorded(name, int(one.at))) for policy, name, one in played],
        policies={policy: one.outcome for policy, (_, one) in first.items()},
        chosen=chosen,
        runs=runs,
        names=names,
        question=asked,
        question_id=question_id,
        gold=view.gold(asked),
    )


def spread(policies: dict[str, Entry]) -> list[str]:
    """Return at most `SIDES` policies of the first one's mode, from the first to the last.

    Those of training episodes, each of which a checkpoint played once, are left out.
    """
    measured = {name: one for name, one in policies.items() if one.order[-1] != TRAIN}
    modes = [one.order[0] for one in measured.values()]
    same = [name for name, mode in zip(measured, modes, strict=True) if mode == modes[0]]
    places = [round(place * (len(same) - 1) / (SIDES - 1)) for place in range(SIDES)]
    return [same[place] for place in dict.fromkeys(places)] if same else []


def values_of(entries: list[Entry], facet: str) -> list[str]:
    """Return what a filter can choose, policies in their order."""
    orders = {getattr(one, facet): one.order if facet == "policy" else () for one in entries}
    return sorted(orders, key=lambda value: (orders[value], value))


def place_of(offset: int, total: int) -> dict[str, int | None]:
    """Return the range shown and the offsets of the previous and next pages."""
    return {
        "first": min(offset + 1, total),
        "last": min(offset + ROWS, total),
        "total": total,
        "previous": max(0, offset - ROWS) if offset else None,
        "next": offset + ROWS if offset + ROWS < total else None,
    }
