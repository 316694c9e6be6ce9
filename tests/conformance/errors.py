"""Errors: one JSON shape for every status, the right code, nothing lost by one; bounds in bytes."""

from typing import Any

from shared.errors import (
    ActionParseError,
    EpisodeTooLarge,
    InvalidRequest,
    UnknownEpisode,
    UnknownQuestion,
)
from tests.conformance.check import Registry
from tests.conformance.episodes import QUERY
from tests.conformance.wire import Reply, Wire, brief, equal, expect, fresh_id, options_of

errors = Registry("errors")
sizes = Registry("bytes")

LONG = "DESCRIBE: " + "x" * 15_000
MOST_BODY_BYTES = 1_500_000
MOST_STEPS = 80  # LONG that often is 1.2 MB

INVALID_ACTIONS: list[Any] = [
    "DROP TABLE x", "", "QUERY:", 5, None, ["QUERY", "SELECT 1"], {"action_type": "QUERY"},
    {"action_type": "DROP", "argument": "x"}, {"action_type": "QUERY", "argument": "  "},
    {"action_type": "QUERY", "argument": "SELECT 1", "more": 1}, "QUERY: " + "x" * 20_001,
]  # fmt: skip
INVALID_BODIES = [
    b"{", b"\xff\xfe", b'{"episode_id": "\\ud800"}', b"[]", b"7", b"null", b"[" * 10_000,
    b'{"no": "such"}',
]  # fmt: skip
INVALID_RESETS: list[tuple[str, Any]] = [
    ("episode_id", "two words"), ("episode_id", "x" * 65), ("episode_id", ".."), ("step_budget", 0),
    ("step_budget", 10_000), ("difficulty", "extreme"), ("actions", QUERY), ("seed", "abc"),
]  # fmt: skip
UNKNOWN = {"question_id": "no question", "db_id": "no database", "split": "no split"}


