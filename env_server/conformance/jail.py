"""The hostile queries against a server: their outcomes, and that other episodes are answered.

While a hostile query is in flight, an episode on the same database takes one step after the other;
the median of their times must be 100 ms or less. A query that delays others shows in the median,
since a step waits for most of that time; a hiccup of a busy machine does not. If the median is
higher (a query that is refused at once leaves time for one step only), the query is sent up to five
more times, and one low median suffices: a server that delays others does so every time. On a
machine where the same step is slow without a hostile query (the control, measured at that moment),
three times the control is allowed.
"""

import asyncio
import re
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from env_server.conformance.check import Check
from env_server.conformance.corpus import SHOWN, HostileQuery
from env_server.conformance.wire import Failed, Reply, Wire, WireEpisode, brief, expect
from shared.sqltext import quote_identifier

MAX_WAIT_S = 0.1  # of another episode's step, the median
TRIES = 6
CONTROLS = 5  # steps of a control
CONTROL_FACTOR = 3
PROBES = 90  # steps of one probing episode
TABLES = 12  # considered in the search for the one with the most rows

_PATH = re.compile(r"(?:^|[\s'\"(=:])(?:/[\w.@+-]+){2,}|\b[A-Za-z]:\\|\.(?:sqlite|db)\b")
After = Callable[[HostileQuery], Awaitable[None]]


@dataclass
class Target:
    """Where the queries go: a question, and a table of its database."""

    question_id: str
    table: str
    column: str


@dataclass
class Bystander:
    """An episode that keeps stepping. `waits`: the seconds of every step."""

    wire: Wire
    target: Target
    episode: WireEpisode | None = None
    taken: int = 0
    shown: str | None = None
    waits: list[float] = field(default_factory=list)

    async def step(self) -> float:
        """Take one step and return its seconds. `Failed` if its reply differs from the first."""
        if self.episode is None or self.taken >= PROBES:
            await self.wire.end_all()
            question_id = self.target.question_id
            self.episode = await self.wire.start(step_budget=PROBES + 1, question_id=question_id)
            self.taken = 0
        action = f"QUERY: SELECT count(*) AS rows FROM {quote_identifier(self.target.table)}"
        start = time.monotonic()
        reply = await self.wire.step(self.episode, action, self.taken)
        wait = time.monotonic() - start
        self.taken += 1
        result = self.wire.ok(reply, "another episode's step").seen["result"]
        self.shown = self.shown or result
        same = result and result == self.shown
        expect(same, f"another episode was shown {brief(result)}, not {brief(self.shown)}")
        self.waits.append(wait)
        return wait

    async def allowed_s(self, median: float) -> float:
        """Return how high a median may be. Measures a control only if it exceeds `MAX_WAIT_S`."""
        if median <= MAX_WAIT_S:
            return MAX_WAIT_S
        control = statistics.median([await self.step() for _ in range(CONTROLS)])
        return max(MAX_WAIT_S, CONTROL_FACTOR * control)


async def find_target(wire: Wire) -> Target:
    """Return the question of seed 0 and its largest table; `Failed` if none has two rows."""
    episode = await wire.start(step_budget=2 * TABLES)
    largest: tuple[int, str] = (0, "")
    tables = episode.tables[:TABLES]
    for number, table in enumerate(tables):
        action = f"QUERY: SELECT count(*) FROM {quote_identifier(table)}"
        reply = await wire.step(episode, action, number)
        rows = wire.ok(reply, "a count").seen["result"].partition("\n")[2]
        largest = max(largest, (int(rows), table)) if rows.isdecimal() else largest
    question = episode.question_id
    expect(largest[0] >= 2, f"hostile queries need a table of two rows; {question} has none")
    action = f"QUERY: SELECT * FROM {quote_identifier(largest[1])} LIMIT 1"
    reply = wire.ok(await wire.step(episode, action, len(tables)), "a row")
    column = reply.seen["result"].partition("\n")[0].split(" | ")[0]
    return Target(question, largest[1], column)


