"""EpisodePool: ids, capacity, leases, order within an episode, idempotent steps, rebuild by replay.

Databases are read-only and every result is deterministic, so an episode *is* its question, its
options and its list of actions. The pool therefore keeps one reply an episode, the last; an older
one that somebody asks for again is played again. Everything here runs on one event loop; only SQL
leaves it.
"""

import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, get_args
from uuid import uuid4

from pydantic_core import to_json

from env_server.environment import SQLEnvironment, as_action
from env_server.held import Episode, canonical, unknown
from env_server.logs import about
from env_server.metrics import Metrics
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql import SqlJob, SqlPool, SqlResult
from env_server.verifier import STANDARDS, TRAINING_STANDARD
from shared.actions import ActionType, SQLAction, parse_action, render_action
from shared.errors import Behind, CapacityReached, Conflict, DigestMismatch, NotReady
from shared.models import (
    AnswerForm,
    EpisodeVerdicts,
    FormTotals,
    Outcome,
    ResetRequest,
    SQLState,
    StepRequest,
    VerdictTotals,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
LOGGED_CHARS = 500  # of a query
MAX_RETRY_AFTER_S = 5  # places fall free all the time: a finished episode gives up its own


class EpisodePool:
    """Holds the episodes of one server. `digest` names data, rules and limits; `clock` gives
    monotonic seconds.

    Errors are of `shared.errors`. A fault of the server's own in the middle of a step (no SQL
    worker, a bug, a cancelled request) leaves the episode as it was, so the same step can be sent
    again.

    `counts` counts started episodes, those of them that were rebuilt, steps replayed to that end,
    steps repeated (asked for again), leases expired, and finished episodes evicted (forgotten
    before their lease ended).
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
        self.bank, self.sql, self.settings, self.digest, self.clock = (
            bank,
            sql,
            settings,
            digest,
            clock,
        )
        self.metrics = metrics or Metrics()
        self.draining = False  # no episode starts; those held go on
        self.closing = False  # nor do they: the steps in flight finish, every other is refused
        self.in_flight = 0  # requests that hold or await an episode's turn
        self.counts: Counter[str] = Counter()
        self.steps: Counter[ActionType] = Counter()  # taken, replayed ones aside
        # episodes by outcome; replays of an ended one count again
        self.ended: Counter[Outcome] = Counter()
        # episodes that ended with an ANSWER; replays again, as above
        self.answered: Counter[AnswerForm] = Counter()
        # of those, by the standard that calls them right
        self.right: Counter[tuple[AnswerForm, str]] = Counter()
        # least recently used first, as is the next
        self._active: OrderedDict[str, Episode] = OrderedDict()
        self._finished: OrderedDict[str, Episode] = OrderedDict()

    def __len__(self) -> int:
        """How many episodes are unfinished."""
        return len(self._active)

    @property
    def finished(self) -> int:
        """How many finished episodes are held for repeated requests."""
        return len(self._finished)

    async def reset(self, request: ResetRequest) -> bytes:
        """Start an episode, or rebuild it by replay. -> the JSON of a `ResetResult`, that of the
        last of `actions`."""
        if request.digest is not None and request.digest != self.digest:
            raise DigestMismatch(
                f"this server's digest is {self.digest}, not {request.digest[:80]}: its data, rules or limits differ, "
                "so a replay could differ too; reset without a digest to start afresh",
                digest=self.digest,
            )
        self._check_open()
        actions = canonical(request.actions or ())
        episode_id = request.episode_id or str(uuid4())
        question_id = self.bank.wanted(request, episode_id).question_id
        step_budget = request.step_budget or self.settings.step_budget
        while True:
            episode = self._held(episode_id) or self._admit(
                episode_id, question_id, step_budget, request.answer_form
            )
            async with self._turn(episode):
                if episode.gone:  # the request before this one failed to start it, or closed it
                    continue
                held = (episode.question_id, episode.step_budget, episode.answer_form)
                if held != (question_id, step_budget, request.answer_form):
                    raise Conflict(
                        f"episode {episode_id} is held with question {episode.question_id}, a step budget of "
                        f"{episode.step_budget} and answers as {episode.answer_form}; close it "
                        "first, or take another id"
                    )
                reply = await self._catch_up(episode, actions)
            return b'%b,"episode_id":"%b"}' % (reply[:-1], episode_id.encode())

    async def step(self, request: StepRequest) -> bytes:
        """Take a step, or repeat the reply of one already taken. -> the JSON of a `StepResult`."""
        self._check_open()
        action = as_action(request.action)
        episode = self._get(request.episode_id)
        async with self._turn(episode):
            if episode.gone:
                raise unknown(episode.episode_id)
            answered = len(episode.actions)
            step = answered if request.step is None else request.step
            if step > answered:
                raise Behind(
                    f"this server has answered {answered} steps of the episode, fewer than {step}: reset it with its "
                    "actions",
                    step_count=answered,
                )
            if step == answered:
                return await self._take(episode, action)
            if episode.actions[step] != render_action(action):
                raise Conflict(
                    f"step {step} was answered for another action, {episode.actions[step][:80]!r}",
                    step_count=answered,
                )
            self.counts["repeated"] += 1
            return await self._reply_at(episode, step + 1)

    async def state(self, episode_id: str) -> bytes:
        """-> the JSON of a `SQLState`. Waits for a step in flight."""
        episode = self._get(episode_id)
        async with self._turn(episode):
            if episode.gone:
                raise unknown(episode.episode_id)
            return self._state(episode)

    async def close(self, episode_id: str) -> bytes:
        """Forget an episode; an unfinished one is abandoned. -> the JSON of its last `SQLState`."""
        episode = self._get(episode_id)
        async with self._turn(episode):
            if episode.gone:
                raise unknown(episode.episode_id)
            self._abandon(episode)
            return self._state(episode)

    async def verdicts(self, episode_id: str) -> bytes:
        """-> the JSON of an `EpisodeVerdicts`. `Conflict` before the episode's end."""
        episode = self._get(episode_id)
        async with self._turn(episode):
            if episode.gone:
                raise unknown(episode.episode_id)
            if episode.outcome is None:
                raise Conflict(
                    "the episode is not over; its verdicts are there after its last step"
                )
            return to_json(
                EpisodeVerdicts(
                    episode_id=episode.episode_id,
                    question_id=episode.question_id,
                    answer_form=episode.answer_form,
                    outcome=episode.outcome,
                    training_standard=TRAINING_STANDARD,
                    verdicts=episode.verdicts,
                )
            )

    def verdict_totals(self) -> VerdictTotals:
        """The answers so far, by their form and the standards that call them right."""
        forms = {
            form: FormTotals(
                answered=self.answered[form],
                right={name: self.right[form, name] for name in STANDARDS},
            )
            for form in get_args(AnswerForm)
        }
        return VerdictTotals(training_standard=TRAINING_STANDARD, forms=forms)

    def sweep(self) -> int:
        """Abandon the episodes whose lease is over. -> how many, finished ones aside. Costs what it
        removes."""
        expired = 0
        oldest = self.clock() - self.settings.lease_s
        for shelf in (self._active, self._finished):
            while shelf and (episode := next(iter(shelf.values()))).touched <= oldest:
                if episode.users:
                    self._touch(episode)
                else:
                    expired += episode.outcome is None
                    self._abandon(episode)
        self.counts["expired"] += expired
        if expired:
            log.warning("abandoned %d episodes, idle for %g s", expired, self.settings.lease_s)
        return expired

    # -- one episode, its turn held
    # ---------------------------------------------------------------------

    async def _catch_up(self, episode: Episode, actions: Sequence[str]) -> bytes:
        """Play what the episode lacks of `actions`. -> the reply to the last of them, or to the
        reset."""
        shared = min(len(actions), len(episode.actions))
        if episode.actions[:shared] != list(actions[:shared]):
            differs = next(i for i in range(shared) if episode.actions[i] != actions[i])
            raise Conflict(
                f"episode {episode.episode_id} is held with another history: step {differs} was "
                f"{episode.actions[differs][:80]!r}; close it first, or take another id",
                step_count=len(episode.actions),
            )
        if not episode.reply:
            try:
                episode.env, episode.reply = await self._start(episode)
                await self._replay(episode, actions)
            except BaseException:  # nobody has heard of it yet
                self._remove(episode)
                raise
            self.counts["started"] += 1
            if actions:
                self.counts["rebuilt"] += 1
                log.info("rebuilt from %d actions", len(actions))
        else:
            await self._replay(episode, actions[len(episode.actions) :])
        return await self._reply_at(episode, len(actions))

    async def _replay(self, episode: Episode, actions: Sequence[str]) -> None:
        for action in actions:
            await self._step(episode, parse_action(action))
            self.counts["replayed"] += 1

    async def _take(self, episode: Episode, action: SQLAction) -> bytes:
        """`_step`, with its time."""
        began = time.perf_counter()
        reply = await self._step(episode, action)
        self.steps[action.action_type] += 1
        self.metrics.step_seconds[action.action_type].observe(time.perf_counter() - began)
        return reply

    async def _step(self, episode: Episode, action: SQLAction) -> bytes:
        if episode.env is None:
            raise Conflict(
                f"the episode is over after {len(episode.actions)} steps ({episode.outcome}); reset another",
                step_count=len(episode.actions),
                outcome=episode.outcome,
            )
        result = await self._drive(episode.env.step_jobs(action))
        episode.reply = to_json(result)
        episode.actions.append(render_action(action))
        if result.done:
            self._finish(episode, result.info.outcome or Outcome.BUDGET, episode.env.verdicts)
        return episode.reply

    async def _reply_at(self, episode: Episode, answered: int) -> bytes:
        """The reply after `answered` steps; the last is stored, an older one is played again."""
        if answered == len(episode.actions):
            return episode.reply
        env, reply = await self._start(episode)
        for action in episode.actions[:answered]:
            reply = to_json(await self._drive(env.step_jobs(parse_action(action))))
        return reply

    async def _start(self, episode: Episode) -> tuple[SQLEnvironment, bytes]:
        env = SQLEnvironment(self.bank)
        request = ResetRequest(
            question_id=episode.question_id,
            step_budget=episode.step_budget,
            answer_form=episode.answer_form,
        )
        result = await self._drive(env.reset_jobs(request))
        return env, to_json(result, exclude={"episode_id"})

    async def _drive(self, logic: Generator[SqlJob, SqlResult, T]) -> T:
        """Run an episode's logic, sending each `SqlJob` that it asks for to the SQL pool.

        Where that raises, the logic is left where it asked, and the environment is as it was
        before.
        """
        try:
            job = next(logic)
            while True:
                job = logic.send(await self.sql.run(job))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    # -- all of them
    # ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, episode: Episode) -> AsyncIterator[None]:
        """One request at a time has an episode, in the order of arrival; its lease starts again
        after each."""
        episode.users += 1
        self.in_flight += 1
        try:
            async with episode.turn:
                with about(episode.episode_id):
                    yield
        finally:
            self.in_flight -= 1
            episode.users -= 1
            self._touch(episode)

    def _check_open(self) -> None:
        if self.closing:
            raise NotReady(
                "the server is shutting down; send this to another, or later", retry_after_s=1
            )

    def _held(self, episode_id: str) -> Episode | None:
        return self._active.get(episode_id) or self._finished.get(episode_id)

    def _get(self, episode_id: str) -> Episode:
        episode = self._held(episode_id)
        if episode is None:
            raise unknown(episode_id)
        return episode

    def _admit(
        self, episode_id: str, question_id: str, step_budget: int, answer_form: AnswerForm
    ) -> Episode:
        """Take a place for an episode, which its first turn starts."""
        if self.draining:
            raise NotReady(
                "the server is shutting down and starts no episode; try another", retry_after_s=1
            )
        if len(self._active) >= self.settings.capacity:
            self.sweep()
        if len(self._active) >= self.settings.capacity:
            soonest = (
                next(iter(self._active.values())).touched + self.settings.lease_s - self.clock()
            )
            raise CapacityReached(
                f"all {self.settings.capacity:,} places are taken; finish or close episodes, or raise SQLENV_CAPACITY",
                retry_after_s=max(1, math.ceil(min(soonest, MAX_RETRY_AFTER_S))),
                capacity=self.settings.capacity,
            )
        episode = Episode(episode_id, question_id, step_budget, answer_form, self.clock())
        self._active[episode_id] = episode
        return episode

    def _touch(self, episode: Episode) -> None:
        if not episode.gone:
            episode.touched = self.clock()
            (self._active if episode.outcome is None else self._finished).move_to_end(
                episode.episode_id
            )

    def _finish(self, episode: Episode, outcome: Outcome, verdicts: dict[str, bool] | None) -> None:
        """From the active to the finished, which take no place and hold no environment."""
        episode.env, episode.outcome, episode.verdicts = None, outcome, verdicts
        self.ended[outcome] += 1
        if outcome == Outcome.SQL_KILLED:
            log.warning("a query killed its SQL workers: %r", episode.actions[-1][:LOGGED_CHARS])
        else:
            log.debug("ended after %d steps: %s", len(episode.actions), outcome)
        if verdicts is not None:
            form = episode.answer_form
            self.answered[form] += 1
            self.right.update((form, name) for name, right in verdicts.items() if right)
        del self._active[episode.episode_id]
        self._finished[episode.episode_id] = episode
        if len(self._finished) > self.settings.finished_capacity:
            self._remove(next(iter(self._finished.values())))
            self.counts["evicted"] += 1

    def _abandon(self, episode: Episode) -> None:
        self._remove(episode)
        if episode.outcome is None:
            log.debug(
                "abandoned after %d steps",
                len(episode.actions),
                extra={"episode_id": episode.episode_id},
            )
            episode.outcome = Outcome.ABANDONED
            self.ended[Outcome.ABANDONED] += 1

    def _remove(self, episode: Episode) -> None:
        if not episode.gone:
            del (self._active if episode.outcome is None else self._finished)[episode.episode_id]
            episode.gone, episode.env = True, None

    def _state(self, episode: Episode) -> bytes:
        question = self.bank.get(episode.question_id)
        return to_json(
            SQLState(
                episode_id=episode.episode_id,
                question_id=episode.question_id,
                question=question.question_text,
                db_id=question.database_name,
                step_count=len(episode.actions),
                step_budget=episode.step_budget,
                action_history=episode.actions,
                done=episode.outcome is not None,
                outcome=episode.outcome,
            )
        )
