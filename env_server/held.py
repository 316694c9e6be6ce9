"""One held episode, and what an id or a list of actions means to the pool."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from env_server.environment import SQLEnvironment, as_action
from shared.actions import SQLAction, render_action
from shared.errors import InvalidAction, UnknownEpisode
from shared.models import AnswerForm, Outcome


@dataclass(slots=True, eq=False)
class Episode:
    """One held episode. `env` is None before the start and after the end; `reply` is the last one,
    as bytes."""

    episode_id: str
    question_id: str
    step_budget: int
    answer_form: AnswerForm
    touched: float  # monotonic seconds, of the last request
    env: SQLEnvironment | None = None
    reply: bytes = b""
    actions: list[str] = field(default_factory=list)  # canonical texts, of the answered steps
    outcome: Outcome | None = None
    verdicts: dict[str, bool] | None = None  # of the ANSWER, by standard
    users: int = 0  # requests that hold or await `turn`; such an episode is not idle
    gone: bool = False  # no longer in the pool
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def canonical(actions: Sequence[SQLAction | str]) -> list[str]:
    """Each action's canonical text, or `InvalidAction` saying which is none."""
    texts = []
    for index, action in enumerate(actions):
        try:
            texts.append(render_action(as_action(action)))
        except InvalidAction as error:
            raise InvalidAction(f"actions.{index}: {error.message}") from None
    return texts


def unknown(episode_id: str) -> UnknownEpisode:
    return UnknownEpisode(
        f"no episode {episode_id[:80]!r} here: it expired, was closed or lives on another server; POST /reset with "
        "its id, question and 'actions' to rebuild it"
    )
