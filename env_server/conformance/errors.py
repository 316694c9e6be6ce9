"""Errors: one JSON shape for every status, the right code, and nothing lost by one."""

from typing import Any

from env_server.conformance.check import Registry
from env_server.conformance.episodes import QUERY, refused
from env_server.conformance.wire import Failed, Reply, Wire, brief, expect, fresh_id

errors = Registry("errors")

NOT_ACTIONS: list[Any] = [
    "DROP TABLE x", "", "QUERY:", 5, None, ["QUERY", "SELECT 1"], {"action_type": "DROP", "argument": "x"},
    {"action_type": "QUERY"}, {"action_type": "QUERY", "argument": "  "},
    {"action_type": "QUERY", "argument": "SELECT 1", "more": 1}, "QUERY: " + "x" * 20_001,
]  # fmt: skip
NOT_REQUESTS = [
    b"{",
    b"\xff\xfe",
    b'{"episode_id": "\\ud800"}',
    b"[]",
    b"7",
    b"null",
    b"[" * 10_000,
    b'{"no": "such"}',
]
NOT_RESETS: list[tuple[dict[str, Any], str]] = [
    ({"episode_id": "two words"}, "episode_id"), ({"episode_id": "x" * 65}, "episode_id"),
    ({"episode_id": ".."}, "episode_id"), ({"step_budget": 0}, "step_budget"), ({"step_budget": 10_000}, "step_budget"),
    ({"difficulty": "extreme"}, "difficulty"), ({"actions": QUERY}, "actions"), ({"seed": "abc"}, "seed"),
]  # fmt: skip


def well_formed(reply: Reply, what: str) -> None:
    """One object of code, message and retryable, on one line, that names no file of the server's."""
    try:
        error = reply.error
    except Failed as failure:
        raise Failed(f"{what}: {failure}") from None
    for field, kind in (("code", str), ("message", str), ("retryable", bool)):
        expect(
            isinstance(error.get(field), kind),
            f"{what}: the error's {field} must be a {kind.__name__}",
        )
    expect(error["code"] and error["message"], f"{what}: an error must say what is wrong")
    expect(len(error["message"]) < 2_000, f"{what}: an error must not repeat what was sent")
    kind = reply.headers.get("content-type", "")
    expect(kind.startswith("application/json"), f"{what}: an error must be JSON, not {kind!r}")


@errors("what is no action is 400 invalid_action and costs nothing")
async def _actions(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    for action in NOT_ACTIONS:
        reply = await wire.step(episode, action, 0)
        refused(reply, 400, "invalid_action", f"the action {brief(action, 40)}")
        well_formed(reply, f"the action {brief(action, 40)}")
    reply = wire.ok(await wire.step(episode, QUERY, 0), "a step after refused ones")
    expect(reply.body["observation"]["step_count"] == 1, "refused actions must not be counted")
    await wire.end(episode)


@errors("what is no request is 422 invalid_request")
async def _requests(wire: Wire) -> None:
    for path in ("/reset", "/step", "/reset_batch", "/step_batch"):
        for body in NOT_REQUESTS:
            reply = await wire.send(
                "POST", path, content=body, headers={"content-type": "application/json"}
            )
            refused(reply, 422, "invalid_request", f"POST {path} with {body[:20]!r}")
            well_formed(reply, f"POST {path} with {body[:20]!r}")
    for fields, named in NOT_RESETS:
        error = refused(
            await wire.post("/reset", fields),
            422,
            "invalid_request",
            f"a reset with {brief(fields, 60)}",
        )
        expect(named in error["message"], f"the error for {brief(fields, 60)} must name {named}")


@errors("unknown episodes, questions and paths say so")
async def _unknown(wire: Wire) -> None:
    nobody = fresh_id()
    step = await wire.step(nobody, QUERY, 0)
    error = refused(step, 404, "unknown_episode", "a step of no episode")
    expect(
        "actions" in error["message"],
        "an unknown episode must say that a reset with its actions rebuilds it",
    )
    for reply, what in [
        (
            await wire.send("GET", "/state", params={"episode_id": nobody}),
            "the state of no episode",
        ),
        (await wire.send("DELETE", f"/episodes/{nobody}"), "closing no episode"),
    ]:
        refused(reply, 404, "unknown_episode", what)
        well_formed(reply, what)
    for fields in (
        {"question_id": "no such question"},
        {"db_id": "no such database"},
        {"split": "no such split"},
    ):
        refused(
            await wire.post("/reset", fields), 404, "unknown_question", f"a reset with {fields}"
        )
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/step", 405),
        ("GET", "/state", 422),
    ):
        reply = await wire.send(method, path)
        expect(reply.status == status, f"{method} {path} must be {status}, not {reply.status}")
        well_formed(reply, f"{method} {path}")


@errors("an error does not repeat a long text, nor name a path")
async def _long(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    for reply in (
        await wire.post("/reset", {"question_id": "/etc/passwd" * 900}),
        await wire.step("x" * 5_000, QUERY),
        await wire.step(episode, "NOTHING " + "x" * 10_000),
    ):
        well_formed(reply, "an error about a long text")
    reply = wire.ok(
        await wire.step(episode, "DESCRIBE: " + "x" * 15_000, 0), "DESCRIBE of a long name"
    )
    expect(
        len(reply.body["observation"]["error"] or "") < 6_000,
        "an error must not repeat a long name",
    )
    await wire.end(episode)


@errors("a batch answers as single requests do, in order, and a bad item fails alone")
async def _batch(wire: Wire) -> None:
    first, second = await wire.begin(step_budget=5), await wire.begin(step_budget=5)
    good = {"episode_id": first.episode_id, "action": QUERY, "step": 0}
    items = [
        good,
        5,
        {"episode_id": fresh_id(), "action": QUERY},
        {},
        good | {"action": "hm", "step": 1},
        good,
    ]
    batch = wire.ok(await wire.post("/step_batch", {"steps": items}), "a batch of steps").body[
        "results"
    ]
    codes = [item["error"]["code"] if "error" in item else "ok" for item in batch]
    wanted = ["ok", "invalid_request", "unknown_episode", "invalid_request", "invalid_action", "ok"]
    expect(codes == wanted, f"a batch's results must be {wanted}, not {codes}")
    single = await wire.step(second, QUERY, 0)
    expect(
        batch[0] == batch[5] == single.body,
        "a batch must answer as a single request does, repeats too",
    )
    resets: list[dict[str, Any]] = [
        {"episode_id": fresh_id(), "seed": 2},
        {"seed": "x"},
        {"episode_id": fresh_id(), "seed": 2},
    ]
    begun = wire.ok(await wire.post("/reset_batch", {"resets": resets}), "a batch of resets").body[
        "results"
    ]
    expect(
        [item.get("episode_id") for item in begun] == [item.get("episode_id") for item in resets]
        and begun[0]["observation"] == begun[2]["observation"],
        "a batch of resets must be answered in order",
    )
    await wire.end(first, second)
    for item in (resets[0], resets[2]):
        await wire.send("DELETE", f"/episodes/{item['episode_id']}")
