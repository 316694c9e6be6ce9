"""One episode as it is shown: its actions with what they returned and what each earned."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from env_server.audit.replay import play
from env_server.environment import SQLEnvironment
from env_server.episodes import PooledEpisode
from env_server.page.recordings import policy_name
from env_server.sql.pool import SqlPool
from shared.errors import SQLEnvError
from shared.models import RewardLedger, StepResult
from shared.pages.markup import (
    ERROR,
    ActionMarkup,
    ObservationMarkup,
    action_markup,
    cut,
    observation_markup,
)
from shared.run_files import EpisodeLine, observation_digest

RAW_CHARS = 600  # shown of a model's own text


@dataclass(frozen=True)
class Step:
    """One action. `parts` are its reward's; `ledger` has the sums after it, if it was replayed."""

    action: ActionMarkup
    observation: ObservationMarkup
    reward: float | None
    parts: dict[str, float]
    ledger: RewardLedger | None
    raw_text: str = ""  # the model's own, if it differs from the action's canonical one


@dataclass(frozen=True)
class Shown:
    """An episode with its steps; `link` is the query of its page, `note` what is wrong with it."""

    title: str
    link: dict[str, str]
    question_id: str
    outcome: str
    steps: Sequence[Step]
    steps_left: int | None = None
    schema: str = ""
    note: str = ""
    is_live: bool = False


async def shown_line(env: SQLEnvironment, sql: SqlPool, line: EpisodeLine, **link: str) -> Shown:
    """Return a recorded episode, replayed on this server's data."""
    replies = await play(env, sql, line.actions, question_id=line.question_id)
    note = ""
    if isinstance(replies, SQLEnvError):
        note = f"Actions and rewards as recorded; a replay fails here: {replies.message}."
        replies = []
    elif not line.observations:
        note = "Lost to infrastructure before the first reply."
    elif [observation_digest(one.observation) for one in replies] != line.observations:
        note = "The replay differs from the record: other data, rules or limits."
    title = policy_name(line.phase, line.mode, line.step)
    steps = await asyncio.to_thread(_steps, line.actions, replies, line)
    return Shown(title, link, line.question_id, line.outcome, steps, note=note)


async def shown_pooled(
    env: SQLEnvironment, sql: SqlPool, episode: PooledEpisode, sees_all: bool
) -> Shown:
    """Return an episode that this server holds, so far; `sees_all` includes withheld rewards."""
    actions = [*episode.actions]
    question_id, form, outcome = episode.question_id, episode.answer_form, episode.outcome
    rewards = "step" if sees_all else episode.rewards
    reset = {"question_id": question_id, "answer_form": form, "rewards": rewards}
    replies = await play(env, sql, actions, **reset)
    if isinstance(replies, SQLEnvError):
        raise replies
    last = replies[-1]
    return Shown(
        f"episode {episode.episode_id}" + (f" of {episode.owner}" if episode.owner else ""),
        {"id": episode.episode_id},
        question_id,
        outcome or "unfinished",
        await asyncio.to_thread(_steps, actions, replies),
        last.observation.budget_remaining,
        last.observation.schema_info,
        is_live=not last.done,
    )


def _steps(
    actions: Sequence[str], replies: Sequence[StepResult], line: EpisodeLine | None = None
) -> list[Step]:
    steps = []
    for index, action in enumerate(actions):
        text, reward, parts, ledger = "", None, dict[str, float](), None
        if replies:
            reply = replies[index + 1]
            error, ledger = reply.observation.error, reply.info.ledger
            text = ERROR + error if error else reply.observation.result
            reward, parts = reply.reward, ledger.step if ledger else {}
        elif line is not None:
            reward, parts = line.rewards[index], line.parts[index] if line.parts else {}
        raw = line.texts[index] if line is not None and index < len(line.texts) else None
        shown = action_markup(action), observation_markup(action, text)
        steps.append(Step(*shown, reward, parts, ledger, cut(raw or "", RAW_CHARS)))
    return steps
