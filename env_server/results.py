"""The effect of an action, and `ResultCache`: an equal QUERY on one question runs no SQL."""

import sys
from collections import OrderedDict
from dataclasses import dataclass

# An entry takes this many bytes in addition to its texts.
OVERHEAD_BYTES = 600
# Errors that depend on nothing but data, limits and statement: not on time or on other jobs.
REPEATABLE = (None, "sql_error", "sql_denied", "no_such_table")


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action led to: `text` to show, or `error`."""

    text: str = ""
    error: str | None = None
    error_code: str | None = None
    described: str | None = None  # a line for schema_info
    potential: float = 0.0
    correct: bool | None = None  # of ANSWER
    unjudged: bool = False  # ANSWER to an open question
    verdicts: dict[str, bool] | None = None  # of ANSWER: standard -> whether it is right


class ResultCache:
    """Effects of QUERYs by (question_id, statement), at most `max_bytes` of them.

    Databases are read-only and results deterministic, so no entry expires; the least recently used
    go first. 0 bytes: no cache. A question has one database, and one gold for the potential.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = self.hits = self.misses = 0
        self._entries: OrderedDict[tuple[str, str], tuple[Effect, int]] = OrderedDict()

    def get(self, key: tuple[str, str]) -> Effect | None:
        """Return the effect of a statement, or None."""
        if (entry := self._entries.get(key)) is None:
            self.misses += self.max_bytes > 0
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: tuple[str, str], effect: Effect) -> None:
        """Hold an effect, unless it could be another one the next time."""
        size = sum(map(sys.getsizeof, (key[1], effect.text, effect.error))) + OVERHEAD_BYTES
        if effect.error_code not in REPEATABLE or size > self.max_bytes or key in self._entries:
            return
        self._entries[key] = effect, size
        self.held_bytes += size
        while self.held_bytes > self.max_bytes:
            self.held_bytes -= self._entries.popitem(last=False)[1][1]
