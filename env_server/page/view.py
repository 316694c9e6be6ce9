"""One request of a person: who looks, what may be seen, and the templates filled with it.

Agents' keys open nothing: an episode of another agent may hold the answer. Without any key,
episodes are shown on loopback only. Gold is shown to the operator's key alone.
"""

import asyncio
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from jinja2 import Environment
from starlette._utils import get_route_path

from env_server.audit.replay import RunFolder
from env_server.environment import SQLEnvironment
from env_server.episodes import unknown
from env_server.http.auth import HOME, OPERATOR, SIGN_IN, caller_of, closed_to_operators
from env_server.http.work import service_of
from env_server.page import recordings
from env_server.page.board import Board
from env_server.page.episode import Shown, shown_line, shown_pooled
from env_server.page.recordings import Entry
from env_server.questions import AnyQuestion, QuestionBank
from env_server.service import Service
from shared.dataset import Question
from shared.errors import Forbidden, UnknownEpisode, UnknownQuestion
from shared.models import StandardName
from shared.run_files import RunFiles


class View:
    """What a request may see. Methods raise errors of `shared.errors`."""

    def __init__(self, request: Request, templates: Environment, board: Board) -> None:
        self.request, self.templates, self.board = request, templates, board
        self.asked, self.caller = request.query_params, caller_of(request)
        self._runs: dict[str, RunFiles] | None = None

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

    @property
    def watches(self) -> bool:
        """Whether recorded episodes may be seen, and the caller's own on this server."""
        closed = closed_to_operators(self.service.settings)
        return bool(self.caller.owner) or not (self.can_sign_in or OPERATOR in closed)

    def check(self) -> None:
        """Raise `Forbidden` for an agent's key, `NotReady` before the server is."""
        if self.service and self.caller.is_agent:
            raise Forbidden("an agent's key opens no page: episodes of others may hold answers")

    def check_watches(self) -> None:
        """Raise `Forbidden` unless the viewer may see episodes that others played."""
        if not self.watches:
            remedy = "sign in" if self.can_sign_in else "start the server with SQLENV_OPERATOR_KEY"
            raise Forbidden(f"episodes hold answers and are shown to those with a key: {remedy}")

    def number(self, name: str) -> int:
        """Return a number in the address, 0 if there is none."""
        return int(text) if (text := self.asked.get(name, "")[:18]).isdecimal() else 0

    def render(self, template: str, **values: Any) -> str:
        """Return a template filled; `root` leads from the request's path to the server's."""
        path = get_route_path(self.request.scope)
        root = "" if path in (HOME, SIGN_IN) else "../"
        found = self.templates.get_template(template)
        return found.render(**values, root=root, path=path, query=urlencode, view=self)

    # -- questions

    def question(self, question_id: str) -> AnyQuestion | None:
        """Return a question of this server; None for one of other data."""
        try:
            return self.bank.get(question_id)
        except UnknownQuestion:
            return None

    def text_of(self, question_id: str) -> str:
        found = self.question(question_id)
        return found.question_text if found else question_id

    def gold(self, question: AnyQuestion | None) -> Question | None:
        """Return a question whose gold the caller may see."""
        return question if self.caller.is_operator and isinstance(question, Question) else None

    # -- episodes

    async def runs(self) -> dict[str, RunFiles]:
        """Return the recorded runs by name, looked for once per request."""
        if self._runs is None:
            folder = self.service.settings.runs_dir
            self._runs = await asyncio.to_thread(recordings.runs_in, folder)
        return self._runs

    async def run(self, name: str) -> RunFiles:
        self.check_watches()
        if (run := (await self.runs()).get(name)) is None:
            raise UnknownEpisode(f"no recorded run {name[:80]!r} in SQLENV_RUNS_DIR")
        return run

    async def entries(self, name: str) -> tuple[list[Entry], int]:
        """Return a run's episodes and how many lines are damaged; "" for this server's."""
        if name:
            return await asyncio.to_thread(recordings.entries_of, await self.run(name))
        self.check_watches()
        owners = self.service.pool.store.owners
        names = owners if self.caller.is_operator else {self.caller.owner} & owners.keys()
        holdings = [owners[name] for name in names]
        episodes = [
            one for held in holdings for one in (*held.active.values(), *held.finished.values())
        ]
        questions = {one: self.bank.get(one.question_id) for one in episodes}
        return [
            Entry(
                at=one.episode_id,
                question_id=one.question_id,
                database=question.database_name,
                difficulty=question.difficulty if isinstance(question, Question) else "open",
                outcome=one.outcome or "unfinished",
                policy=one.owner or "without a key",
                steps=len(one.actions),
            )
            for one, question in reversed(questions.items())
        ], 0

    async def recorded(self, name: str, at: int) -> Shown:
        """Return the episode whose line begins at a byte of a run's file, replayed here."""
        run = await self.run(name)
        line = await asyncio.to_thread(recordings.line_at, run, at)
        config = (await asyncio.to_thread(RunFolder.open, run.path)).settings.config
        env = self._environment(config.step_budget, config.standard)
        return await shown_line(env, self.service.pool.sql, line, run=name, at=str(at))

    async def held(self, episode_id: str) -> Shown:
        """Return an episode that this server holds, so far."""
        pool = self.service.pool
        if (found := pool.store.find(episode_id, self.caller)) is None:
            raise unknown(episode_id)
        env = self._environment(found.step_budget, self.service.settings.standard)
        return await shown_pooled(env, pool.sql, found, self.caller.is_operator)

    def _environment(self, step_budget: int, standard: StandardName) -> SQLEnvironment:
        return SQLEnvironment(self.bank, step_budget=step_budget, standard=standard)
