"""The hostile queries against a server: their outcomes, and that another episode is answered all
the while.

**How long others wait** is measured from here: while a hostile query is in flight, an episode on
the same database takes one step after the other. The median of their times must be 100 ms or less.
A query that holds the others up shows in the median, since they step one at a time and so wait most
of that while; a hiccup of a busy machine does not. Where the median is higher (a query that is
refused at once leaves time for one step alone) it is sent again, five times at most, and one that
is low will do: a server that lets others wait does so each time. And on a machine so busy that the
same step takes long without any such query (the control, measured there and then), three times that
is allowed.
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
from env_server.conformance.corpus import SHOWN, Hostile
from env_server.conformance.wire import Episode, Failed, Reply, Wire, brief, expect, tables_of
from shared.sqltext import quote_identifier

MAX_WAIT_S = 0.1  # of another episode's step, the median
TRIES = 6
CONTROLS = 5  # steps of a control
CONTROL_TIMES = 3
PROBES = 90  # steps of one probing episode
TABLES = 12  # looked at for the one with the most rows

_PATH = re.compile(r"(?:^|[\s'\"(=:])(?:/[\w.@+-]+){2,}|\b[A-Za-z]:\\|\.(?:sqlite|db)\b")
Watch = Callable[[Hostile], Awaitable[None]]


@dataclass
class Place:
    """Where the queries go: a question, and a table of its database."""

    question_id: str
    table: str
    column: str


@dataclass
class Bystander:
    """An episode that goes on stepping. `waits` are seconds, of every step."""

    wire: Wire
    place: Place
    episode: Episode | None = None
    taken: int = 0
    shown: str | None = None
    waits: list[float] = field(default_factory=list)

    async def step(self) -> float:
        """One step. -> seconds. `Failed` where it is not answered as the first was."""
        if self.episode is None or self.taken >= PROBES:
            await self.close()
            self.episode = await self.wire.begin(
                step_budget=PROBES + 1, question_id=self.place.question_id
            )
            self.taken = 0
        quoted = quote_identifier(self.place.table)
        began = time.monotonic()
        reply = await self.wire.step(
            self.episode, f"QUERY: SELECT count(*) AS rows FROM {quoted}", self.taken
        )
        took = time.monotonic() - began
        self.taken += 1
        result = self.wire.ok(reply, "another episode's step").body["observation"]["result"]
        self.shown = self.shown or result
        expect(
            result and result == self.shown,
            f"another episode was shown {brief(result)}, not {brief(self.shown)}",
        )
        self.waits.append(took)
        return took

    async def allowed_s(self, median: float) -> float:
        """How high a median may be: `MAX_WAIT_S`, or three times the control's, which is measured
        if it is needed."""
        if median <= MAX_WAIT_S:
            return MAX_WAIT_S
        return max(
            MAX_WAIT_S,
            CONTROL_TIMES * statistics.median([await self.step() for _ in range(CONTROLS)]),
        )

    async def close(self) -> None:
        if self.episode is not None:
            await self.wire.end(self.episode)
            self.episode = None


async def find_place(wire: Wire) -> Place:
    """The question of seed 0 and the table of its database that has the most rows; `Failed` where
    none has two."""
    episode = await wire.begin(step_budget=2 * TABLES)
    best: tuple[int, str] = (0, "")
    tables = tables_of(episode.reset.observation.schema_info)[:TABLES]
    for number, table in enumerate(tables):
        quoted = quote_identifier(table)
        reply = wire.ok(
            await wire.step(episode, f"QUERY: SELECT count(*) FROM {quoted}", number), "a count"
        )
        rows = reply.body["observation"]["result"].partition("\n")[2]
        best = max(best, (int(rows), table)) if rows.isdecimal() else best
    expect(
        best[0] >= 2,
        f"no table of question {episode.question_id} has two rows; the hostile queries need one",
    )
    quoted = quote_identifier(best[1])
    reply = wire.ok(
        await wire.step(episode, f"QUERY: SELECT * FROM {quoted} LIMIT 1", len(tables)), "a row"
    )
    column = reply.body["observation"]["result"].partition("\n")[0].split(" | ")[0]
    await wire.end(episode)
    return Place(episode.question_id, best[1], column)


def checks(queries: Iterable[Hostile], after: Watch | None = None) -> list[Check]:
    """A check a query, and one of how long others waited in all. `after` is awaited after each
    query's first try."""
    state: dict[str, Bystander] = {}

    async def bystander(wire: Wire) -> Bystander:
        if "it" not in state:
            state["it"] = Bystander(wire, await find_place(wire))
        return state["it"]

    def check(query: Hostile) -> Check:
        async def body(wire: Wire) -> str:
            return await attack(wire, query, await bystander(wire), after)

        return Check("hostile", query.name, body)

    async def summary(wire: Wire) -> str:
        other = await bystander(wire)
        await other.step()
        waits = sorted(other.waits)
        at = {
            share: 1000 * waits[min(len(waits) - 1, int(share * len(waits)))]
            for share in (0.5, 0.95, 1.0)
        }
        allowed_ms = 1000 * await other.allowed_s(at[0.5] / 1000)
        await other.close()
        expect(
            at[0.5] <= allowed_ms,
            f"half of another episode's steps took more than {at[0.5]:.0f} ms",
        )
        return f"{len(waits)} steps: median {at[0.5]:.0f} ms, 95 % {at[0.95]:.0f} ms, longest {at[1.0]:.0f} ms"

    return [
        *map(check, queries),
        Check("hostile", "other episodes were answered all the while", summary),
    ]


