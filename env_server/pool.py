"""`EpisodePool`: order within an episode, idempotent steps, replay.

Databases are read-only and every result is deterministic, so an episode *is* its question, its
options and its list of actions. The pool therefore stores one reply per episode, the last; it plays
an older one again when a client asks for it. Everything here runs on one event loop, except SQL.
"""

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from pydantic_core import to_json

from env_server.environment import SQLEnvironment
from env_server.episodes import (
    ANYONE,
    Caller,
    EpisodeStore,
    PooledEpisode,
    last_reply,
    unknown,
    utf8_bytes,
    with_id,
    without_history,
)
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql import drive_async
from env_server.sql.pool import SqlPool
from env_server.telemetry import Metrics, about, no_answers
from env_server.tries import has_ended
from shared.actions import ActionType, SQLAction, as_action, parse_action, render_action
from shared.dataset import Question
from shared.errors import ActionParseError, Behind, Conflict, DigestMismatch, NotReady, QueueFull
from shared.models import EpisodeVerdicts, Outcome, ResetRequest, SQLState, StepRequest, StepResult

log = logging.getLogger(__name__)
LOGGED_CHARS = 500  # of a query

Turn = AsyncIterator[PooledEpisode]


class EpisodePool:
    """The episodes of one server. `clock` returns monotonic seconds.

    Raises errors of `shared.errors`. A fault of the server in the middle of a step (no SQL worker,
    a bug, a cancelled request) leaves the episode as it was, so the same step can be sent again.
    `telemetry.EPISODE_COUNTERS` has the keys of `counts`.
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
        self.in_flight = 0  # requests that hold or await an episode's turn
        self.counts: Counter[str] = Counter()
        # Replaying an ended episode counts it again in all of these except `steps`.
        self.steps: Counter[tuple[str, ActionType]] = Counter()  # by the episodes' owners
        self.ended: Counter[Outcome] = Counter()
        self.answers = no_answers(settings.standard)
        self.store = EpisodeStore(settings, clock)

    def __len__(self) -> int:
        return self.store.active

    async def reset(self, request: ResetRequest, caller: Caller = ANYONE) -> bytes:
        """Start an episode, or rebuild it by replay; returns the JSON of the last `ResetResult`.

        `Conflict` if `actions` continue after the episode's end.
        """
        if request.digest is not None and request.digest != self.digest:
            raise DigestMismatch(
                f"this server's digest is {self.digest}, not {request.digest[:80]}: its data, rules"
                " or limits differ, so a replay could differ; reset without a digest to start over",
                digest=self.digest,
            )
        rewards = caller.rewards(request.rewards)
        actions = canonical(request.actions or ())
        self.store.check_size(sum(map(utf8_bytes, actions)))
        episode_id = request.episode_id or str(uuid4())  # 122 random bits: nobody can guess it
        question = self.bank.question_for(request, episode_id)
        budget = request.step_budget or self.settings.step_budget
        check_end(actions, budget)
        form = self.bank.answer_form(question, request)
        most_tries = self.settings.agent_tries if isinstance(question, Question) else None
        options = (question.question_id, budget, form, rewards, request.explanations)
        while True:
            episode = self.store.find(episode_id, caller)
            if episode is None:
                if self.draining:
                    reason = "the server is shutting down; start episodes elsewhere"
                    raise NotReady(reason, retry_after_s=1)
                episode = self.store.admit(episode_id, caller, options, actions, most_tries)
            async with self._turn(episode, or_gone=True):
                if episode.gone:  # the previous request failed to start it, or closed it
                    continue
                if episode.options != options:
                    raise Conflict(
                        f"episode {episode_id} exists with question {episode.question_id}, a step "
                        f"budget of {episode.step_budget}, answers as {episode.answer_form}, "
                        f"rewards {episode.rewards!r} and explanations {[*episode.explain]}; "
                        f"{caller.remedy}"
                    )
                is_over = episode.outcome is not None
                if is_over and caller.is_agent and len(actions) < len(episode.actions):
                    raise has_ended(episode_id)
                reply = await self._catch_up(episode, actions, caller)
            return with_id(reply, episode_id)

    async def resume(self, episode_id: str, caller: Caller = ANYONE) -> bytes:
        """Return the JSON of a `ResetResult`: the last reply of an episode that exists."""
        async with self._turn(self._get(episode_id, caller)) as episode:
            return with_id(last_reply(episode), episode_id)

    async def step(self, request: StepRequest, caller: Caller = ANYONE) -> bytes:
        """Take a step, or repeat an earlier step's reply; returns the JSON of a `StepResult`."""
        action = as_action(request.action)
        async with self._turn(self._get(request.episode_id, caller)) as episode:
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
                self.steps[episode.owner, action.action_type] += 1
                self.metrics.step_seconds[action.action_type].observe(time.perf_counter() - began)
                return reply
            if episode.actions[step] != render_action(action):
                raise Conflict(
                    f"step {step} was answered for another action, {episode.actions[step][:80]!r}",
                    step_count=answered,
                )
            self.counts["repeated"] += 1
            return await self._reply_at(episode, step + 1)

    async def state(self, episode_id: str, caller: Caller = ANYONE) -> bytes:
        """Return the JSON of an `SQLState`, after the step in flight."""
        async with self._turn(self._get(episode_id, caller)) as episode:
            return self._state(episode)

    async def close(self, episode_id: str, caller: Caller = ANYONE, moved: bool = False) -> bytes:
        """Remove an episode, an unfinished one as abandoned; returns the JSON of its `SQLState`.

        With `moved`, only an unfinished one, as a copy of an episode that ended elsewhere.
        """
        async with self._turn(self._get(episode_id, caller)) as episode:
            if not moved:
                self._abandon(episode)
            elif episode.outcome is None:
                self.counts["moved"] += 1
                self.store.remove(episode)
            return self._state(episode)

    async def verdicts(self, episode_id: str, caller: Caller = ANYONE) -> bytes:
        """Return the JSON of an `EpisodeVerdicts`. `Conflict` before the episode's end."""
        async with self._turn(self._get(episode_id, caller)) as episode:
            if episode.outcome is None:
                raise Conflict("the episode is not over: its verdicts exist after its last step")
            return to_json(
                EpisodeVerdicts(
                    episode_id=episode.episode_id,
                    question_id=episode.question_id,
                    answer_form=episode.answer_form,
                    outcome=episode.outcome,
                    standard=self.settings.standard,
                    verdicts=episode.verdicts,
                    attempt=episode.attempt or None,
                )
            )

    def sweep(self) -> int:
        """Abandon the episodes whose lease is over; returns how many of them were unfinished."""
        expired = 0
        for episode in self.store.idle(self.clock() - self.settings.lease_s):
            expired += episode.outcome is None
            self._abandon(episode)
        self.counts["expired"] += expired
        if expired:
            log.warning("abandoned %d episodes, idle for %g s", expired, self.settings.lease_s)
        return expired

    # -- one episode, while its turn is held

    async def _catch_up(
        self, episode: PooledEpisode, actions: Sequence[str], caller: Caller
    ) -> bytes:
        """Play those of `actions` that the episode lacks; returns the reply to the last one."""
        common = min(len(actions), len(episode.actions))
        if episode.actions[:common] != list(actions[:common]):
            first = next(i for i in range(common) if episode.actions[i] != actions[i])
            raise Conflict(
                f"episode {episode.episode_id} exists with another history: step {first} was "
                f"{episode.actions[first][:80]!r}; {caller.remedy}",
                step_count=len(episode.actions),
            )
        if not episode.reply:
            try:
                episode.env, result = await self._start(episode)
                episode.actions = episode.env.actions
                self.store.hold(episode, without_history(result))
                await self._replay(episode, actions)
            except BaseException:
                self.store.remove(episode, started=False)
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
                "start another",
                step_count=len(episode.actions),
                outcome=episode.outcome,
            )
        text = render_action(action)
        self.store.check_size(episode.action_bytes + utf8_bytes(text))
        self.counts["evicted"] += self.store.make_room(episode, text)
        result = await drive_async(episode.env.step_jobs(action), self.sql.run)
        self.store.hold(episode, without_history(result), text)
        if result.done:
            episode.verdicts = episode.env.verdicts
            self._finish(episode, result.info.outcome or Outcome.BUDGET)
        return last_reply(episode)

    async def _reply_at(self, episode: PooledEpisode, answered: int) -> bytes:
        """Return the reply after `answered` steps; all but the last are played again."""
        if answered == len(episode.actions):
            return last_reply(episode)
        _, result = await self._start(episode, episode.actions[:answered])
        return to_json(result, exclude={"episode_id"})

    async def _start(
        self, episode: PooledEpisode, actions: Sequence[str] = ()
    ) -> tuple[SQLEnvironment, StepResult]:
        env = SQLEnvironment(self.bank, self.settings.standard)
        request = ResetRequest(
            episode_id=episode.episode_id,
            question_id=episode.question_id,
            step_budget=episode.step_budget,
            answer_form=episode.answer_form,
            rewards=episode.rewards,
            explain=list(episode.explain),
            actions=list(actions),
        )
        return env, await drive_async(env.reset_jobs(request), self.sql.run)

    def _state(self, episode: PooledEpisode) -> bytes:
        question = self.bank.get(episode.question_id)
        state = SQLState(
            episode_id=episode.episode_id,
            question_id=question.question_id,
            question=question.question_text,
            db_id=question.database_name,
            step_count=len(episode.actions),
            step_budget=episode.step_budget,
            action_history=episode.actions,
            done=episode.outcome is not None,
            outcome=episode.outcome,
        )
        return to_json(state)

    # -- all episodes

    @asynccontextmanager
    async def _turn(self, episode: PooledEpisode, or_gone: bool = False) -> Turn:
        """Hold an episode: one request at a time, in the order of arrival; then renew its lease.

        `UnknownEpisode` if it was removed meanwhile, unless `or_gone`; `QueueFull` if many wait.
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
            self.store.touch(episode)

    def _get(self, episode_id: str, caller: Caller) -> PooledEpisode:
        if (episode := self.store.find(episode_id, caller)) is None:
            raise unknown(episode_id)
        return episode

    def _finish(self, episode: PooledEpisode, outcome: Outcome) -> None:
        self.store.finish(episode, outcome)
        self.ended[outcome] += 1
        if outcome == Outcome.SQL_KILLED:
            log.warning("a query killed its SQL workers: %r", episode.actions[-1][:LOGGED_CHARS])
        else:
            log.debug("ended after %d steps: %s", len(episode.actions), outcome)
        if episode.verdicts is not None:
            totals = self.answers.forms[episode.answer_form]
            totals.answered += 1
            totals.repeated += episode.attempt > 1
            for name, right in episode.verdicts.items():
                totals.right[name] += right
        if self.store.finished > self.settings.finished_capacity:
            self.counts["evicted"] += self.store.evict(self.store.owners.values())

    def _abandon(self, episode: PooledEpisode) -> None:
        self.store.remove(episode)
        if episode.outcome is None:
            episode.outcome = Outcome.ABANDONED
            self.ended[Outcome.ABANDONED] += 1
            with about(episode.episode_id):
                log.debug("abandoned after %d steps", len(episode.actions))


def canonical(actions: Sequence[SQLAction | str]) -> list[str]:
    """Return each action's canonical text; `ActionParseError` names the first that is none."""
    texts = []
    for index, action in enumerate(actions):
        try:
            texts.append(render_action(as_action(action)))
        except ActionParseError as error:
            raise ActionParseError(f"actions.{index}: {error.message}") from None
    return texts


def check_end(actions: Sequence[str], budget: int) -> None:
    """Raise `Conflict` if actions continue after an ANSWER or the last step."""
    answers = (number for number, text in enumerate(actions, 1) if text.startswith("ANSWER"))
    if (end := min(next(answers, budget), budget)) < len(actions):
        raise Conflict(f"actions: the episode is over after {end} of {len(actions)} actions")
