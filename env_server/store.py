"""The episodes that a server holds, and who calls: owners, places, leases and bytes."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from env_server.episode import Episode
from env_server.settings import Settings
from env_server.tries import AgentTries
from shared.dataset import Question
from shared.errors import CapacityReached, EpisodeTooLarge, Forbidden, UnknownEpisode
from shared.models import Outcome, Rewards

RETRY_AFTER_S = 5  # places are freed all the time: a finished episode gives up its own


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. Only the operator finds episodes of other owners."""

    owner: str = ""  # the name of the key; "" for everybody on a server without keys
    is_operator: bool = False
    is_agent: bool = False  # has `agent_capacity` places, and sees rewards at the end only

    def rewards(self, wanted: Rewards | None) -> Rewards:
        """Return when replies show rewards; `Forbidden` if the key may not see them."""
        if not self.is_agent:
            return wanted or "step"
        if wanted == "step":  # by which an agent could find the answer without the data
            raise Forbidden(
                f"rewards: the key {self.owner} sees rewards at the end of an episode; reset with"
                " 'end' or without the option, or send the trainer's key (SQLENV_API_KEY)"
            )
        return "end"

    @property
    def remedy(self) -> str:
        """What to do where an episode has the id that another is to have."""
        return "choose another id" if self.is_agent else "close it first, or choose another id"


ANYONE = Caller()


class Holdings:
    """The episodes of one owner, by id, each in the order of last use; an agent's tries."""

    def __init__(self, max_bytes: int, tries: AgentTries | None) -> None:
        self.tries = tries
        self.active: OrderedDict[str, Episode] = OrderedDict()
        self.finished: OrderedDict[str, Episode] = OrderedDict()
        self.held_bytes, self.max_bytes = 0, max_bytes

    def of(self, episode: Episode) -> OrderedDict[str, Episode]:
        """Return the active episodes or the finished ones: those that an episode belongs to."""
        return self.active if episode.outcome is None else self.finished


