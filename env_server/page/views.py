"""The page's paths, and one request of a person: who looks, and what may be seen.

/                 the board; /page/board is its numbers alone, which the page asks for every second
/signin           asks the browser for the operator's key
/page/play        questions to play by hand; a POST starts an episode
/page/step        a POST takes a step
/page/episodes    the episodes that this server holds
/page/episode     one of them, replayed

Agents' keys open nothing: an episode of another agent may hold the answer. Without any key,
episodes are listed on loopback only. Gold is shown to the operator's key alone.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment
from starlette._utils import get_route_path

from env_server.episode import Episode, replay
from env_server.http.auth import HOME, OPERATOR, PAGE, SIGN_IN, caller_of, closed_to_operators
from env_server.http.requests import parse_item
from env_server.http.responses import error_reply, page_headers
from env_server.http.work import in_time, incoming, service_of
from env_server.questions import QuestionBank
from env_server.service import Service
from env_server.store import Caller
from shared import pages
from shared.dataset import AnyQuestion, Question
from shared.errors import Forbidden, InvalidRequest, SQLEnvError
from shared.models import Outcome, QuestionsRequest, ResetRequest, StepRequest, StepResult
from shared.pages.markup import ERROR, action_markup, observation_markup
from shared.run_stats import success_rate

ROWS = 50  # of a list on one page
FORM_FIELDS = 16
SAMPLES, SAMPLE_S = 121, 0.9  # of steps per second: how many are kept, seconds between two
REPLAYS = 2  # pages with replayed episodes that are made at a time


class Board:
    """What the server does now, and what all viewers of its page share."""

    def __init__(self) -> None:
        self.replays = asyncio.Semaphore(REPLAYS)
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def numbers(self, service: Service) -> dict[str, Any]:
        """Return the numbers; a rate needs two samples, of which each call takes one."""
        pool, samples = service.pool, self._samples
        now = time.monotonic()
        if not samples or now - samples[-1][0] >= SAMPLE_S:
            samples.append((now, sum(pool.steps.values())))
        steps = Counter[str]()
        for (_, kind), count in pool.steps.items():
            steps[kind] += count
        owners = pool.store.owners
        stepping = sum(one.users > 0 for held in owners.values() for one in held.active.values())
        return {
            "rates": [(b - a) / (end - start) for (start, a), (end, b) in pairwise(samples)],
            "unfinished": len(pool),
            "capacity": service.settings.capacity,
            "draining": pool.draining,
            "started": pool.counts["started"],
            "correct": success_rate(pool.ended[Outcome.CORRECT], sum(pool.ended.values())),
            "states": {
                "waiting for an action": len(pool) - stepping,
                "with a step under way": stepping,
                "ended, kept for repeats": pool.store.finished,
            },
            "outcomes": dict(pool.ended),
            "steps": dict(steps),
            "sql": {
                "jobs waiting or running": service.sql.queue_depth,
                "workers": service.sql.workers_up,
                "workers lost": service.sql.counts["losses"],
            },
            "owners": {name or "none": len(held.active) for name, held in owners.items()},
        }


class View:
    """What a request may see. Methods raise errors of `shared.errors`."""

    def __init__(self, request: Request, templates: Environment, board: Board) -> None:
        self.request, self.templates, self.board = request, templates, board
        self.asked, self.caller = request.query_params, caller_of(request)

    @property
    def service(self) -> Service:
        return service_of(self.request)

    @property
    def bank(self) -> QuestionBank:
        return self.service.pool.bank

    @property
    def can_sign_in(self) -> bool:
        service: Service | None = self.request.app.state.service  # None before the server is ready
        keyed = service is not None and service.settings.operator_key is not None
        return keyed and not self.caller.is_operator

    def check(self) -> None:
        """Raise `Forbidden` for an agent's key, `NotReady` before the server is."""
        if self.service and self.caller.is_agent:
            raise Forbidden("an agent's key opens no page: episodes of others may hold answers")

    def number(self, name: str) -> int:
        """Return a number in the address, 0 if there is none."""
        return int(text) if (text := self.asked.get(name, "")[:18]).isdecimal() else 0

    def render(self, template: str, **values: Any) -> str:
        """Return a template filled; `root` leads from the request's path to the server's."""
        path = get_route_path(self.request.scope)
        root = "" if path in (HOME, SIGN_IN) else "../"
        found = self.templates.get_template(template)
        return found.render(**values, root=root, path=path, query=urlencode, view=self)

    def gold(self, question: AnyQuestion) -> Question | None:
        """Return a question whose gold the caller may see."""
        return question if self.caller.is_operator and isinstance(question, Question) else None

    # -- episodes

    def episodes(self) -> list[Episode]:
        """Return the episodes that the caller may see: unfinished ones, then those that ended."""
        closed = closed_to_operators(self.service.settings)
        if not self.caller.owner and (self.can_sign_in or OPERATOR in closed):
            remedy = "sign in" if self.can_sign_in else "start the server with SQLENV_OPERATOR_KEY"
            raise Forbidden(f"episodes hold answers and are listed for those with a key: {remedy}")
        owners = self.service.pool.store.owners
        names = owners if self.caller.is_operator else {self.caller.owner} & owners.keys()
        holdings = [owners[name] for name in names]
        active = [one for held in holdings for one in reversed(held.active.values())]
        return active + [one for held in holdings for one in reversed(held.finished.values())]

    async def replay(self, episode: Episode, actions: list[str]) -> list[StepResult]:
        """Return the replies to an episode's reset and actions; operators see every reward."""
        options = episode.options
        if self.caller.is_operator:
            options = options._replace(rewards="step")
        again = Episode(self.bank, options, episode.standard)
        return [reply async for reply in replay(again, actions, self.service.sql.run)]


