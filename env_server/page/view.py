"""One request of a person: who looks, what may be seen, and the templates filled with it.

Agents' keys open nothing: an episode of another agent may hold the answer. Without any key,
episodes are listed on loopback only. Gold is shown to the operator's key alone.
"""

import asyncio
import time
from collections import deque
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from jinja2 import Environment
from starlette._utils import get_route_path

from env_server.audit.replay import play
from env_server.environment import SQLEnvironment
from env_server.episodes import PooledEpisode, unknown
from env_server.http.auth import HOME, OPERATOR, SIGN_IN, caller_of, closed_to_operators
from env_server.http.work import service_of
from env_server.questions import AnyQuestion, QuestionBank
from env_server.service import Service
from shared.dataset import Question
from shared.errors import Forbidden, SQLEnvError
from shared.models import Outcome, StepResult
from shared.run_stats import Rate

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
        owners = pool.store.owners
        stepping = sum(one.users > 0 for held in owners.values() for one in held.active.values())
        return {
            "rates": [(b - a) / (end - start) for (start, a), (end, b) in pairwise(samples)],
            "unfinished": len(pool),
            "capacity": service.settings.capacity,
            "draining": pool.draining,
            "started": pool.counts["started"],
            "correct": Rate(pool.ended[Outcome.CORRECT], sum(pool.ended.values())),
            "states": {
                "waiting for an action": len(pool) - stepping,
                "with a step under way": stepping,
                "ended, kept for repeats": pool.store.finished,
            },
            "outcomes": dict(pool.ended),
            "steps": dict(pool.steps),
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

    def episodes(self) -> list[PooledEpisode]:
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

    def episode(self) -> PooledEpisode:
        episode_id = self.asked.get("id", "")
        if (found := self.service.pool.store.find(episode_id, self.caller)) is None:
            raise unknown(episode_id)
        return found

    async def replay(self, episode: PooledEpisode, actions: list[str]) -> list[StepResult]:
        """Return the replies to an episode's reset and actions; operators see every reward."""
        standard = self.service.settings.standard
        env = SQLEnvironment(self.bank, step_budget=episode.step_budget, standard=standard)
        replies = await play(
            env,
            self.service.pool.sql,
            actions,
            question_id=episode.question_id,
            answer_form=episode.answer_form,
            rewards="step" if self.caller.is_operator else episode.rewards,
        )
        if isinstance(replies, SQLEnvError):
            raise replies
        return replies
