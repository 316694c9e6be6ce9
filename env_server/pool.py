"""`EpisodePool`: ids, capacity, leases, order within an episode, idempotent steps, replay.

Databases are read-only and every result is deterministic, so an episode *is* its question, its
options and its list of actions. The pool therefore stores one reply per episode, the last; it plays
an older one again when a client asks for it. Everything here runs on one event loop, except SQL.
"""

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from pydantic_core import to_json

from env_server.drive import drive_async
from env_server.environment import SQLEnvironment, as_action, wire_state
from env_server.logs import about
from env_server.metrics import AnswerCounts, Metrics
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql.pool import SqlPool
from shared.actions import ActionType, SQLAction, parse_action, render_action
from shared.errors import (
    ActionParseError,
    Behind,
    CapacityReached,
    Conflict,
    DigestMismatch,
    NotReady,
    QueueFull,
    UnknownEpisode,
)
from shared.models import AnswerForm, EpisodeVerdicts, Outcome, ResetRequest, StepRequest

log = logging.getLogger(__name__)
LOGGED_CHARS = 500  # of a query
MAX_RETRY_AFTER_S = 5  # places are freed all the time: a finished episode gives up its own


@dataclass(slots=True, eq=False)
class PooledEpisode:
    """An episode in the pool. `env` is None before the start and after the end."""

    episode_id: str
    question_id: str
    step_budget: int
    answer_form: AnswerForm
    touched: float  # monotonic seconds of the last request
    env: SQLEnvironment | None = None
    reply: bytes = b""  # the last one
    actions: list[str] = field(default_factory=list)  # canonical texts of the answered steps
    outcome: Outcome | None = None
    verdicts: dict[str, bool] | None = None  # of the ANSWER, by standard
    users: int = 0  # requests that hold or await `turn`; with any, the episode is not idle
    gone: bool = False  # removed from the pool
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


Turn = AsyncIterator[PooledEpisode]
Options = tuple[str, int, AnswerForm]  # question_id, step_budget, answer_form


