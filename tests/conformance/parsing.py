"""Bodies that are expensive to parse: refused without delaying others, and not repeated.

While a body is in flight another episode takes one step after the other. The longest of these must
be 250 ms or less, or three times the longest beside a harmless body of the same size, in one of six
tries. (The bodies took 0.5 to 2 s of CPU before they were refused early, and 50 ms after.)
"""

import json
from functools import partial
from typing import Any

import httpx

from tests.conformance.check import Registry, in_time
from tests.conformance.jail import CONTROL_FACTOR, TRIES, Bystander
from tests.conformance.wire import Reply, Wire, equal, expect, fresh_id

parsing = Registry("parsing")

BYTES = 2_000_000  # of a hostile body; a server may refuse bodies of this size altogether
STATUSES = (400, 413, 422)
MAX_WAIT_S = 0.25

# path, and the body: the start, the item that is repeated, the end
Body = tuple[str, bytes, bytes, bytes]
HARMLESS: Body = ("/reset", b'{"seed":[', b"1", b"]}")
KEY = b'"k%06x":1'
OPEN_ACTION = b'{"action_type":"QUERY","argument":"SELECT 1",'  # for more keys
KEYS: dict[str, Body] = {
    "of a reset": ("/reset", b"{", KEY, b"}"),
    "of an action": ("/step", b'{"episode_id":"e","action":' + OPEN_ACTION, KEY, b"}}"),
    "of a replayed action": ("/reset", b'{"actions":[' + OPEN_ACTION, KEY, b"}]}"),
    "of a batch's item": ("/step_batch", b'{"steps":[{', KEY, b"}]}"),
}
SHAPES: dict[str, Body] = {
    "nested arrays": ("/step_batch", b'{"steps":[', b"[" * 150 + b"]" * 150, b"]}"),
    "empty arrays": ("/step_batch", b'{"steps":[', b"[]", b"]}"),
    "long numbers": ("/reset", b'{"seed":[', b"9" * 4_000, b"]}"),
    "one filter again and again": ("/reset", b'{"difficulty":[', b'"easy"', b"]}"),
    "one key again and again": ("/reset", b"{", b'"seed":"x"', b"}"),
    "escaped text": ("/reset", b'{"seed":"', rb"\ud83d\ude00", b'"}'),
    "deep nesting": ("/step", b"[" * BYTES, b"", b""),
}


def filled(start: bytes, item: bytes, end: bytes) -> bytes:
    """Return a body of about `BYTES`: as many items, separated by commas, as fit."""
    numbered = b"%" in item
    length = len(item % 0 if numbered else item) + 1
    count = max(0, BYTES - len(start)) // length
    return start + b",".join(item % n if numbered else item for n in range(count)) + end


async def delay_nobody(bodies: dict[str, Body], wire: Wire) -> None:
    """Check that each body is refused and no step beside it waits."""
    other = await Bystander.beside(wire)
    for name, body in bodies.items():
        measure = partial(_measure, wire, other, name, body)
        await in_time(TRIES, measure, f"a step of another episode beside {name}")


async def _measure(wire: Wire, other: Bystander, name: str, body: Body) -> tuple[float, float]:
    reply, took = await _send(wire, other, body)
    check_refused(reply, name)
    _, control = await _send(wire, other, HARMLESS)
    return took, max(MAX_WAIT_S, CONTROL_FACTOR * control)


async def _send(wire: Wire, other: Bystander, body: Body) -> tuple[Reply, float]:
    """Return the reply, and the longest step of `other` meanwhile in seconds."""
    path, *parts = body
    headers = {"content-type": "application/json"}
    reply, waits = await other.watch(
        wire.send("POST", path, content=filled(*parts), headers=headers)
    )
    return reply, max(waits)


def check_refused(reply: Reply, name: str) -> None:
    """Check for an error, or for a batch's reply whose only item is one."""
    if reply.status == 200:
        results = reply.body["results"]
        equal(len(results), 1, f"the number of items in the reply to {name}")
        reply = Reply(httpx.Response(422, json=results[0]))
    expect(reply.status in STATUSES, f"{name} must be refused, not answered {reply.status}")
    reply.error(name)


for _name, _body in KEYS.items():
    parsing(f"a hundred thousand unknown keys {_name} delay nobody")(
        partial(delay_nobody, {f"unknown keys {_name}": _body})
    )
parsing("bodies of other shapes delay nobody")(partial(delay_nobody, SHAPES))


@parsing("an error does not repeat a long name")
async def _long_name(wire: Wire) -> None:
    name = "n" * 100_000
    bodies: list[tuple[str, Any]] = [
        ("/reset", {name: 1}),
        ("/step", {"episode_id": fresh_id(), "action": "QUERY: SELECT 1", name: 1}),
        ("/step", {"episode_id": fresh_id(), "action": {"action_type": "QUERY", name: 1}}),
    ]
    for path, body in bodies:
        (await wire.post(path, body)).error(f"a long name in POST {path}")
    reply = (await wire.post("/step_batch", {"steps": [{name: 1}]})).ok("a long name in a batch")
    size = len(json.dumps(reply.body["results"][0]))
    expect(size < 4_000, f"an item's error must not repeat a long name, in {size:,} bytes")


@parsing("a body of 3 MiB is 413 on every path")
async def _large(wire: Wire) -> None:
    for path in ("/reset", "/step", "/reset_batch", "/step_batch"):
        reply = await wire.send("POST", path, content=b" " * (3 * 1024 * 1024) + b"{}")
        equal(reply.status, 413, f"the status of POST {path} with 3 MiB")
        reply.error(f"POST {path} with 3 MiB")
