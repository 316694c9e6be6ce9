"""Play recorded actions again as the server did: same state machine, same SQL workers, no HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from env_server.drive import drive_async
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql.pool import SqlPool
from shared.errors import SQLEnvError
from shared.models import StandardName, StepResult
from shared.run_files import EpisodeLine, LineError, check_seal, numbered_lines, read_episode

IN_FLIGHT = 128  # episodes played concurrently

Progress = Callable[[int, int], None]  # (episodes done, in all)
NumberedLine = tuple[int, EpisodeLine]  # lines count from 1
Replies = list[StepResult] | SQLEnvError


def read_lines(path: Path) -> Iterator[tuple[int, EpisodeLine | LineError]]:
    """Yield the number and the episode, or the damage, of each line. Raises `OSError`."""
    for number, line in numbered_lines(path):
        try:
            check_seal(line)
            yield number, read_episode(line)
        except LineError as error:
            yield number, error


async def play(env: SQLEnvironment, sql: SqlPool, actions: Sequence[str], **reset: Any) -> Replies:
    """Return the replies to a reset and to each action, or the error in their place."""
    try:
        replies: list[StepResult] = [await drive_async(env.reset_jobs(**reset), sql.run)]
        for action in actions:
            replies.append(await drive_async(env.step_jobs(action), sql.run))
        return replies
    except SQLEnvError as error:
        return error


async def replay(
    bank: QuestionBank,
    sql: SqlPool,
    lines: Iterable[NumberedLine],
    step_budget: int,
    standard: StandardName,
) -> AsyncIterator[tuple[int, EpisodeLine, Replies]]:
    """Yield each line with the replies to its reset and actions, or the error in their place."""

    async def played(episode: EpisodeLine) -> Replies:
        env = SQLEnvironment(bank, step_budget=step_budget, standard=standard)
        return await play(env, sql, episode.actions, question_id=episode.question_id)

    waiting = iter(lines)
    while group := list(islice(waiting, IN_FLIGHT)):
        found = await asyncio.gather(*(played(episode) for _, episode in group))
        for (number, episode), replies in zip(group, found, strict=True):
            yield number, episode, replies