class EpisodeStore:
    """All episodes of a server, by owner. Ids are the owner's own: two may use the same."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self.settings, self.clock = settings, clock
        self.owners: dict[str, Holdings] = {}

    @property
    def active(self) -> int:
        return sum(len(one.active) for one in self.owners.values())

    @property
    def finished(self) -> int:
        return sum(len(one.finished) for one in self.owners.values())

    @property
    def held_bytes(self) -> int:
        return sum(one.held_bytes for one in self.owners.values())

    @property
    def tries(self) -> list[AgentTries]:
        return [one.tries for one in self.owners.values() if one.tries]

    def find(self, episode_id: str, caller: Caller) -> Episode | None:
        """Return the caller's episode of this id; an operator's own, or else anybody's."""
        for owner in (caller.owner, *(self.owners if caller.is_operator else ())):
            held = self.owners.get(owner)
            if held and (episode := held.active.get(episode_id) or held.finished.get(episode_id)):
                return episode
        return None

    def get(self, episode_id: str, caller: Caller) -> Episode:
        if (episode := self.find(episode_id, caller)) is None:
            raise unknown(episode_id)
        return episode

    def admit(self, episode: Episode, caller: Caller, actions: Sequence[str]) -> None:
        """Give a caller's episode, which is to have `actions`, a place; else `CapacityReached`.

        For an agent, `Conflict` if another episode of this id has ended, and `Forbidden` if it
        could end in more tries of its question than the settings allow.
        """
        if caller.owner not in self.owners:
            # so no agent takes the bytes of the others
            share = self.settings.agent_capacity / self.settings.capacity
            share = min(1.0, share) if caller.is_agent else 1.0
            max_bytes = int(self.settings.max_held_bytes * share)
            tries = AgentTries(caller.owner) if caller.is_agent else None
            self.owners[caller.owner] = Holdings(max_bytes, tries)
        held, episode_id = self.owners[caller.owner], episode.episode_id
        if held.tries:
            episode.attempt = held.tries.attempt_of(episode_id, episode.options, actions)
            most, is_judged = self.settings.agent_tries, isinstance(episode.question, Question)
            if most is not None and is_judged and not episode.attempt:
                wanted = episode.options.question_id
                others = [one for one in held.active.values() if not one.attempt]
                unfinished = sum(one.options.question_id == wanted for one in others)
                held.tries.check_limit(wanted, unfinished, most)
        limits = [("", self.active, self.settings.capacity, "CAPACITY")]
        if caller.is_agent:
            whose, capacity = f" of the key {caller.owner}", self.settings.agent_capacity
            limits.insert(0, (whose, len(held.active), capacity, "AGENT_CAPACITY"))
        for whose, used, capacity, setting in limits:
            if used >= capacity:
                raise CapacityReached(
                    f"all {capacity:,} places{whose} are taken; finish or close episodes, or raise "
                    f"SQLENV_{setting}",
                    retry_after_s=RETRY_AFTER_S,
                    capacity=capacity,
                    used=used,
                )
        episode.owner, episode.touched = caller.owner, self.clock()
        held.active[episode_id] = episode

    def touch(self, episode: Episode) -> None:
        if not episode.gone:
            episode.touched = self.clock()
            self.owners[episode.owner].of(episode).move_to_end(episode.episode_id)

    def finish(self, episode: Episode) -> None:
        """Move an episode that has ended to the finished ones, which take no place; count a try."""
        held, outcome = self.owners[episode.owner], episode.outcome
        if held.tries and not episode.attempt and outcome in (Outcome.CORRECT, Outcome.WRONG):
            asked = episode.options.question_id
            episode.attempt = held.tries.add(asked, outcome == Outcome.CORRECT)
        del held.active[episode.episode_id]
        held.finished[episode.episode_id] = episode

    def remove(self, episode: Episode, *, started: bool = True) -> None:
        """Remove an episode. Without `started` no client has seen it, and its id stays free."""
        if not episode.gone:
            held = self.owners[episode.owner]
            if started and held.tries:
                played = episode.options, episode.actions
                held.tries.end(episode.episode_id, *played, episode.attempt)
            del held.of(episode)[episode.episode_id]
            held.held_bytes -= episode.held_bytes
            episode.gone = True

    def evict(self, holdings: Iterable[Holdings]) -> bool:
        """Remove a finished episode: the oldest of the owner who has most. False without any."""
        most = max((held.finished for held in holdings), key=len, default=None)
        if not most:
            return False
        self.remove(next(iter(most.values())))
        return True

    def idle(self, oldest: float) -> Iterator[Episode]:
        """Yield the episodes that were last used at `oldest` or before; remove each meanwhile."""
        for held in self.owners.values():
            for episodes in (held.active, held.finished):
                while episodes and (episode := next(iter(episodes.values()))).touched <= oldest:
                    if episode.users:
                        self.touch(episode)
                    else:
                        yield episode

    def check_size(self, action_bytes: int) -> None:
        """Raise `EpisodeTooLarge` if an episode may not have actions of so many bytes."""
        if action_bytes > (limit := self.settings.max_episode_bytes):
            raise EpisodeTooLarge(
                f"the episode's actions would have {action_bytes:,} bytes, over the limit of "
                f"{limit:,}: send a shorter one, close the episode, or raise "
                "SQLENV_MAX_EPISODE_BYTES",
                max_episode_bytes=limit,
            )

    def make_room(self, episode: Episode, action: str) -> int:
        """Evict finished episodes until one may hold one more action; return their number."""
        self.check_size(episode.action_bytes + utf8_bytes(action))
        more, limit, evicted = memory_of(action), self.settings.max_held_bytes, 0
        own = self.owners[episode.owner]
        while (over := own.held_bytes + more > own.max_bytes) or self.held_bytes + more > limit:
            if not self.evict([own] if over else self.owners.values()):
                whose = f"the episodes of the key {episode.owner}" if over else "all episodes"
                raise CapacityReached(
                    f"{whose} hold {own.held_bytes if over else self.held_bytes:,} bytes, and "
                    f"{more:,} more are over the limit of {own.max_bytes if over else limit:,}: "
                    "finish or close episodes, or raise SQLENV_MAX_HELD_BYTES",
                    retry_after_s=RETRY_AFTER_S,
                    max_held_bytes=limit,
                )
            evicted += 1
        return evicted

    def hold(self, episode: Episode, action: str | None = None) -> None:
        """Count what an episode holds: the `action` that it took, and what its last reply shows."""
        shown = memory_of(episode.schema_info)
        shown += memory_of(episode.effect.text or episode.effect.error or "")
        more = shown - episode.shown_bytes
        if action is not None:
            more += memory_of(action)
            episode.action_bytes += utf8_bytes(action)
        episode.shown_bytes = shown
        episode.held_bytes += more
        self.owners[episode.owner].held_bytes += more


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def memory_of(text: str) -> int:
    """Return the bytes of memory that a text takes, with the UTF-8 that Python keeps beside it."""
    return sys.getsizeof(text) + (0 if text.isascii() else utf8_bytes(text))


def unknown(episode_id: str) -> UnknownEpisode:
    return UnknownEpisode(
        f"no episode {episode_id[:80]!r} here: it expired, was closed or is on another server; "
        "reset it with its id, question and 'actions' to rebuild it"
    )
