"""Plays the calls of the OpenAPI document's examples, in their order, over the shipped data.

`python -m tests.env_server.http.examples` writes the replies down, where replies change on purpose.
"""

import asyncio
import json
from typing import Any

import httpx

from env_server.app import create_app
from env_server.http.openapi import EXAMPLES
from env_server.settings import Settings

RESET = {"episode_id": "demo", "seed": 7, "difficulty": "easy", "step_budget": 5}
ANSWER = {"episode_id": "demo", "action": "ANSWER: 42", "step": 1}
ABRIDGED = {"schema", "metrics"}  # replies of which the document shows a part


def example_calls(table: str) -> dict[str, Any]:
    """Return the examples' requests; a table of the first episode's database is described."""
    return {
        "health": {},
        "ready": {},
        "databases": {"offset": 0, "limit": 2},
        "questions": {"split": "eval", "difficulty": "easy", "db_id": "airline",
                      "offset": 0, "limit": 2},
        "reset": RESET,
        "step": {"episode_id": "demo", "action": f"DESCRIBE: {table}", "step": 0},
        "state": {"episode_id": "demo"},
        "reset_batch": {"resets": [RESET | {"episode_id": "demo-2"}, {"question_id": "nothing"}]},
        "step_batch": {"steps": [ANSWER, {"episode_id": "nobody", "action": f"SAMPLE: {table}"}]},
        "verdict_totals": {},
        "verdicts": {"episode_id": "demo"},
        "close": {"episode_id": "demo"},
        "metadata": {},
        "schema": {},
        "metrics": {},
    }  # fmt: skip


async def play(calls: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return operation id -> request and reply, of `calls`, else of `example_calls`."""
    app = create_app(Settings(sql_workers=1))
    ways = {
        operation["operationId"]: (method, path, operation)
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    }
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://env") as http,
    ):
        if calls is None:
            first = (await http.post("/reset", json=RESET)).json()["observation"]["schema_info"]
            await http.delete("/episodes/demo")
            calls = example_calls(first.removeprefix("Tables: ").split(", ")[0])
        played = {}
        for name, given in calls.items():
            method, path, operation = ways[name]
            as_body = {"json": given} if "requestBody" in operation else {"params": given}
            if "{" in path:
                path, as_body = path.format(**given), {}
            reply = await http.request(method, path, **as_body)
            assert reply.status_code == 200, (name, reply.text)
            is_json = reply.headers["content-type"] == "application/json"
            played[name] = {"reply": reply.json() if is_json else reply.text}
            if given:
                played[name] = {"request": given} | played[name]
    return played


def abridge(played: dict[str, Any]) -> dict[str, Any]:
    """Shorten the replies of `ABRIDGED`."""
    metrics = played["metrics"]["reply"].splitlines()
    chosen = [line for line in metrics if "sqlenv_leases" in line]
    played["metrics"]["reply"] = "\n".join(chosen) + "\n"
    for schema in played["schema"]["reply"].values():
        schema.pop("$defs", None)
        plain = [(name, one) for name, one in schema["properties"].items() if "$ref" not in one]
        schema["properties"] = dict(plain[:1])
        schema["required"] = list(schema["properties"])
    return played


if __name__ == "__main__":
    text = json.dumps(abridge(asyncio.run(play())), indent=1, ensure_ascii=False)
    EXAMPLES.write_text(text + "\n", encoding="utf-8")
