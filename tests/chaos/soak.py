"""Many episodes whose actions depend on what they see: what faults change of them."""

import asyncio
import hashlib
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.client import ClientLimits, ClientStats, SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.errors import SQLEnvError
from shared.models import StepResult
from shared.run_files import observation_digest
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Chaos, Fault

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


@dataclass(frozen=True)
class FaultOutcome:
    """What was played under which faults, and the result. `lost` to `different` should be 0."""

    way: str
    episodes: int
    steps: int
    outcomes: dict[str, int]
    faults: dict[str, int]
    lost: int
    counted_twice: int
    different: int
    rebuilds: int
    retries: int
    seconds: float
    undisturbed_s: float
    more: dict[str, Any]


def client_of(urls: Sequence[str], stall_s: float) -> SQLEnvClient:
    """Return a client that notices faults fast and is as patient as a training run's."""
    limits = ClientLimits(stall_s=stall_s, patience_s=600.0, backoff_s=0.1, longest_wait_s=2.0)
    return SQLEnvClient(urls, limits)


def soak(
    way: str,
    data_dir: Path,
    cluster: Cluster,
    urls: Sequence[str],
    episodes: int,
    faults: Sequence[Fault],
    *,
    stall_s: float = 3.0,
) -> FaultOutcome:
    """Play `episodes` on one undisturbed server, then on `urls` under `faults`; compare them."""

    async def play(
        run: str, urls: Sequence[str], chaos: Chaos | None
    ) -> tuple[list[Played], float, ClientStats]:
        began = time.monotonic()
        async with client_of(urls, stall_s) as client:
            played = await play_all(client, f"{way}-{run}", data_dir, episodes, chaos)
        return played, time.monotonic() - began, client.stats

    expected, undisturbed_s, _ = asyncio.run(play("calm", [cluster.servers[0].url], None))
    steps = sum(one.steps for one in expected)
    with Chaos(cluster, faults, every=max(1, steps // (len(faults) + 1))) as chaos:
        played, seconds, stats = asyncio.run(play("chaos", urls, chaos))
    differing = Counter(one.digest for one in played)
    differing.subtract(one.digest for one in expected)
    errors = [one.lost for one in played if one.lost is not None]
    more = {name: getattr(stats, name) for name in ("moves", "servers_lost", "requests")}
    return FaultOutcome(
        way,
        len(played),
        sum(one.steps for one in played),
        dict(sorted(Counter(str(one.outcome) for one in played).items())),
        dict(sorted(chaos.done.items())),
        lost=len(errors),
        counted_twice=sum(one.counted_twice for one in played),
        different=max((+differing).total(), (-differing).total()),
        rebuilds=stats.rebuilds,
        retries=stats.retries,
        seconds=round(seconds, 2),
        undisturbed_s=round(undisturbed_s, 2),
        more={**more, "errors": sorted(set(errors))[:3]},
    )
