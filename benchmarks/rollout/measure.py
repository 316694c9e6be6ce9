"""Where the seconds of a rollout go: its time line, and the same turns with no environment."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import mean, median
from typing import Any

import httpx

from shared.client import SQLEnvClient
from shared.client.sync import SyncSQLEnvClient
from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.rollout.adapters import TRL_COLUMNS
from trainer.rollout.dataset import Prompt, load_question_prompts
from trainer.rollout.generators.base import Generator, Sample
from trainer.rollout.loop import local_generator, play_episodes
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import codec_of

GENERATION, ENVIRONMENT = "generation", "environment"
# all else, by what comes before and after it
READING, PARSING, ENDING = "observations to tokens", "text to actions", "rows and rewards"
ELSE = (PARSING, READING, ENDING)
Round = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """A phase that `live` episodes are in, in seconds since the start of the rollout."""

    phase: str
    start_s: float
    end_s: float
    live: int


@dataclass
class Recorder:
    """What a rollout waited for, and everything that its generator was given and returned."""

    start_s: float = field(default_factory=time.perf_counter)
    waits: list[Span] = field(default_factory=list)
    streams: list[tuple[int, ...]] = field(default_factory=list)
    # one per call: rows that started again, ids appended to rows, the samples that ended
    turns: list[tuple[list[int], dict[int, list[int]], Any]] = field(default_factory=list)

    @contextmanager
    def waiting(self, phase: str, live: int) -> Iterator[None]:
        """Record the block as one span."""
        start = time.perf_counter() - self.start_s
        yield
        self.waits.append(Span(phase, start, time.perf_counter() - self.start_s, live))


class RecordedGenerator:
    """A generator that records its calls."""

    def __init__(self, inner: Generator, recorder: Recorder) -> None:
        self._inner, self._recorder = inner, recorder
        self._restarted: list[int] = []
        self._under_way: set[int] = set()  # rows whose turn has not ended
        self.room = inner.room

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self._recorder.streams = list(streams)
        self._inner.start(streams)

    def restart(self, row: int) -> None:
        self._restarted.append(row)
        self._inner.restart(row)

    def sample(self, appended: Mapping[int, Sequence[int]]) -> Mapping[int, Sample | SQLEnvError]:
        self._under_way.update(appended)
        with self._recorder.waiting(GENERATION, len(self._under_way)):
            samples = self._inner.sample(appended)
        self._under_way.difference_update(samples)
        fed = {row: list(ids) for row, ids in appended.items()}
        self._recorder.turns.append((self._restarted, fed, samples))
        self._restarted = []
        return samples


class Delayed(httpx.AsyncHTTPTransport):
    """A network that holds back every request for `delay_s`."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return await super().handle_async_request(request)


class RecordedClient(SyncSQLEnvClient):
    """A client that records the waits for its server."""

    def __init__(self, url: str, delay_s: float) -> None:
        super().__init__(SQLEnvClient(url, transport=Delayed(delay_s)))
        self.recorder = Recorder()

    def reset_many(self, requests: Any) -> Any:
        with self.recorder.waiting(ENVIRONMENT, len(requests)):
            return super().reset_many(requests)

    def step_many(self, steps: Any) -> Any:
        with self.recorder.waiting(ENVIRONMENT, len(steps)):
            return super().step_many(steps)

    def close_episode(self, episode_id: str) -> None:
        with self.recorder.waiting(ENVIRONMENT, 0):
            super().close_episode(episode_id)


@dataclass(frozen=True)
class Rollout:
    """One batch, played, and the rewards that an update would learn from."""

    rows: list[RolloutRow]
    recorder: Recorder
    whole_s: float
    cpu_s: float  # of this process

    def spans(self) -> list[Span]:
        """Return its whole time as spans without gaps."""
        return without_gaps(self.recorder.waits, self.whole_s)

    def seconds(self) -> dict[str, float]:
        """Return phase -> seconds; they add up to `whole_s`."""
        seconds = dict.fromkeys((GENERATION, ENVIRONMENT, *ELSE), 0.0)
        for span in self.spans():
            seconds[span.phase] += span.end_s - span.start_s
        return seconds

    def step_waits(self) -> list[float]:
        """Return the seconds that each turn waited for its steps."""
        found = [one for one in self.recorder.waits if one.phase == ENVIRONMENT and one.live]
        return [one.end_s - one.start_s for one in found[1:]]  # the first is the reset's