class EpisodePool:
    """The episodes of one server. `clock` returns monotonic seconds.

    Raises errors of `shared.errors`. A fault of the server in the middle of a step (no SQL worker,
    a bug, a cancelled request) leaves the episode as it was, so the same step can be sent again.

    `counts` has the keys started (episodes), rebuilt (those of them that replayed actions),
    replayed (steps, to rebuild), repeated (steps that were requested again), expired (leases) and
    evicted (finished episodes that were removed before their lease ended).
    """

    def __init__(
        self,
        bank: QuestionBank,
        sql: SqlPool,
        settings: Settings,
        digest: str,
        clock: Callable[[], float] = time.monotonic,
        metrics: Metrics | None = None,
    ) -> None:
        self.bank, self.sql, self.settings = bank, sql, settings
        self.digest, self.clock = digest, clock
        self.metrics = metrics or Metrics()
        self.draining = False  # no episode starts; those in the pool continue
        self.closing = False  # steps in flight finish; everything else is refused
        self.in_flight = 0  # requests that hold or await an episode's turn
        self.counts: Counter[str] = Counter()
        # Replaying an ended episode counts it again in all of these except `steps`.
        self.steps: Counter[ActionType] = Counter()
        self.ended: Counter[Outcome] = Counter()
        self.answers = AnswerCounts(settings.standard)
        # both in the order of last use
        self._active: OrderedDict[str, PooledEpisode] = OrderedDict()
        self._finished: OrderedDict[str, PooledEpisode] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of unfinished episodes."""
        return len(self._active)

    @property
    def finished(self) -> int:
        """The number of finished episodes that are kept for repeated requests."""
        return len(self._finished)

    async def reset(self, request: ResetRequest) -> bytes:
        """Start an episode, or rebuild it by replay.

        Returns the JSON of a `ResetResult`: that of the last of `actions`, if there are any.
        """
        if request.digest is not None and request.digest != self.digest:
            raise DigestMismatch(
                f"this server's digest is {self.digest}, not {request.digest[:80]}: its data, rules"
                " or limits differ, so a replay could differ; reset without a digest to start over",
                digest=self.digest,
            )
        self._check_open()
        actions = canonical(request.actions or ())
        episode_id = request.episode_id or str(uuid4())
        question_id = self.bank.question_for(request, episode_id).question_id
        budget = request.step_budget or self.settings.step_budget
        options = (question_id, budget, request.answer_form)
        while True:
            episode = self._find(episode_id) or self._admit(episode_id, options)
            async with self._turn(episode, or_gone=True):
                if episode.gone:  # the previous request failed to start it, or closed it
                    continue
                if (episode.question_id, episode.step_budget, episode.answer_form) != options:
                    raise Conflict(
                        f"episode {episode_id} exists with question {episode.question_id}, a step "
                        f"budget of {episode.step_budget} and answers as {episode.answer_form}; "
                        "close it first, or choose another id"
                    )
                reply = await self._catch_up(episode, actions)
            return b'%b,"episode_id":"%b"}' % (reply[:-1], episode_id.encode())

    async def step(self, request: StepRequest) -> bytes:
        """Take a step, or repeat an earlier step's reply; returns the JSON of a `StepResult`."""
        self._check_open()
        action = as_action(request.action)
        async with self._turn(self._get(request.episode_id)) as episode:
            answered = len(episode.actions)
            step = answered if request.step is None else request.step
            if step > answered:
                raise Behind(
                    f"this server has answered {answered} steps of the episode, fewer than {step}: "
                    "reset it with its actions",
                    step_count=answered,
                )
            if step == answered:
                began = time.perf_counter()
                reply = await self._step(episode, action)
                self.steps[action.action_type] += 1
                self.metrics.step_seconds[action.action_type].observe(time.perf_counter() - began)
                return reply
            if episode.actions[step] != render_action(action):
                raise Conflict(
                    f"step {step} was answered for another action, {episode.actions[step][:80]!r}",
                    step_count=answered,
                )
            self.counts["repeated"] += 1
            return await self._reply_at(episode, step + 1)

    async def state(self, episode_id: str) -> bytes:
        """Return the JSON of an `SQLState`, after the step in flight."""
        async with self._turn(self._get(episode_id)) as episode:
            return to_json(wire_state(self.bank.get(episode.question_id), episode))

    async def close(self, episode_id: str) -> bytes:
        """Remove an episode, an unfinished one as abandoned; returns the JSON of its `SQLState`."""
        async with self._turn(self._get(episode_id)) as episode:
            self._abandon(episode)
            return to_json(wire_state(self.bank.get(episode.question_id), episode))

    async def verdicts(self, episode_id: str) -> bytes:
        """Return the JSON of an `EpisodeVerdicts`. `Conflict` before the episode's end."""
        async with self._turn(self._get(episode_id)) as episode:
            if episode.outcome is None:
                raise Conflict("the episode is not over: its verdicts exist after its last step")
            verdicts = EpisodeVerdicts(
                episode_id=episode.episode_id,
                question_id=episode.question_id,
                answer_form=episode.answer_form,
                outcome=episode.outcome,
                standard=self.settings.standard,
                verdicts=episode.verdicts,
            )
            return to_json(verdicts)

    def sweep(self) -> int:
        """Abandon the episodes whose lease is over; returns how many of them were unfinished."""
        expired = 0
        oldest = self.clock() - self.settings.lease_s
        for episodes in (self._active, self._finished):
            while episodes and (episode := next(iter(episodes.values()))).touched <= oldest:
                if episode.users:
                    self._touch(episode)
                else:
                    expired += episode.outcome is None
                    self._abandon(episode)
        self.counts["expired"] += expired
        if expired:
            log.warning("abandoned %d episodes, idle for %g s", expired, self.settings.lease_s)
        return expired

    def users(self, episode_id: str | None) -> int:
        """Return how many requests hold or await an episode's turn."""
        episode = self._find(episode_id) if episode_id is not None else None
        return episode.users if episode is not None else 0

    # -- one episode, while its turn is held

    async def _catch_up(self, episode: PooledEpisode, actions: Sequence[str]) -> bytes:
        """Play those of `actions` that the episode lacks; returns the reply to the last one."""
        common = min(len(actions), len(episode.actions))
        if episode.actions[:common] != list(actions[:common]):
            first = next(i for i in range(common) if episode.actions[i] != actions[i])
            raise Conflict(
                f"episode {episode.episode_id} exists with another history: step {first} was "
                f"{episode.actions[first][:80]!r}; close it first, or choose another id",
                step_count=len(episode.actions),
            )
        if not episode.reply:
            try:
                episode.env, episode.reply = await self._start(episode)
                await self._replay(episode, actions)
            except BaseException:  # no client has seen it yet
                self._remove(episode)
                raise
            self.counts["started"] += 1
            if actions:
                self.counts["rebuilt"] += 1
                log.info("rebuilt from %d actions", len(actions))
        else:
            await self._replay(episode, actions[len(episode.actions) :])
        return await self._reply_at(episode, len(actions))

    async def _replay(self, episode: PooledEpisode, actions: Sequence[str]) -> None:
        for action in actions:
            await self._step(episode, parse_action(action))
            self.counts["replayed"] += 1

    async def _step(self, episode: PooledEpisode, action: SQLAction) -> bytes:
        if episode.env is None:
            raise Conflict(
                f"the episode is over after {len(episode.actions)} steps ({episode.outcome}); "
                "reset another",
                step_count=len(episode.actions),
                outcome=episode.outcome,
            )
        result = await drive_async(episode.env.step_jobs(action), self.sql.run)
        episode.reply = to_json(result)
        episode.actions.append(render_action(action))
        if result.done:
            episode.verdicts = episode.env.verdicts
            self._finish(episode, result.info.outcome or Outcome.BUDGET)
        return episode.reply

    async def _reply_at(self, episode: PooledEpisode, answered: int) -> bytes:
        """Return the reply after `answered` steps; all but the last are played again."""
        if answered == len(episode.actions):
            return episode.reply
        env, reply = await self._start(episode)
        for action in episode.actions[:answered]:
            reply = to_json(await drive_async(env.step_jobs(action), self.sql.run))
        return reply

    async def _start(self, episode: PooledEpisode) -> tuple[SQLEnvironment, bytes]:
        env = SQLEnvironment(
            self.bank, step_budget=episode.step_budget, standard=self.settings.standard
        )
        reset = env.reset_jobs(question_id=episode.question_id, answer_form=episode.answer_form)
        result = await drive_async(reset, self.sql.run)
        return env, to_json(result, exclude={"episode_id"})

    # -- all episodes

    @asynccontextmanager
    async def _turn(self, episode: PooledEpisode, or_gone: bool = False) -> Turn:
        """Hold an episode: one request at a time, in the order of arrival; then renew its lease.

        Raises `UnknownEpisode` if it was removed meanwhile, unless `or_gone`; `QueueFull` if too
        many wait.
        """
        if episode.users >= (limit := self.settings.max_episode_items):
            raise QueueFull(
                f"{limit:,} requests wait for this episode: wait for their replies, or raise "
                "SQLENV_MAX_EPISODE_ITEMS",
                limit="max_episode_items",
                retry_after_s=1,
            )
        episode.users += 1
        self.in_flight += 1
        try:
            async with episode.turn:
                if episode.gone and not or_gone:
                    raise unknown(episode.episode_id)
                with about(episode.episode_id):
                    yield episode
        finally:
            self.in_flight -= 1
            episode.users -= 1
            self._touch(episode)

    def _check_open(self) -> None:
        if self.closing:
            raise NotReady("the server is shutting down; try another, or later", retry_after_s=1)

    def _find(self, episode_id: str) -> PooledEpisode | None:
        return self._active.get(episode_id) or self._finished.get(episode_id)

    def _get(self, episode_id: str) -> PooledEpisode:
        if (episode := self._find(episode_id)) is None:
            raise unknown(episode_id)
        return episode

    def _admit(self, episode_id: str, options: Options) -> PooledEpisode:
        """Take a place for an episode; the first request that holds it starts it."""
        if self.draining:
            raise NotReady("the server is shutting down; start episodes elsewhere", retry_after_s=1)
        capacity, now = self.settings.capacity, self.clock()
        if len(self._active) >= capacity:
            self.sweep()
        if len(self._active) >= capacity:
            oldest = next(iter(self._active.values()))
            free_in_s = min(oldest.touched + self.settings.lease_s - now, MAX_RETRY_AFTER_S)
            raise CapacityReached(
                f"all {capacity:,} places are taken; finish or close episodes, or raise "
                "SQLENV_CAPACITY",
                retry_after_s=max(1, math.ceil(free_in_s)),
                capacity=capacity,
            )
        episode = self._active[episode_id] = PooledEpisode(episode_id, *options, now)
        return episode

    def _holding(self, episode: PooledEpisode) -> OrderedDict[str, PooledEpisode]:
        return self._active if episode.outcome is None else self._finished

    def _touch(self, episode: PooledEpisode) -> None:
        if not episode.gone:
            episode.touched = self.clock()
            self._holding(episode).move_to_end(episode.episode_id)

    def _finish(self, episode: PooledEpisode, outcome: Outcome) -> None:
        """Move an episode to the finished ones, which take no place and have no environment."""
        del self._active[episode.episode_id]
        self._finished[episode.episode_id] = episode
        episode.env, episode.outcome = None, outcome
        self.ended[outcome] += 1
        if outcome == Outcome.SQL_KILLED:
            log.warning("a query killed its SQL workers: %r", episode.actions[-1][:LOGGED_CHARS])
        else:
            log.debug("ended after %d steps: %s", len(episode.actions), outcome)
        if episode.verdicts is not None:
            self.answers.add(episode.answer_form, episode.verdicts)
        if len(self._finished) > self.settings.finished_capacity:
            self._remove(next(iter(self._finished.values())))
            self.counts["evicted"] += 1

    def _abandon(self, episode: PooledEpisode) -> None:
        self._remove(episode)
        if episode.outcome is None:
            episode.outcome = Outcome.ABANDONED
            self.ended[Outcome.ABANDONED] += 1
            with about(episode.episode_id):
                log.debug("abandoned after %d steps", len(episode.actions))

    def _remove(self, episode: PooledEpisode) -> None:
        if not episode.gone:
            del self._holding(episode)[episode.episode_id]
            episode.gone, episode.env = True, None


def canonical(actions: Sequence[SQLAction | str]) -> list[str]:
    """Return each action's canonical text; `ActionParseError` names the first that is none."""
    texts = []
    for index, action in enumerate(actions):
        try:
            texts.append(render_action(as_action(action)))
        except ActionParseError as error:
            raise ActionParseError(f"actions.{index}: {error.message}") from None
    return texts


def unknown(episode_id: str) -> UnknownEpisode:
    """Return the error for an id that is not in the pool."""
    return UnknownEpisode(
        f"no episode {episode_id[:80]!r} here: it expired, was closed or is on another server; "
        "POST /reset with its id, question and 'actions' to rebuild it"
    )