# -- the paths

Handler = Callable[[View], Awaitable[Response]]


def add_page(app: FastAPI) -> None:
    templates = pages.environment("env_server.page", "page.css", "page.js")
    script, style = (f"'{templates.globals[f'{name}_hash']}'" for name in ("script", "style"))
    headers = page_headers(script, style)
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


def html(page: str, status: int = 200) -> Response:
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
    reply = await in_time(view.request, view.service.pool.reset, wanted)
    return RedirectResponse("episode?" + urlencode({"id": reply.episode_id}), 303)


async def step(view: View) -> Response:
    form = await form_of(view)
    action = {name: form.pop(name, "") for name in ("action_type", "argument")}
    wanted = parse_item(StepRequest, {**form, "action": action})
    taken = (await in_time(view.request, view.service.pool.step, wanted)).observation
    anchor = "" if taken.done else f"#step-{taken.step_count}"
    return RedirectResponse(f"episode?{urlencode({'id': wanted.episode_id})}{anchor}", 303)


async def form_of(view: View) -> dict[str, str]:
    async with incoming(view.request) as content:
        body = content.decode(errors="replace")
    body = body.replace("%0D%0A", "%0A")  # browsers send a text area's line ends as two characters
    try:
        return dict(parse_qsl(body, max_num_fields=FORM_FIELDS))
    except ValueError:
        raise InvalidRequest(f"the form has over {FORM_FIELDS} fields: send fewer") from None


# -- episodes


async def episodes(view: View) -> Response:
    found, offset = view.episodes(), view.number("offset")
    shown = [(one, one.question) for one in found[offset : offset + ROWS]]
    return html(view.render("episodes.html.j2", found=shown, place=place_of(offset, len(found))))


async def episode(view: View) -> Response:
    async def page(_: View, _caller: Caller) -> str:
        found = view.service.pool.store.get(view.asked.get("id", ""), view.caller)
        question, actions = found.question, [*found.actions]
        async with view.board.replays:
            replies = await view.replay(found, actions)
            return await asyncio.to_thread(
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

    return html(await in_time(view.request, page, view))


def place_of(offset: int, total: int) -> dict[str, int | None]:
    """Return the range shown and the offsets of the previous and next pages."""
    return {
        "first": min(offset + 1, total),
        "last": min(offset + ROWS, total),
        "total": total,
        "previous": max(0, offset - ROWS) if offset else None,
        "next": offset + ROWS if offset + ROWS < total else None,
    }
