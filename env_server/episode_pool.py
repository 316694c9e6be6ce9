"""`EpisodePool`: order within an episode, idempotent steps, replay.

Databases are read-only and every result is deterministic, so an episode *is* its question, its
options and its list of actions. The pool therefore stores what one reply per episode shows, the
last; it plays an older one again when a client asks for it. Everything here runs on one event loop,
except SQL.
"""

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from env_server.episode import Episode, Options, replay
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql import drive_async
from env_server.sql.pool import SqlPool
from env_server.store import ANYONE, Caller, EpisodeStore, unknown, utf8_bytes
from env_server.telemetry import Metrics, about
from env_server.tries import has_ended
from shared.actions import ActionType, SQLAction, as_action, render_action
from shared.errors import ActionParseError, Behind, Conflict, DigestMismatch, NotReady, QueueFull
from shared.models import Outcome, ResetRequest, ResetResult, SQLState, StepRequest, StepResult

log = logging.getLogger(__name__)
LOGGED_CHARS = 500  # of a query

Actions = Sequence[tuple[SQLAction, str]]  # each with its canonical text


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
        self.store = EpisodeStore(settings, clock)

    def __len__(self) -> int:
        return self.store.active

    async def reset(self, request: ResetRequest, caller: Caller = ANYONE) -> ResetResult:
        """Start an episode, or rebuild it by replay; returns the reply to the last action."""
        if request.digest is not None and request.digest != self.digest:
            raise DigestMismatch(
                f"this server's digest is {self.digest}, not {request.digest[:80]}: its data, rules"
                " or limits differ, so a replay could differ; reset without a digest to start over",
                digest=self.digest,
            )
        rewards = caller.rewards(request.rewards)
        actions = parsed(request.actions or ())
        texts = [text for _, text in actions]
        self.store.check_size(sum(map(utf8_bytes, texts)))
        episode_id = request.episode_id or str(uuid4())  # 122 random bits: nobody can guess it
        options = Options.of(request, self.bank, episode_id, self.settings.step_budget)
        options = options._replace(rewards=rewards)
        check_end(actions, options.step_budget)
        while True:
            episode = self.store.find(episode_id, caller)
            if episode is None:
                if self.draining:
                    reason = "the server is shutting down; start episodes elsewhere"
                    raise NotReady(reason, retry_after_s=1)
                episode = self._episode(options, episode_id)
                self.store.admit(episode, caller, texts)
            async with self._turn(episode, or_gone=True):
                if episode.gone:  # the previous request failed to start it, or closed it
                    continue
                if episode.options != options:
                    old = episode.options
                    raise Conflict(
                        f"episode {episode_id} exists with question {old.question_id}, a step "
                        f"budget of {old.step_budget}, answers as {old.answer_form}, rewards "
                        f"{old.rewards!r} and explanations {[*old.explain]}; {caller.remedy}"
                    )
                is_over = episode.outcome is not None
                if is_over and caller.is_agent and len(actions) < len(episode.actions):
                    raise has_ended(episode_id)
                reply = await self._catch_up(episode, actions, caller)
            return ResetResult(**dict(reply), episode_id=episode_id)

    async def resume(self, episode_id: str, caller: Caller = ANYONE) -> ResetResult:
        async with self._turn(self.store.get(episode_id, caller)) as episode:
            return ResetResult(**dict(episode.reply()), episode_id=episode_id)

    async def step(self, request: StepRequest, caller: Caller = ANYONE) -> StepResult:
        """Take a step, or repeat an earlier step's reply."""
        action = as_action(request.action)
        text = render_action(action)
        async with self._turn(self.store.get(request.episode_id, caller)) as episode:
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
                await self._step(episode, action, text)
                self.steps[episode.owner, action.action_type] += 1
                self.metrics.step_seconds[action.action_type].observe(time.perf_counter() - began)
                return episode.reply()
            if episode.actions[step] != text:
                raise Conflict(
                    f"step {step} was answered for another action, {episode.actions[step][:80]!r}",
                    step_count=answered,
                )
            self.counts["repeated"] += 1
            return await self._reply_at(episode, step + 1)

    async def state(self, episode_id: str, caller: Caller = ANYONE) -> SQLState:
        """Return an episode's state, after the step in flight."""
        async with self._turn(self.store.get(episode_id, caller)) as episode:
            return episode.state()

    async def close(
        self, episode_id: str, caller: Caller = ANYONE, moved: bool = False
    ) -> SQLState:
        """Remove an episode, an unfinished one as abandoned; returns its last state. With `moved`,
        only an unfinished one, as a copy of an episode that ended elsewhere."""
        async with self._turn(self.store.get(episode_id, caller)) as episode:
            if not moved:
                self._abandon(episode)
            elif episode.outcome is None:
                self.counts["moved"] += 1
                self.store.remove(episode)
            return episode.state()

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

    async def _catch_up(self, episode: Episode, actions: Actions, caller: Caller) -> StepResult:
        """Play those of `actions` that the episode lacks; returns the reply to the last one."""
        for number, (was, (_, text)) in enumerate(zip(episode.actions, actions, strict=False)):
            if was != text:
                raise Conflict(
                    f"episode {episode.episode_id} exists with another history: step {number} was "
                    f"{was[:80]!r}; {caller.remedy}",
                    step_count=len(episode.actions),
                )
        if episode.started:
            await self._replay(episode, actions[len(episode.actions) :])
        else:
            try:
                await drive_async(episode.start_jobs(), self.sql.run)
                self.store.hold(episode)
                await self._replay(episode, actions)
            except BaseException:
                self.store.remove(episode, started=False)
                raise
            self.counts["started"] += 1
            if actions:
                self.counts["rebuilt"] += 1
                log.debug("rebuilt from %d actions", len(actions))
        return await self._reply_at(episode, len(actions))

    async def _replay(self, episode: Episode, actions: Actions) -> None:
        for action, text in actions:
            await self._step(episode, action, text)
            self.counts["replayed"] += 1

    async def _step(self, episode: Episode, action: SQLAction, text: str) -> None:
        if episode.outcome is None:  # else the action is refused
            self.counts["evicted"] += self.store.make_room(episode, text)
        await drive_async(episode.step_jobs(action, text), self.sql.run)
        self.store.hold(episode, text)
        if episode.outcome is not None:
            self._finish(episode, episode.outcome)

    async def _reply_at(self, episode: Episode, answered: int) -> StepResult:
        """Return the reply after `answered` steps; all but the last are played again."""
        if answered == len(episode.actions):
            return episode.reply()
        again = self._episode(episode.options, episode.episode_id)
        played = replay(again, episode.actions[:answered], self.sql.run)
        return [reply async for reply in played][-1]

    def _episode(self, options: Options, episode_id: str) -> Episode:
        return Episode(self.bank, options, self.settings.standard, episode_id=episode_id)

    # -- all episodes

    @asynccontextmanager
    async def _turn(self, episode: Episode, or_gone: bool = False) -> AsyncIterator[Episode]:
        """Hold an episode: one request at a time, in the order of arrival; then renew its lease."""
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

    def _finish(self, episode: Episode, outcome: Outcome) -> None:
        self.store.finish(episode)
        self.ended[outcome] += 1
        if outcome == Outcome.SQL_KILLED:
            log.warning("a query killed its SQL workers: %r", episode.actions[-1][:LOGGED_CHARS])
        else:
            log.debug("ended after %d steps: %s", len(episode.actions), outcome)
        if self.store.finished > self.settings.finished_capacity:
            self.counts["evicted"] += self.store.evict(self.store.owners.values())

    def _abandon(self, episode: Episode) -> None:
        self.store.remove(episode)
        if episode.outcome is None:
            episode.outcome = Outcome.ABANDONED
            self.ended[Outcome.ABANDONED] += 1
            with about(episode.episode_id):
                log.debug("abandoned after %d steps", len(episode.actions))


def parsed(actions: Sequence[SQLAction | str]) -> Actions:
    """Return actions with their texts; `ActionParseError` names the first that is none."""
    found = []
    for index, given in enumerate(actions):
        try:
            action = as_action(given)
        except ActionParseError as error:
            raise ActionParseError(f"actions.{index}: {error.message}") from None
        found.append((action, render_action(action)))
    return found


def check_end(actions: Actions, budget: int) -> None:
    """Raise `Conflict` if actions continue after an ANSWER or the last step."""
    kinds = (action.action_type for action, _ in actions)
    answers = (number for number, kind in enumerate(kinds, 1) if kind == ActionType.ANSWER)
    if (end := min(next(answers, budget), budget)) < len(actions):
        raise Conflict(f"actions: the episode is over after {end} of {len(actions)} actions")
