"""Bodies that are expensive to parse: refused without delaying others, and not repeated.

While a body is in flight another episode takes one step after the other. The longest of these must
be 250 ms or less, or three times the longest beside a harmless body of the same size, in one of six
tries: a server that stalls does so every time, a hiccup of a busy machine does not repeat. (The
bodies took 0.5 to 2 s of CPU before they were refused early, and 50 ms after.)
"""

import json
from collections.abc import Callable
from typing import Any

from env_server.conformance.check import Registry
from env_server.conformance.errors import check_shape
from env_server.conformance.jail import CONTROL_FACTOR, TRIES, Bystander, find_target, watched
from env_server.conformance.wire import Failed, Reply, Wire, expect, fresh_id

parsing = Registry("parsing")

BYTES = 2_000_000  # of a hostile body; a server may refuse bodies of this size altogether
STATUSES = (400, 413, 422)
HARMLESS = b'{"seed":[1' + b",1" * (BYTES // 2 - 6) + b"]}"
MAX_WAIT_S = 0.25


def filled(before: bytes, item: Callable[[int], bytes], after: bytes) -> bytes:
    """Return a body of `BYTES`: as many items, separated by commas, as fit."""
    items: list[bytes] = []
    size = len(before) + len(after)
    while size < BYTES:
        items.append(item(len(items)))
        size += len(items[-1]) + 1
    return before + b",".join(items) + after


def key(number: int) -> bytes:
    """Return an unknown key with its value."""
    return b'"k%x":1' % number


OPEN_ACTION = b'{"action_type":"QUERY","argument":"SELECT 1",'  # for more keys
KEYS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "of a reset": ("/reset", lambda: filled(b"{", key, b"}")),
    "of an action": (
        "/step",
        lambda: filled(b'{"episode_id":"e","action":' + OPEN_ACTION, key, b"}}"),
    ),
    "of a replayed action": ("/reset", lambda: filled(b'{"actions":[' + OPEN_ACTION, key, b"}]}")),
    "of a batch's item": ("/step_batch", lambda: filled(b'{"steps":[{', key, b"}]}")),
}
NESTED = b"[" * 150 + b"]" * 150
SHAPES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nested arrays": ("/step_batch", lambda: filled(b'{"steps":[', lambda n: NESTED, b"]}")),
    "empty arrays": ("/step_batch", lambda: filled(b'{"steps":[', lambda n: b"[]", b"]}")),
    "long numbers": ("/reset", lambda: filled(b'{"seed":[', lambda n: b"9" * 4_000, b"]}")),
    "one filter again and again": (
        "/reset",
        lambda: filled(b'{"difficulty":[', lambda n: b'"easy"', b"]}"),
    ),
    "one key again and again": ("/reset", lambda: filled(b"{", lambda n: b'"seed":"x"', b"}")),
    "escaped text": ("/reset", lambda: b'{"seed":"' + rb"\ud83d\ude00" * 160_000 + b'"}'),
    "deep nesting": ("/step", lambda: b"[" * BYTES),
}


async def refused_beside(wire: Wire, bodies: dict[str, tuple[str, Callable[[], bytes]]]) -> str:
    """Check that each body is refused and no step beside it waits. Returns a remark."""
    other = Bystander(Wire(wire.client), await find_target(wire))
    await other.step()
    longest = 0.0
    try:
        for name, (path, make) in bodies.items():
            longest = max(longest, await _longest_wait(wire, name, path, make(), other))
    finally:
        await other.wire.end_all()
    return f"another episode's steps took at most {1000 * longest:.0f} ms"


def check_refused(reply: Reply, name: str) -> None:
    """Check for an error, or for a batch's reply whose only item is one."""
    if reply.status == 200:
        results = reply.body.get("results", [])
        expect(len(results) == 1, f"{name} must be refused, not answered with {len(results)} items")
        reply = Reply(422, json.dumps(results[0]).encode(), results[0], reply.headers)
    expect(reply.status in STATUSES, f"{name} must be refused, not answered {reply.status}")
    check_shape(reply, name)


async def _longest_wait(wire: Wire, name: str, path: str, body: bytes, other: Bystander) -> float:
    async def send(content: bytes) -> tuple[Reply, float]:
        options = {"content": content, "headers": {"content-type": "application/json"}}
        reply, waits = await watched(wire.send("POST", path, **options), other)
        return reply, max(waits)

    found: list[float] = []
    for _ in range(TRIES):
        reply, wait = await send(body)
        check_refused(reply, name)
        if wait <= MAX_WAIT_S or wait <= CONTROL_FACTOR * (await send(HARMLESS))[1]:
            return wait
        found.append(wait)
    times = f"{1000 * min(found):.0f} to {1000 * max(found):.0f} ms"
    raise Failed(f"{name}: a step of another episode waited {times} in {TRIES} tries")


def _keys_check(name: str) -> None:
    @parsing(f"a hundred thousand unknown keys {name} delay nobody")
    async def _check(wire: Wire) -> str:
        return await refused_beside(wire, {f"unknown keys {name}": KEYS[name]})


for _name in KEYS:
    _keys_check(_name)


@parsing("bodies of other shapes delay nobody")
async def _shapes(wire: Wire) -> str:
    return await refused_beside(wire, SHAPES)


@parsing("an error does not repeat a long name")
async def _long_name(wire: Wire) -> None:
    name = "n" * 100_000
    bodies: list[tuple[str, Any]] = [
        ("/reset", {name: 1}),
        ("/step", {"episode_id": fresh_id(), "action": "QUERY: SELECT 1", name: 1}),
        ("/step", {"episode_id": fresh_id(), "action": {"action_type": "QUERY", name: 1}}),
    ]
    for path, body in bodies:
        reply = await wire.post(path, body)
        check_shape(reply, f"a long name in POST {path}")
    reply = wire.ok(
        await wire.post("/step_batch", {"steps": [{name: 1}]}), "a long name in a batch"
    )
    size = len(json.dumps(reply.body["results"][0]))
    expect(size < 4_000, f"an item's error must not repeat a long name, in {size:,} bytes")


@parsing("a body of 3 MiB is 413 on every path")
async def _large(wire: Wire) -> None:
    for path in ("/reset", "/step", "/reset_batch", "/step_batch"):
        reply = await wire.send("POST", path, content=b" " * (3 * 1024 * 1024) + b"{}")
        expect(reply.status == 413, f"POST {path} with 3 MiB must be 413, not {reply.status}")
        check_shape(reply, f"POST {path} with 3 MiB")
