"""Play recorded actions again as the server did: same state machine, same SQL workers, no HTTP."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from env_server.drive import drive_async
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql import SqlJob, SqlResult
from shared.errors import SQLEnvError
from shared.models import StepResult

IN_FLIGHT = 128  # episodes played concurrently


class Sql(Protocol):
    """Runs SQL jobs, as `env_server.sql.SqlPool` does on worker processes."""

    async def run(self, job: SqlJob, /) -> SqlResult: ...


@dataclass(frozen=True)
class Recorded:
    """What determines an episode: its question, its budget and its actions as canonical texts."""

    question_id: str
    step_budget: int
    actions: Sequence[str]


async def replay_one(bank: QuestionBank, sql: Sql, episode: Recorded) -> list[StepResult]:
    """Return the replies to the reset and to each action. Raises the environment's errors."""
    env = SQLEnvironment(bank)
    reset = env.reset_jobs(
        question_id=episode.question_id, step_budget=episode.step_budget, episode_id="replay"
    )
    replies: list[StepResult] = [await drive_async(reset, sql.run)]
    for action in episode.actions:
        replies.append(await drive_async(env.step_jobs(action), sql.run))
    return replies


async def replay(
    bank: QuestionBank, sql: Sql, episodes: Iterable[Recorded], in_flight: int = IN_FLIGHT
) -> AsyncIterator[list[StepResult] | SQLEnvError]:
    """Yield `replay_one` of each episode in order, or the error that prevented it."""

    async def attempt(episode: Recorded) -> list[StepResult] | SQLEnvError:
        try:
            return await replay_one(bank, sql, episode)
        except SQLEnvError as error:
            return error

    waiting = iter(episodes)
    while group := list(islice(waiting, in_flight)):
        for replies in await asyncio.gather(*map(attempt, group)):
            yield replies
