"""The hostile queries against a server: their outcomes, and that other episodes are answered.

While a hostile query is in flight, an episode on the same database takes one step after the other.
The median of their times may be 100 ms, or three times that of the same step without a hostile
query (the control), in one of six tries. A query that delays others shows in the median; a hiccup
of a busy machine does not.
"""

import asyncio
import re
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from shared.sqltext import quote_identifier
from tests.conformance.check import Check, in_time
from tests.conformance.corpus import SHOWN, HostileQuery
from tests.conformance.wire import Reply, Wire, brief, equal, expect

MAX_WAIT_S = 0.1  # of another episode's step, the median
TRIES = 6
CONTROLS = 5  # steps of a control
CONTROL_FACTOR = 3
BUDGET = 100  # steps of one of the other episodes
TABLES = 12  # considered in the search for the one with the most rows

_PATH = re.compile(r"(?:^|[\s'\"(=:])(?:/[\w.@+-]+){2,}|\b[A-Za-z]:\\|\.(?:sqlite|db)\b")


@dataclass
class Bystander:
    """An episode that keeps counting the rows of a table. `waits`: the seconds of every step."""

    wire: Wire
    question_id: str
    table: str
    column: str  # the first of the table
    rows: int
    episode_id: str = ""
    waits: list[float] = field(default_factory=list)

    @classmethod
    async def beside(cls, wire: Wire) -> "Bystander":
        """Return one on the largest table of seed 0's question, with episodes of its own."""
        episode = await wire.start(step_budget=2 * TABLES)
        tables = episode.observation.tables[:TABLES]
        counts = [f"QUERY: SELECT count(*) FROM {quote_identifier(table)}" for table in tables]
        results = [reply.seen["result"] for reply in await wire.steps(episode, counts)]
        # of a table whose name is denied the result is empty
        rows = [int(result.partition("\n")[2] or 0) for result in results]
        most, table = max(zip(rows, tables, strict=True))
        question = episode.info.question_id
        expect(most >= 2, f"hostile queries need a table of two rows; {question} has none")
        action = f"QUERY: SELECT * FROM {quote_identifier(table)} LIMIT 1"
        reply = (await wire.step(episode, action, len(tables))).ok("a row")
        column = reply.seen["result"].partition("\n")[0].split(" | ")[0]
        return cls(Wire(wire.client), question, table, column, most)

    async def step(self) -> float:
        """Take one step, with the reset that it may need, and return its seconds."""
        number = len(self.waits) % BUDGET
        action = f"QUERY: SELECT count(*) AS rows FROM {quote_identifier(self.table)}"
        start = time.monotonic()
        if number == 0:
            episode = await self.wire.start(step_budget=BUDGET, question_id=self.question_id)
            self.episode_id = episode.episode_id
        reply = await self.wire.step(self.episode_id, action, number)
        self.waits.append(time.monotonic() - start)
        result = reply.ok("another episode's step").seen["result"]
        equal(result, f"rows\n{self.rows}", "what another episode is shown")
        return self.waits[-1]

    async def watch(self, request: Awaitable[Reply]) -> tuple[Reply, list[float]]:
        """Return the reply, and the wait of each step meanwhile, at least one."""
        task = asyncio.ensure_future(request)
        waits: list[float] = []
        try:
            while not waits or not task.done():
                waits.append(await self.step())
            return await task, waits
        finally:
            task.cancel()

    async def allowed_s(self) -> float:
        """Return how high a median may be at this moment."""
        control = statistics.median([await self.step() for _ in range(CONTROLS)])
        return max(MAX_WAIT_S, CONTROL_FACTOR * control)


def checks(queries: Iterable[HostileQuery]) -> list[Check]:
    """Return one check per query, and one of how long others waited in total."""
    bystanders: list[Bystander] = []

    async def bystander(wire: Wire) -> Bystander:
        if not bystanders:  # with episodes that outlive a check
            bystanders.append(await Bystander.beside(wire))
        return bystanders[0]

    def check(query: HostileQuery) -> Check:
        async def body(wire: Wire) -> None:
            await attack(wire, query, await bystander(wire))

        return Check("hostile", query.name, body)

    async def summary(wire: Wire) -> str:
        other = await bystander(wire)
        allowed, median = await other.allowed_s(), statistics.median(other.waits)
        await other.wire.end_all()
        times = f"median {1000 * median:.0f} ms, longest {1000 * max(other.waits):.0f} ms"
        expect(median <= allowed, f"another episode's steps took {times}")
        return f"{len(other.waits)} steps: {times}"

    whole = Check("hostile", "other episodes were answered all the time", summary)
    return [*map(check, queries), whole]


async def attack(wire: Wire, query: HostileQuery, other: Bystander) -> None:
    """Send a query; check its outcome and that `other` is answered."""

    async def measure() -> tuple[float, float]:
        file = Path(tempfile.gettempdir()) / f"conformance-{uuid.uuid4().hex}"
        episode = await wire.start(step_budget=3, question_id=other.question_id)
        sql = query.statement(other.table, other.column, str(file))
        action = {"action_type": "QUERY", "argument": sql}
        reply, waits = await other.watch(wire.step(episode, action))
        judge(query, reply.ok("a hostile query"), str(file))
        expect(not file.exists(), f"it created the file {file}")
        if not reply.body["done"]:
            reply = (await wire.step(episode, "QUERY: SELECT 1 AS one", 1)).ok("the next step")
            equal(reply.seen["result"], "one\n1", "what the step after it is shown")
        return statistics.median(waits), await other.allowed_s()

    await in_time(TRIES, measure, "half of other episodes' steps")


def judge(query: HostileQuery, reply: Reply, file: str) -> None:
    """Check for one of the expected outcomes, and that an error shows nothing."""
    seen, code = reply.seen, reply.body["info"]["error_code"]
    outcome = str(code) if seen["error"] is not None else SHOWN
    wanted, shown = " or ".join(query.expect), brief(seen["error"] or seen["result"])
    expect(outcome in query.expect, f"must be {wanted}, not {outcome}: {shown}")
    if outcome == SHOWN:
        equal(seen["result"], query.shows, "the result")
        return
    equal(seen["result"], "", "the result beside an error")
    expect("\n" not in seen["error"], f"an error must be one line: {brief(seen['error'])}")
    leaked = _PATH.search(seen["error"].replace(file, ""))
    expect(leaked is None, f"an error must contain no path: {brief(seen['error'])}")