async def attack(wire: Wire, query: Hostile, other: Bystander, after: Watch | None) -> str:
    """Send a query, see that its outcome is right and that `other` is answered. -> a remark."""
    median = 0.0
    for attempt in range(TRIES):
        file = str(Path(tempfile.gettempdir()) / f"conformance-{uuid.uuid4().hex}")
        episode = await wire.begin(step_budget=3, question_id=other.place.question_id)
        sql = query.statement(other.place.table, other.place.column, file)
        reply, waits = await watched(
            wire.step(episode, {"action_type": "QUERY", "argument": sql}, 0), other
        )
        if after is not None and attempt == 0:
            await after(query)
        outcome = judge(query, wire.ok(reply, "a hostile query"), file)
        expect(not Path(file).exists(), f"it made the file {file}")
        if not reply.body["done"]:
            seen = wire.ok(
                await wire.step(episode, "QUERY: SELECT 1 AS one", 1), "the step after it"
            ).body["observation"]
            expect(
                seen["result"] == "one\n1",
                f"the step after it was shown {brief(seen['result'] or seen['error'])}",
            )
        await wire.end(episode)
        median = statistics.median(waits)
        if median <= await other.allowed_s(median):
            return f"{outcome}, by {query.defence}; others {1000 * median:.0f} ms"
    raise Failed(f"other episodes waited {1000 * median:.0f} ms (median), {TRIES} times")


async def watched(request: Awaitable[Reply], other: Bystander) -> tuple[Reply, list[float]]:
    """The reply, and how long `other` waited for each of its steps meanwhile, one at least."""
    task = asyncio.ensure_future(request)
    waits: list[float] = []
    try:
        while not waits or not task.done():
            waits.append(await other.step())
        return await task, waits
    finally:
        task.cancel()


def judge(query: Hostile, reply: Reply, file: str) -> str:
    """The outcome of a hostile query; `Failed` unless it is one that was expected."""
    seen, code = reply.body["observation"], reply.body["info"]["error_code"]
    outcome = str(code) if seen["error"] is not None else SHOWN
    wanted = " or ".join(query.expect)
    expect(
        outcome in query.expect,
        f"must be {wanted}, not {outcome}: {brief(seen['error'] or seen['result'])}",
    )
    if outcome == SHOWN:
        expect(
            seen["result"] == query.shows,
            f"must show {brief(repr(query.shows))}, not {brief(repr(seen['result']))}",
        )
        return outcome
    expect(seen["result"] == "", f"an error must show nothing, not {brief(seen['result'])}")
    expect("\n" not in seen["error"], f"an error must be one line: {brief(seen['error'])}")
    leaked = _PATH.search(seen["error"].replace(file, ""))
    expect(leaked is None, f"an error must name no path: {brief(seen['error'])}")
    return outcome
