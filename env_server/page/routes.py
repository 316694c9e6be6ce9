"""The page's paths.

/                 the board; /page/board is its numbers alone, which the page asks for every second
/signin           asks the browser for the operator's key
/page/play        questions to play by hand; a POST starts an episode
/page/step        a POST takes a step
/page/episodes    the episodes that this server holds
/page/episode     one of them, replayed
"""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from pydantic_core import from_json

from env_server.episodes import Caller
from env_server.http.auth import HOME, PAGE, SIGN_IN
from env_server.http.requests import is_foreign, parse_item, read_body
from env_server.http.responses import error_reply
from env_server.http.work import bytes_in_time
from env_server.page.view import Board, View
from shared import pages
from shared.errors import Forbidden, InvalidRequest, SQLEnvError
from shared.models import QuestionsRequest, ResetRequest, StepRequest
from shared.pages.markup import ERROR, action_markup, observation_markup

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
FORM_FIELDS = 16


def add_page(app: FastAPI) -> None:
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
    add("GET", f"{PAGE}/board", board_alone)
    add("GET", f"{PAGE}/play", choose)
    add("POST", f"{PAGE}/play", start)
    add("POST", f"{PAGE}/step", step)
    add("GET", f"{PAGE}/episodes", episodes)
    add("GET", f"{PAGE}/episode", episode)


def html(page: str | bytes, status: int = 200) -> Response:
    return Response(page, status, media_type="text/html")


async def home(view: View) -> Response:
    now = view.board.numbers(view.service)
    return html(view.render("home.html.j2", metadata=view.service.metadata, now=now))


async def sign_in(view: View) -> Response:
    """Return to the board: whoever gets here has shown the key, which the browser now sends."""
    return RedirectResponse("./", 303)


async def board_alone(view: View) -> Response:
    return html(view.render("board.html.j2", now=view.board.numbers(view.service)))


# -- playing by hand


async def choose(view: View) -> Response:
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
    wanted = parse_item(ResetRequest, await form_of(view))
    reply = await bytes_in_time(view.request, view.service.pool.reset, wanted)
    return RedirectResponse("episode?" + urlencode({"id": from_json(reply)["episode_id"]}), 303)


async def step(view: View) -> Response:
    form = await form_of(view)
    action = {name: form.pop(name, "") for name in ("action_type", "argument")}
    wanted = parse_item(StepRequest, {**form, "action": action})
    reply = await bytes_in_time(view.request, view.service.pool.step, wanted)
    taken = from_json(reply)["observation"]
    anchor = "" if taken["done"] else f"#step-{taken['step_count']}"
    return RedirectResponse(f"episode?{urlencode({'id': wanted.episode_id})}{anchor}", 303)


async def form_of(view: View) -> dict[str, str]:
    """Return the filled fields of a form; `Forbidden` if another site's page sent it."""
    if is_foreign(view.request):  # browsers add the key's password to any site's form
        raise Forbidden("this form was sent by another site's page")
    body = (await read_body(view.request, view.service.settings)).decode(errors="replace")
    body = body.replace("%0D%0A", "%0A")  # browsers send a text area's line ends as two characters
    try:
        return dict(parse_qsl(body, max_num_fields=FORM_FIELDS))
    except ValueError:
        raise InvalidRequest(f"the form has over {FORM_FIELDS} fields: send fewer") from None


# -- episodes


async def episodes(view: View) -> Response:
    found, offset = view.episodes(), view.number("offset")
    shown = [(one, view.bank.get(one.question_id)) for one in found[offset : offset + ROWS]]
    return html(view.render("episodes.html.j2", found=shown, place=place_of(offset, len(found))))


async def episode(view: View) -> Response:
    """Show one episode, replayed, with a form for its next action if it has not ended."""

    async def page(_: View, _caller: Caller) -> bytes:
        found = view.episode()
        question, actions = view.bank.get(found.question_id), [*found.actions]
        async with view.board.replays:
            replies = await view.replay(found, actions)
            text = await asyncio.to_thread(
                view.render,
                "episode.html.j2",
                episode=found,
                steps=list(zip(actions, replies[1:], strict=True)),
                last=replies[-1],
                question=question,
                gold=view.gold(question),
                action_markup=action_markup,
                observation_markup=observation_markup,
                error_mark=ERROR,
            )
        return text.encode()

    return html(await bytes_in_time(view.request, page, view))


def place_of(offset: int, total: int) -> dict[str, int | None]:
    """Return the range shown and the offsets of the previous and next pages."""
    return {
        "first": min(offset + 1, total),
        "last": min(offset + ROWS, total),
        "total": total,
        "previous": max(0, offset - ROWS) if offset else None,
        "next": offset + ROWS if offset + ROWS < total else None,
    }
