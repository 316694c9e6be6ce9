"""Fairness: other clients are answered, whatever one client asks for, stays or leaves.

While an attack is under way, another connection starts episode after episode. The reset and first
step of each may take a second in all, or three times what they take without an attack (the control,
measured at that moment). An attack that is survived once in three tries passes: a server that
delays others does so every time, a busy machine does not.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from env_server.conformance.check import Registry
from env_server.conformance.episodes import ENDLESS, QUERY
from env_server.conformance.wire import Failed, Wire, fresh_id
from shared.errors import ServerUnreachable

fairness = Registry("fairness")

MAX_WAIT_S = 1.0  # of another client's step
CONTROL_FACTOR = 3
TRIES = 3
BEGIN_S = 0.3  # for an attack to arrive
ATTACK_S = 3.0
CONTROLS = 5  # steps of a control
SETTLE_S = 2.0  # after its client left, work may go on for so much longer than a query alone

Attack = Callable[[Wire], Awaitable[list[asyncio.Task[Any]]]]


async def _one_batch(wire: Wire) -> list[asyncio.Task[Any]]:
    """Send 24 endless queries in one batch."""
    ids = await _reset(wire, 24)
    steps = [{"episode_id": name, "action": ENDLESS, "step": 0} for name in ids]
    return [_sent(wire, "/step_batch", {"steps": steps})]


async def _replays(wire: Wire) -> list[asyncio.Task[Any]]:
    """Send 8 resets that replay 100 endless actions each."""
    resets = [
        {"episode_id": fresh_id(), "seed": 0, "step_budget": 100, "actions": [ENDLESS] * 100}
        for _ in range(8)
    ]
    return [_sent(wire, "/reset_batch", {"resets": resets})]


async def _connections(wire: Wire) -> list[asyncio.Task[Any]]:
    """Send an endless query on each of 24 connections."""
    return [
        _sent(wire, "/step", {"episode_id": name, "action": ENDLESS, "step": 0})
        for name in await _reset(wire, 24)
    ]


ATTACKS: dict[str, Attack] = {
    "24 endless queries in one batch": _one_batch,
    "800 endless actions to replay": _replays,
    "24 connections with an endless query each": _connections,
}


async def _reset(wire: Wire, count: int) -> list[str]:
    resets = [{"episode_id": fresh_id(), "seed": 0} for _ in range(count)]
    reply = wire.ok(await wire.post("/reset_batch", {"resets": resets}), "a batch of resets")
    return [result["episode_id"] for result in reply.body["results"]]


def _sent(wire: Wire, path: str, body: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(wire.post(path, body))


@asynccontextmanager
async def _attacked(wire: Wire, attack: Attack) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Attack; yields what makes the attacker leave, which it also does at the end."""
    requests = await attack(wire)

    async def leave() -> None:
        for request in requests:
            request.cancel()  # closes its connection
        await asyncio.gather(*requests, return_exceptions=True)

    try:
        await asyncio.sleep(BEGIN_S)
        yield leave
    finally:
        await leave()


async def _step_s(wire: Wire, action: str = QUERY) -> float:
    """Return the seconds of a reset and a step, with the second key if there is one."""
    wire = wire.second or wire
    began = time.monotonic()
    episode = await wire.start(step_budget=2)
    wire.ok(await wire.step(episode, action, 0), "another client's step")
    took = time.monotonic() - began
    await wire.end(episode)  # hundreds of them would fill the key's quota
    return took


async def _longest_s(wire: Wire, attack: Attack) -> tuple[float, float]:
    """Return the longest wait of another client's step, and how long it may be."""
    control = max([await _step_s(wire) for _ in range(CONTROLS)])
    longest, end = 0.0, time.monotonic() + BEGIN_S + ATTACK_S
    async with _attacked(wire, attack):
        while time.monotonic() < end:
            try:
                longest = max(longest, await _step_s(wire))
            except ServerUnreachable:
                longest = float("inf")
            if longest > max(MAX_WAIT_S, CONTROL_FACTOR * control):
                break
    return longest, max(MAX_WAIT_S, CONTROL_FACTOR * control)


async def _beside(attack: Attack, wire: Wire) -> str:
    longest = allowed = 0.0
    for _ in range(TRIES):
        longest, allowed = await _longest_s(wire, attack)
        if longest <= allowed:
            return f"longest {1000 * longest:,.0f} ms"
    raise Failed(f"a step took {longest:.1f} s, at most {allowed:.1f} s are allowed")


async def _after(attack: Attack, wire: Wire) -> str:
    took = allowed = 0.0
    for _ in range(TRIES):
        alone = await _step_s(wire, ENDLESS)
        async with _attacked(wire, attack) as leave:
            await leave()
            began = time.monotonic()
            await asyncio.gather(*(_step_s(wire, ENDLESS) for _ in range(2)))
            took, allowed = time.monotonic() - began, CONTROL_FACTOR * alone + SETTLE_S
        if took <= allowed:
            return f"two endless queries took {took:.1f} s, one alone {alone:.1f} s"
    raise Failed(f"two endless queries took {took:.1f} s, at most {allowed:.1f} s are allowed")


for _name, _attack in ATTACKS.items():
    fairness(f"another client's steps take less than a second beside {_name}")(
        partial(_beside, _attack)
    )
    fairness(f"the work of a client that leaves ends: {_name}")(partial(_after, _attack))
