"""The connections of a server: how many there may be, and which give way to others.

When the server has too many connections, or bytes of unfinished bodies, the oldest that waits for
no reply, or does not read it, gives way, first those that sent no key, so that requests which
arrive promptly are served.
"""

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from env_server.settings import Settings
from env_server.telemetry import Metrics

log = logging.getLogger(__name__)
SPARE_DESCRIPTORS = 256  # for the listener, the SQL workers' pipes, files that are being read
# While at most this share of the connections has an unfinished request, idle ones give way first.
# Otherwise, beside many idle ones, a new one would give way before its first bytes are read.
PROMPT_SHARE = 1 / 8
UNREAD_S = 3.0  # a peer that reads nothing for so long of what is left for it reads no more


class Connection(Protocol):
    """A connection that may have to give way to others."""

    address: str  # of its peer
    known: bool  # whether it has sent a key of the server
    body_bytes: int  # of the current request's body so far, unless nobody reads it

    def evict(self, message: str) -> None:
        """Close the connection now, for this reason."""


class Connections:
    """The connections of one server, and what they have sent of unfinished bodies."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.max_open = _within_descriptors(settings.max_connections)
        # dicts as ordered sets, the oldest first
        self.unfinished: dict[Connection, None] = {}  # whose request has not arrived in full
        self.idle: dict[Connection, None] = {}  # which wait for their next request
        self.unread: dict[Connection, None] = {}  # whose peers do not read what they asked for
        self.body_bytes = 0  # of all unfinished bodies
        self.unknown: Counter[str] = Counter()  # by address: connections that have sent no key

    def opened(self, one: Connection) -> None:
        self._count(one, 1)

    def closed(self, one: Connection) -> None:
        self.forget(one)
        self._count(one, -1)

    def forget(self, one: Connection) -> None:
        """Let a connection that is closing give way no more."""
        for group in (self.unfinished, self.idle, self.unread):
            group.pop(one, None)

    def sent_key(self, one: Connection) -> None:
        """Let a connection give way last."""
        self._count(one, -1)
        one.known = True

    def _count(self, one: Connection, change: int) -> None:
        if not one.known:
            self.unknown[one.address] += change
            if not self.unknown[one.address]:
                del self.unknown[one.address]

    def make_room(self, newest: Connection) -> None:
        """Close the oldest connection that waits for no reply, or does not read it, else the newest
        one: first those that have sent no key, and of these those of the address that has most."""
        message = f"the server has {self.max_open:,} connections, the most it takes: try again"
        crowd = max(self.unknown, key=self.unknown.__getitem__, default="")
        first, last = self.unfinished, self.idle
        if len(self.unfinished) <= self.max_open * PROMPT_SHARE:
            first, last = last, first

        def waiting() -> Iterator[Connection]:
            return (one for one in chain(first, last, self.unread) if one is not newest)

        unknown = (one for one in waiting() if not one.known)
        crowded = (one for one in waiting() if not one.known and one.address == crowd)
        next(chain(crowded, unknown, waiting()), newest).evict(message)

    def shed(self) -> None:
        """Close connections with unfinished bodies until the rest fit the limit: the oldest first,
        and those that sent no key before the others."""
        holding = [one for one in chain(self.unfinished, self.idle) if one.body_bytes]
        for one in sorted(holding, key=lambda one: one.known):
            if self.body_bytes <= self.settings.max_unfinished_bytes:
                return
            one.evict("the server holds too many unfinished bodies: try again")


def abort_unless_read(transport: asyncio.Transport, unread_before: int = -1) -> None:
    """Close a connection that is ending, now if its peer has read nothing since `unread_before`
    bytes were left for it; else look again later."""
    unread = transport.get_write_buffer_size()
    if unread and unread == unread_before:
        transport.abort()
    elif unread:
        loop = asyncio.get_running_loop()
        loop.call_later(UNREAD_S, abort_unless_read, transport, unread)


def _within_descriptors(most: int) -> int:
    """Return how many connections the process can have, at most `most`; raises its soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            most = max(soft - SPARE_DESCRIPTORS, soft // 2)
            log.warning("%d descriptors (ulimit -n) allow %d connections only", soft, most)
    return most
