"""Plays many episodes whose actions follow from what they see, and keeps what must not depend on
any fault."""

import asyncio
import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.faults import Chaos
from shared.client import SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.errors import SQLEnvError
from shared.models import StepResult
from shared.run_files import observation_digest


@dataclass(frozen=True)
class Played:
    """One episode. `digest` covers every observation, reward and outcome; `lost` is the error that
    ended it."""

    digest: str
    steps: int
    outcome: str | None
    charged_twice: bool  # the server counted other steps than those that were played
    lost: str | None = None


def answers(data_dir: Path) -> dict[str, str]:
    """Question id -> the text of its right answer, of the questions that are trained on."""
    gold = {
        one.question_id: one.gold_answer
        for one in load_questions(questions_path(data_dir, "train"))
    }
    return {
        name: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for name, one in gold.items()
    }


def next_action(stream: random.Random, reply: StepResult, budget: int, right: str) -> str:
    """Explores at random, and answers towards the end, often right; what it does follows from the
    observation, too."""
    seen = reply.observation
    tables = seen.schema_info.splitlines()[0].removeprefix("Tables: ").split(", ")
    table = stream.choice(tables)
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
    """Episode `number` of a run; equal numbers are equal episodes in all runs."""
    stream, total, sent, twice = random.Random(number), hashlib.sha256(), [], False
    budget = stream.randint(4, 10)
    try:
        reply: StepResult = await client.reset(
            episode_id=f"{run}-{number}", split="train", seed=number, step_budget=budget
        )
        total.update(observation_digest(reply.observation).encode())
        while not reply.done:
            await pace.before_a_step()
            sent.append(next_action(stream, reply, budget, right[reply.info.question_id]))
            reply = await client.step(f"{run}-{number}", sent[-1])
            pace.answered += 1
            seen = reply.observation
            twice |= (seen.step_count, budget - seen.budget_remaining) != (len(sent), len(sent))
            twice |= len(seen.action_history) != len(sent)
            total.update(
                f"{observation_digest(seen)} {reply.reward!r} {reply.info.outcome}\n".encode()
            )
    except SQLEnvError as error:
        return Played(total.hexdigest(), len(sent), None, twice, lost=str(error))
    return Played(total.hexdigest(), len(sent), reply.info.outcome, twice)


class Pace:
    """Steps answered by all episodes together; with faults, a step waits for those that are due."""

    def __init__(self, chaos: Chaos | None = None) -> None:
        self.answered, self._chaos, self._gate = 0, chaos, asyncio.Lock()

    async def before_a_step(self) -> None:
        if self._chaos is None:
            return
        self._chaos.note(self.answered)
        async with self._gate:
            if not self._chaos.may_pass(self.answered):
                await asyncio.to_thread(self._chaos.pass_step, self.answered)


async def play_all(
    client: SQLEnvClient,
    run: str,
    episodes: int,
    right: Mapping[str, str],
    *,
    at_once: int = 64,
    chaos: Chaos | None = None,
) -> list[Played]:
    """`episodes` of them, in order; `run` goes into their ids, so that no run meets another's on a
    server."""
    places, pace = asyncio.Semaphore(at_once), Pace(chaos)

    async def one(number: int) -> Played:
        async with places:
            return await play_one(client, run, number, right, pace)

    return await asyncio.gather(*map(one, range(episodes)))


def compare(played: list[Played], undisturbed: list[Played]) -> Mapping[str, int]:
    """How many episodes were lost, charged twice, or otherwise than in the undisturbed run; all
    should be 0."""
    return {
        "lost": sum(one.lost is not None for one in played),
        "charged_twice": sum(one.charged_twice for one in played),
        "different": sum(
            one.digest != two.digest for one, two in zip(played, undisturbed, strict=True)
        ),
    }
