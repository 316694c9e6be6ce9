"""Fairness: other clients are answered, whatever one client asks for, stays or leaves.

While an attack is under way, another connection starts episode after episode. The reset and first
step of each may take a second, or three times what they take without an attack, in one of three
tries.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from env_server.conformance.check import Registry, in_time
from env_server.conformance.episodes import ENDLESS, QUERY
from env_server.conformance.wire import Wire

fairness = Registry("fairness")

MAX_WAIT_S = 1.0  # of another client's step
CONTROL_FACTOR = 3
TRIES = 3
BEGIN_S = 0.3  # for an attack to arrive
ATTACK_S = 3.0
CONTROLS = 5  # steps of a control
SETTLE_S = 2.0  # after its client left, work may go on for so much longer than a query alone

Requests = list[tuple[str, Any]]  # path and body
REPLAYS = {"resets": [{"seed": 0, "step_budget": 100, "actions": [ENDLESS] * 100}] * 8}
# name -> the requests to send at once, for 24 steps of different episodes
ATTACKS: dict[str, Callable[[list[Any]], Requests]] = {
    "24 endless queries in one batch": lambda steps: [("/step_batch", {"steps": steps})],
    "800 endless actions to replay": lambda steps: [("/reset_batch", REPLAYS)],
    "24 connections with an endless query each": lambda steps: [("/step", one) for one in steps],
}


@asynccontextmanager
async def _attacked(wire: Wire, name: str) -> AsyncIterator[None]:
    """Attack, and at the end leave: close the connections."""
    started = [await wire.start() for _ in range(24)]
    steps = [{"episode_id": one.episode_id, "action": ENDLESS, "step": 0} for one in started]
    tasks = [asyncio.create_task(wire.post(*request)) for request in ATTACKS[name](steps)]
    try:
        await asyncio.sleep(BEGIN_S)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _step_s(wire: Wire, action: str) -> float:
    """Return the seconds of a reset and a step."""
    began = time.monotonic()
    episode = await wire.start(step_budget=2)
    (await wire.step(episode, action)).ok("another client's step")
    took = time.monotonic() - began
    await wire.end(episode.episode_id)  # hundreds of them would fill the key's quota
    return took


async def _beside(name: str, wire: Wire) -> None:
    # one key is one client; without keys each connection is one
    other = wire.second if "authorization" in wire.client.headers else wire

    async def measure() -> tuple[float, float]:
        control = max([await _step_s(other, QUERY) for _ in range(CONTROLS)])
        allowed = max(MAX_WAIT_S, CONTROL_FACTOR * control)
        longest, end = 0.0, time.monotonic() + BEGIN_S + ATTACK_S
        async with _attacked(wire, name):
            while time.monotonic() < end and longest <= allowed:
                longest = max(longest, await _step_s(other, QUERY))
        return longest, allowed

    await in_time(TRIES, measure, "a step")


async def _after(name: str, wire: Wire) -> None:
    async def measure() -> tuple[float, float]:
        alone = await _step_s(wire, ENDLESS)
        async with _attacked(wire, name):
            pass
        began = time.monotonic()
        await asyncio.gather(*(_step_s(wire, ENDLESS) for _ in range(2)))
        return time.monotonic() - began, CONTROL_FACTOR * alone + SETTLE_S

    await in_time(TRIES, measure, "two endless queries")


for _name in ATTACKS:
    fairness(f"another client's steps take less than a second beside {_name}")(
        partial(_beside, _name)
    )
    fairness(f"the work of a client that leaves ends: {_name}")(partial(_after, _name))