@errors("an invalid action is 400 invalid_action and costs nothing")
async def _actions(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    for action in INVALID_ACTIONS:
        reply = await wire.step(episode, action)
        reply.refused(ActionParseError, f"the action {brief(action, 40)}")
    reply = (await wire.step(episode, QUERY)).ok("a step after refused ones")
    equal(reply.seen["step_count"], 1, "the count of steps, without refused ones,")


@errors("an invalid request is 422 invalid_request")
async def _requests(wire: Wire) -> None:
    headers = {"content-type": "application/json"}
    for path in ("/reset", "/step", "/reset_batch", "/step_batch"):
        for body in INVALID_BODIES:
            reply = await wire.send("POST", path, content=body, headers=headers)
            reply.refused(InvalidRequest, f"POST {path} with {body[:20]!r}")
    for field, value in INVALID_RESETS:
        request = f"a reset with {field} {brief(value, 60)}"
        message = (await wire.post("/reset", {field: value})).refused(InvalidRequest, request)
        expect(field in message, f"the error for {request} must name {field}")


@errors("unknown episodes, questions and paths are named")
async def _unknown(wire: Wire) -> None:
    nobody = fresh_id()
    step = await wire.step(nobody, QUERY, 0)
    message = step.refused(UnknownEpisode, "a step of an unknown episode")
    expect("actions" in message, "the error must name the reset with the actions")
    for method, path in (("GET", f"/state?episode_id={nobody}"), ("DELETE", f"/episodes/{nobody}")):
        (await wire.send(method, path)).refused(UnknownEpisode, f"{method} of an unknown episode")
    for field, value in UNKNOWN.items():
        reply = await wire.post("/reset", {field: value})
        reply.refused(UnknownQuestion, f"a reset with {field} {value!r}")
    for path, status in (("/nothing", 404), ("/step", 405), ("/state", 422)):
        reply = await wire.send("GET", path)
        equal(reply.status, status, f"the status of GET {path}")
        reply.error(f"GET {path}")


@errors("an error neither repeats a long text nor contains a path")
async def _long(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    for reply in (
        await wire.post("/reset", {"question_id": "/etc/passwd" * 900}),
        await wire.step("x" * 5_000, QUERY),
        await wire.step(episode, "NOTHING " + "x" * 10_000),
    ):
        reply.error("an error about a long text")
    reply = (await wire.step(episode, LONG)).ok("a long DESCRIBE")
    expect(len(reply.seen["error"] or "") < 6_000, "an error must not repeat a long name")


@errors("a batch answers like single requests, in order, and an invalid item fails alone")
async def _batch(wire: Wire) -> None:
    first, second = await wire.start(step_budget=5), await wire.start(step_budget=5)
    good = {"episode_id": first.episode_id, "action": QUERY, "step": 0}
    unknown = {"episode_id": fresh_id(), "action": QUERY}
    items = [good, 5, unknown, {}, good | {"action": "hm", "step": 1}, good]
    reply = (await wire.post("/step_batch", {"steps": items})).ok("a batch of steps")
    results = reply.body["results"]
    codes = [item["error"]["code"] if "error" in item else "ok" for item in results]
    wanted = ["ok", "invalid_request", "unknown_episode", "invalid_request", "invalid_action", "ok"]
    equal(codes, wanted, "a batch's results")
    single = await wire.step(second, QUERY, 0)
    expect(results[0] == results[5] == single.body, "a batch must answer like single requests")
    resets: list[dict[str, Any]] = [{"episode_id": fresh_id(), "seed": 2} for _ in range(2)]
    resets.insert(1, {"seed": "x"})
    reply = (await wire.post("/reset_batch", {"resets": resets})).ok("a batch of resets")
    started = reply.body["results"]
    ids = [[item.get("episode_id") for item in batch] for batch in (started, resets)]
    ordered = ids[0] == ids[1] and started[0]["observation"] == started[2]["observation"]
    expect(ordered, "a batch of resets must be answered in order")
    for item in (resets[0], resets[2]):
        await wire.end(item["episode_id"])


# -- bounds in bytes


@sizes("an argument is bounded in bytes, however few characters it has")
async def _argument(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    reply = await wire.step(episode, "ANSWER: " + "\N{GRINNING FACE}" * 5_001)
    reply.refused(ActionParseError, "an action of 5,001 characters with 20,004 bytes")


@sizes("an episode's actions are bounded, and one beyond the bound is not counted")
async def _episode(wire: Wire) -> None:
    episode = await wire.start(step_budget=100)
    for number in range(MOST_STEPS + 1):
        reply = await wire.step(episode, LONG, number)
        if reply.status != 200:
            break
    _too_large(reply, f"step {number} of {len(LONG):,} bytes each")
    state = await wire.get(f"/state?episode_id={episode.episode_id}")
    equal(state.body["step_count"], number, "the count of steps, without the refused one,")
    (await wire.step(episode, QUERY, number)).ok("a shorter action instead")
    body = {"episode_id": fresh_id(), **options_of(episode), "actions": [LONG] * (number + 1)}
    _too_large(await wire.post("/reset", body), "a reset with all these actions")


def _too_large(reply: Reply, request: str) -> None:
    message = reply.refused(EpisodeTooLarge, request)
    expect(any(char.isdigit() for char in message), "the error must state the limit")


@sizes("the reply to a batch is bounded, however often an item is repeated")
async def _repeats(wire: Wire) -> None:
    # a request of 7.7 KB that repeated one answered step got 239 MB
    episode = await wire.start(step_budget=100)
    await wire.steps(episode, [LONG] * 15)
    step = {"episode_id": episode.episode_id, "action": LONG, "step": 14}
    steps = [step] * (MOST_BODY_BYTES // len(LONG))
    reply = (await wire.post("/step_batch", {"steps": steps})).ok("a batch of repeats")
    first, *others = reply.body["results"]
    expect("error" not in first, f"the first item must be answered, not {reply.text}")
    left_out = [result["error"] for result in others if "error" in result]
    codes = {(error["code"], error["retryable"]) for error in left_out}
    size = f"{len(reply.content):,} bytes for a request of {len(steps) * len(LONG):,}"
    equal(codes, {("reply_too_large", True)}, f"{size}: the errors of items left out")
