"""What is refused before pydantic sees it, and what an error repeats."""

import json
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from env_server.http.requests import MAX_BRACKETS, MAX_STEP_BYTES, parse, parse_item
from shared.actions import MAX_ARGUMENT_BYTES
from shared.errors import InvalidRequest, SQLEnvError
from shared.models import ResetRequest, StepBatchRequest, StepRequest

SOME_ACTION = "'TYPE: argument' with TYPE one of DESCRIBE, SAMPLE, QUERY, ANSWER, or an object of"


@pytest.mark.parametrize(
    ("model", "value", "message"),
    [
        (ResetRequest, {"step_budget": 0},
         "step_budget: Input should be greater than or equal to 1 (got 0)"),
        (ResetRequest, {"step_budget": 10**50},
         "step_budget: Input should be less than or equal to 100 (got a number of 19 or more "
         "digits)"),
        (ResetRequest, {"difficulty": ["easy", "hm"]},
         "difficulty.1: Input should be 'easy', 'medium' or 'hard' (got 'hm')"),
        (ResetRequest, {"rewards": "x", "question_id": 7},
         "question_id: Input should be a valid string (got 7); "
         "rewards: Input should be 'step' or 'end' (got 'x')"),
        (StepRequest, {"episode_id.\n": 1, "action": "ANSWER: 1"},
         "episode_id: Field required; episode_id.\\n: there is no such field; "
         "expected only episode_id, action, step"),
        (StepBatchRequest, [], "body: a list of 0 is wrong; expected an object"),
        (StepRequest, {"episode_id": "e", "action": {"action_type": "DROP", "argument": "x"}},
         "action is not an action (action_type: Input should be 'DESCRIBE', 'SAMPLE', 'QUERY' or "
         f"'ANSWER' (got 'DROP')); expected {SOME_ACTION} action_type and argument"),
        (ResetRequest, {"actions": [{"action_type": "QUERY", "argument": "é" * 15_000}]},
         f"actions.0 is not an action (argument: over 20,000 bytes (got '{'é' * 40}'...)); "
         f"expected {SOME_ACTION} action_type and argument"),
    ],
)  # fmt: skip
def test_an_error_says_which_field_what_is_wrong_and_what_is_expected(
    model: type[BaseModel], value: Any, message: str
) -> None:
    with pytest.raises(SQLEnvError) as raised:
        parse_item(model, value)
    assert raised.value.message == message


def test_brackets_are_counted_before_the_body_is_parsed() -> None:
    body = b'{"steps":[' + b",".join([b"[]"] * MAX_BRACKETS) + b"]}"
    with pytest.raises(InvalidRequest, match="over 100,000 objects and arrays"):
        parse(StepBatchRequest, body)
    fits = json.dumps({"steps": [{"action": "QUERY: SELECT '[{'"}] * 1000}).encode()
    assert len(parse(StepBatchRequest, fits).steps) == 1000


@pytest.mark.anyio
async def test_a_step_has_a_limit_of_its_own(http: httpx.AsyncClient) -> None:
    assert (await http.post("/reset", json={"episode_id": "e"})).status_code == 200
    body = '{"episode_id":"e","action":"ANSWER: ' + r"\u0041" * MAX_ARGUMENT_BYTES + '"}'
    assert len(body) < MAX_STEP_BYTES
    assert (await http.post("/step", content=body)).status_code == 200
    reply = await http.post("/step", content=body + " " * MAX_STEP_BYTES)
    assert (reply.status_code, reply.json()["error"]["max_bytes"]) == (413, MAX_STEP_BYTES)
    reply = await http.post("/reset", content=b"{}" + b" " * MAX_STEP_BYTES)
    assert reply.status_code == 200
