"""The fail-over layer: finds a server for each call of an episode, and rebuilds the episode there.

An episode stays on its server as long as that serves it. If the server has lost the episode, or is
itself lost, the episode is rebuilt by replay, there or on another server. The replay must end on
the reply that the client already has, so no episode continues on a server that plays differently.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from shared import errors
from shared.client.fleet import Fleet
from shared.client.replica import Replica, encode, is_loss
from shared.client.retries import Attempts
from shared.models import StepResult

T = TypeVar("T")
Call = Callable[[Replica], Awaitable[T]]

# the options that decide an episode's replies
REBUILT = ("step_budget", "answer_form", "rewards", "explain")

# Another server may succeed: this one is full, has other data, or has a fault of its own.
_REFUSALS = (errors.CapacityReached, errors.DigestMismatch, errors.InternalError, errors.DataError)


@dataclass(slots=True, eq=False)
class OpenEpisode:
    """An episode under way, with what rebuilds it: its options and its latest reply."""

    episode_id: str
    replica: Replica
    digest: str
    options: Mapping[str, object]  # `REBUILT` of its reset
    latest: StepResult  # to the last action, or to the reset; has the question's id and all actions
    places: set[tuple[Replica, str]]  # where it may have been played: `Replica.place`
    lost: bool = False  # by its replica, as far as is known


async def run(
    fleet: Fleet, episode_id: str, call: Call[T], episode: OpenEpisode | None = None
) -> T:
    """Return what `call` returns on the episode's server, or on another if that one fails.

    Each serving replica is tried once, then there is a wait, as often as the limits allow. An
    open `episode` is rebuilt before the call on a replica that does not have it.
    """
    await fleet.open()
    server = fleet.ranked(episode_id)[0] if episode is None else episode.replica
    attempts = Attempts(fleet)
    failures: dict[Replica, errors.SQLEnvError] = {}
    rebuilt = False
    while True:
        try:
            if episode is not None and (episode.lost or episode.replica is not server):
                await _rebuild(fleet, episode, server)
            result = await call(server)
            if episode is not None:
                episode.places.add(server.place(episode_id))
            return result
        except errors.SQLEnvError as error:
            if episode is not None and isinstance(error, errors.UnknownEpisode | errors.Behind):
                episode.lost = True
                if rebuilt:  # lost again right after the replay
                    await attempts.wait(error, hopeful=True)
                rebuilt = True
                failures.clear()
                continue
            failures[server] = error
            other = _other_server(fleet, episode_id, server, failures)
            if other is None:
                # A lost server may return, also to a gateway, and a full one have room later.
                some_lost = any(one.lost for one in fleet.replicas)
                some_lost |= server.is_gateway and isinstance(error, errors.DigestMismatch)
                temporary = some_lost or any(map(errors.is_retryable, failures.values()))
                hopeful = temporary and isinstance(error, _REFUSALS)
                await attempts.wait(error, hopeful=hopeful)
                failures.clear()
            server = other or server


async def find(fleet: Fleet, episode_id: str, call: Call[T], ended_on: Replica | None = None) -> T:
    """Return what `call` returns on the first server that knows an episode not open here, from
    `ended_on`: others may have the episode as it was before it moved."""
    await fleet.open()
    servers = fleet.ranked(episode_id)
    if ended_on is not None:
        servers = list(dict.fromkeys([ended_on, *servers]))
    attempts = Attempts(fleet)
    while True:
        try:
            await servers[0].digest()  # with which a gateway states its shards
            return await call(servers[0])
        except errors.UnknownEpisode:
            servers = [server for server in servers[1:] if server.lost is None]
            if not servers:
                raise
        except errors.SQLEnvError as error:
            if is_loss(error):
                fleet.lose(servers[0], error)
            serving = [server for server in servers[1:] if server.lost is None]
            if is_loss(error) and serving:
                servers = [*serving, servers[0]]
            else:
                await attempts.wait(error)


def _other_server(
    fleet: Fleet, episode_id: str, server: Replica, failures: Mapping[Replica, errors.SQLEnvError]
) -> Replica | None:
    """Return the next server after `server` failed; None to wait and try `server` again."""
    error = failures[server]
    if isinstance(error, errors.DigestMismatch):
        server.known_digest = None
    elif isinstance(error, errors.NotReady):
        fleet.lose(server, error)
    elif not (isinstance(error, _REFUSALS) or (is_loss(error) and server.lost is not None)):
        return None
    left = (one for one in fleet.ranked(episode_id) if one.lost is None)
    return next((one for one in left if one not in failures), None)


async def _rebuild(fleet: Fleet, episode: OpenEpisode, server: Replica) -> None:
    """Replay an episode on `server`. `SQLEnvError` if it ends on another reply than here."""
    fleet.stats.rebuilds += 1
    last = episode.latest
    request = {
        "episode_id": episode.episode_id,
        "question_id": last.info.question_id,
        **episode.options,
        "actions": last.observation.action_history or None,
        "digest": episode.digest,
    }
    episode.places.add(server.place(episode.episode_id))
    replayed = await server.reset(episode.episode_id, encode(request))
    for part in ("observation", "reward", "info"):
        if getattr(replayed, part) != getattr(last, part):
            raise errors.SQLEnvError(
                f"{server.url} replays episode {episode.episode_id} to another reply ({part})"
                " although its digest is the same: its data or rules were changed while it ran,"
                " so the episode is given up",
                url=server.url,
            )
    fleet.stats.moves += server is not episode.replica
    episode.replica, episode.lost = server, False
