"""Many episodes whose actions depend on what they see, and a record that no fault may change."""

import asyncio
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.client import SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.errors import SQLEnvError
from shared.models import StepResult
from shared.run_files import observation_digest
from tests.chaos.faults import Chaos

AT_ONCE = 64  # episodes under way


@dataclass(frozen=True)
class Played:
    """One episode. `digest` covers every observation, reward and outcome; `lost` is the error that
    ended it."""

    digest: str
    steps: int
    outcome: str | None
    counted_twice: bool  # the server's step count differs from the number of steps played
    lost: str | None = None


def next_action(stream: random.Random, reply: StepResult, budget: int, right: str) -> str:
    """Return a random exploring action that depends on the observation; towards the end, an
    answer, often `right`."""
    seen = reply.observation
    table = stream.choice(seen.tables)
    words = [word.strip(",|()'\"") for word in f"{seen.result} {seen.schema_info}".split()]
    word = stream.choice([word for word in words if word.isidentifier()] or ["nothing"])
    if seen.budget_remaining <= 2 and stream.random() < 0.7:
        return f"ANSWER: {stream.choice([right, right, word, (seen.result.split() or ['0'])[-1]])}"
    return stream.choice(
        (
            f"DESCRIBE: {table}",
            f"SAMPLE: {table}",
            f"QUERY: SELECT count(*) FROM {table}",
            f"QUERY: SELECT {word} FROM {table} ORDER BY 1 LIMIT {budget}",
            f"QUERY: SELECT * FROM {table} AS a, {table} AS b ORDER BY 1, 2 LIMIT 3",
            f"QUERY: SELEC {word}",
        )
    )


async def play_one(
    client: SQLEnvClient, run: str, number: int, right: Mapping[str, str], pace: "Pace"
) -> Played:
    """Play episode `number` of a run; equal numbers are equal episodes in all runs."""
    stream, total, steps, twice = random.Random(number), hashlib.sha256(), 0, False
    budget = stream.randint(4, 10)
    try:
        reply: StepResult = await client.reset(
            episode_id=f"{run}-{number}",
            split="train",
            seed=number,
            step_budget=budget,
            rewards="step",
        )
        total.update(observation_digest(reply.observation).encode())
        while not reply.done:
            await pace.before_a_step()
            action = next_action(stream, reply, budget, right[reply.info.question_id])
            steps += 1
            reply = await client.step(f"{run}-{number}", action)
            pace.answered += 1
            seen = reply.observation
            counts = {seen.step_count, budget - seen.budget_remaining, len(seen.action_history)}
            twice |= counts != {steps}
            line = f"{observation_digest(seen)} {reply.reward!r} {reply.info.outcome}\n"
            total.update(line.encode())
    except SQLEnvError as error:
        return Played(total.hexdigest(), steps, None, twice, lost=str(error))
    return Played(total.hexdigest(), steps, reply.info.outcome, twice)


class Pace:
    """Counts the answered steps of all episodes, and waits for faults that are due."""

    def __init__(self, chaos: Chaos | None) -> None:
        self.answered, self._chaos, self._gate = 0, chaos, asyncio.Lock()

    async def before_a_step(self) -> None:
        if self._chaos is not None:
            async with self._gate:  # or the waiting episodes would use up the pool of threads
                await asyncio.to_thread(self._chaos.pass_step, self.answered)


async def play_all(
    client: SQLEnvClient, run: str, data_dir: Path, episodes: int, chaos: Chaos | None
) -> list[Played]:
    """Play `episodes` episodes, whose ids start with `run`; return them in order."""
    questions = load_questions(questions_path(data_dir, "train"))
    right = {question.question_id: question.answer_text for question in questions}
    places, pace = asyncio.Semaphore(AT_ONCE), Pace(chaos)

    async def play(number: int) -> Played:
        async with places:
            return await play_one(client, run, number, right, pace)

    return await asyncio.gather(*map(play, range(episodes)))