def checks(queries: Iterable[HostileQuery], after: After | None = None) -> list[Check]:
    """Return one check per query, and one of how long others waited in total.

    `after` is awaited after each try of a query.
    """
    bystanders: list[Bystander] = []

    async def bystander(wire: Wire) -> Bystander:
        if not bystanders:  # with episodes that outlive a check
            bystanders.append(Bystander(Wire(wire.client), await find_target(wire)))
        return bystanders[0]

    def check(query: HostileQuery) -> Check:
        async def body(wire: Wire) -> str:
            return await attack(wire, query, await bystander(wire), after)

        return Check("hostile", query.name, body)

    async def summary(wire: Wire) -> str:
        other = await bystander(wire)
        await other.step()
        waits = sorted(other.waits)
        last = len(waits) - 1
        median, high = (waits[min(last, int(share * len(waits)))] for share in (0.5, 0.95))
        allowed = await other.allowed_s(median)
        await other.wire.end_all()
        slow = f"half of another episode's steps took more than {1000 * median:.0f} ms"
        expect(median <= allowed, slow)
        times = f"median {1000 * median:.0f} ms, 95 % {1000 * high:.0f} ms"
        return f"{len(waits)} steps: {times}, longest {1000 * waits[-1]:.0f} ms"

    whole = Check("hostile", "other episodes were answered all the time", summary)
    return [*map(check, queries), whole]


async def attack(wire: Wire, query: HostileQuery, other: Bystander, after: After | None) -> str:
    """Send a query; check its outcome and that `other` is answered. Returns a remark."""
    median = 0.0
    for _ in range(TRIES):
        file = str(Path(tempfile.gettempdir()) / f"conformance-{uuid.uuid4().hex}")
        episode = await wire.start(step_budget=3, question_id=other.target.question_id)
        sql = query.statement(other.target.table, other.target.column, file)
        action = {"action_type": "QUERY", "argument": sql}
        reply, waits = await watched(wire.step(episode, action, 0), other)
        if after is not None:
            await after(query)
        outcome = judge(query, wire.ok(reply, "a hostile query"), file)
        expect(not Path(file).exists(), f"it created the file {file}")
        if not reply.body["done"]:
            reply = wire.ok(await wire.step(episode, "QUERY: SELECT 1 AS one", 1), "the next step")
            seen = reply.seen
            shown = brief(seen["result"] or seen["error"])
            expect(seen["result"] == "one\n1", f"the step after it was shown {shown}")
        median = statistics.median(waits)
        if median <= await other.allowed_s(median):
            return f"{outcome}, stopped by {query.defence}; others' wait {1000 * median:.0f} ms"
    raise Failed(f"other episodes waited {1000 * median:.0f} ms (median), {TRIES} times")


async def watched(request: Awaitable[Reply], other: Bystander) -> tuple[Reply, list[float]]:
    """Return the reply, and the wait of each step of `other` meanwhile, at least one."""
    task = asyncio.ensure_future(request)
    waits: list[float] = []
    try:
        while not waits or not task.done():
            waits.append(await other.step())
        return await task, waits
    finally:
        task.cancel()


def judge(query: HostileQuery, reply: Reply, file: str) -> str:
    """Return the outcome of a hostile query; `Failed` if it is not one of the expected."""
    seen, code = reply.seen, reply.body["info"]["error_code"]
    outcome = str(code) if seen["error"] is not None else SHOWN
    wanted, shown = " or ".join(query.expect), brief(seen["error"] or seen["result"])
    expect(outcome in query.expect, f"must be {wanted}, not {outcome}: {shown}")
    if outcome == SHOWN:
        expected, shown = brief(repr(query.shows)), brief(repr(seen["result"]))
        expect(seen["result"] == query.shows, f"must show {expected}, not {shown}")
        return outcome
    expect(seen["result"] == "", f"an error must show nothing, not {brief(seen['result'])}")
    expect("\n" not in seen["error"], f"an error must be one line: {brief(seen['error'])}")
    leaked = _PATH.search(seen["error"].replace(file, ""))
    expect(leaked is None, f"an error must contain no path: {brief(seen['error'])}")
    return outcome
