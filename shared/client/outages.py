"""What a client logs while servers are away: one line when one is lost, and one when it is back."""

import logging
from time import monotonic

from shared.client.limits import ClientStats
from shared.errors import SQLEnvError

log = logging.getLogger("shared.client")

QUIET_S = 30.0  # between two lines about the same server and kind of error


class Outages:
    """The outages of a client's servers. Calls that fail meanwhile are not logged one by one."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats = stats
        self._since: dict[str, float] = {}  # URL -> when an outage began that was logged
        self._logged: dict[tuple[str, str], float] = {}  # URL, error code -> time of its last line

    def lost(self, url: str, error: SQLEnvError, others: int) -> None:
        """Note that the server at `url` is lost while `others` serve."""
        if self._may_log(url, "lost"):
            self._since[url] = monotonic()
            remedy = f"{others} others serve" if others else "calls wait for it"
            log.warning("an environment server is lost, %s: %s", remedy, error)

    def answered(self, url: str) -> None:
        """Note that the server at `url` answers."""
        if (since := self._since.pop(url, None)) is not None:
            log.warning(
                "the environment server at %s is back after %.1f s; %d calls waited",
                *(url, monotonic() - since, self._stats.calls_waiting),
            )

    def refused(self, error: SQLEnvError) -> None:
        """Note that a call is repeated because of an error of a server that answers."""
        if self._may_log(str(error.details.get("url", "")), error.code):
            log.warning("calls are repeated until they succeed: %s", error)

    def _may_log(self, url: str, kind: str) -> bool:
        now = monotonic()
        if now - self._logged.get((url, kind), -QUIET_S) < QUIET_S:
            return False
        self._logged[url, kind] = now
        return True