def without_gaps(waits: Sequence[Span], whole_s: float) -> list[Span]:
    """Return the waits with the time between them as the phases of `ELSE`."""
    # as if an environment had just answered: the time before the reset is counted as READING
    edges = [Span(ENVIRONMENT, 0.0, 0.0, 0), *waits, Span("", whole_s, whole_s, 0)]
    spans = []
    for before, after in pairwise(edges):
        phase = PARSING if before.phase == GENERATION else READING
        phase = phase if after.phase else ENDING
        live = after.live if after.phase == GENERATION else before.live
        if after.start_s > before.end_s:
            spans.append(Span(phase, before.end_s, after.start_s, live))
        if after.phase:
            spans.append(after)
    return spans


def play(
    client: RecordedClient,
    make_generator: Callable[[], Generator],
    tokenizer: Any,
    config: GRPOConfig,
    prompts: Sequence[Prompt],
    seed: int,
) -> Rollout:
    """Play a batch as a training step does, and compute its rewards."""
    cpu_s, recorder = time.process_time(), Recorder()
    client.recorder = recorder
    generator = RecordedGenerator(make_generator(), recorder)
    options: dict[str, Any] = {"client": client, "generator": generator, "seed": seed}
    rows = play_episodes(prompts, None, tokenizer, config, **options)
    columns = {name: [getattr(row, name) for row in rows] for name in TRL_COLUMNS}
    for reward in REWARD_FUNCTIONS:
        reward(columns["completion_ids"], **columns)
    whole_s = time.perf_counter() - recorder.start_s
    return Rollout(rows, recorder, whole_s, time.process_time() - cpu_s)


def generate_again(generator: Generator, recorder: Recorder) -> tuple[float, float]:
    """Sample the turns of a rollout again, with no environment; return wall and CPU seconds.

    Raises `RuntimeError` if a sample differs.
    """
    start, cpu_s = time.perf_counter(), time.process_time()
    generator.start(recorder.streams)
    same = True
    for restarted, appended, samples in recorder.turns:
        for row in restarted:
            generator.restart(row)
        same &= generator.sample(appended) == samples
    if not same:
        raise RuntimeError("the same turns were sampled differently")
    return time.perf_counter() - start, time.process_time() - cpu_s


def batch_of(config: GRPOConfig, episodes: int, seed: int) -> list[Prompt]:
    """Return the prompts of `episodes` episodes in groups of `config.num_generations`."""
    prompts = [row["prompt"] for row in load_question_prompts(config)]
    chosen = random.Random(seed).sample(prompts, episodes // config.num_generations)
    return [prompt for prompt in chosen for _ in range(config.num_generations)]


def measure(
    urls: tuple[str, str],
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    episodes: int,
    latency_s: float,
    rounds: int,
) -> list[tuple[Rollout, Rollout, Round]]:
    """Return each round's rollout, the same with latency, and the figures of both.

    Each way has a server of its own, so that neither finds the other's results in a cache.
    """
    make_generator = partial(local_generator, model, codec_of(tokenizer), config)
    found = []
    with RecordedClient(urls[0], 0.0) as near, RecordedClient(urls[1], latency_s) as far:
        for client in (near, far):  # warm-up
            prompts = batch_of(config, config.num_generations, rounds)
            play(client, make_generator, tokenizer, config, prompts, rounds)
        for seed in range(rounds):
            prompts = batch_of(config, episodes, seed)
            options = (make_generator, tokenizer, config, prompts, seed)
            plain = play(near, *options)
            pure_s, pure_cpu_s = generate_again(make_generator(), plain.recorder)
            slow = play(far, *options)
            if [row.ids for row in plain.rows] != [row.ids for row in slow.rows]:
                raise RuntimeError("latency changed the episodes")
            found.append((plain, slow, figures(plain, slow, pure_s, pure_cpu_s)))
    return found


def figures(plain: Rollout, slow: Rollout, pure_s: float, pure_cpu_s: float) -> Round:
    """Return a round's seconds and the ratios that its targets are about."""
    seconds, slow_seconds = plain.seconds(), slow.seconds()
    waits = zip(plain.step_waits(), slow.step_waits(), strict=True)
    # pure generation ran between the two, so their mean is of about the same load of the machine
    busy_s = mean((plain.whole_s - seconds[ENVIRONMENT], slow.whole_s - slow_seconds[ENVIRONMENT]))
    return {
        "turns": len(plain.recorder.turns),
        "seconds": seconds,
        "with_latency": slow_seconds,
        "pure_generation_s": pure_s,
        "environment_share": seconds[ENVIRONMENT] / plain.whole_s,
        "else_share": sum(seconds[name] for name in ELSE) / plain.whole_s,
        "over_pure": busy_s / pure_s - 1,
        "cpu_over_pure": mean((plain.cpu_s, slow.cpu_s)) / pure_cpu_s - 1,
        "environment_share_with_latency": slow_seconds[ENVIRONMENT] / slow.whole_s,
        "added_ms_per_turn": 1000 * median(after - before for before, after in waits),
    }
