"""What is refused before pydantic sees it, and what an error repeats."""

import json
import time
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from env_server.http.requests import MAX_BRACKETS, MAX_STEP_BYTES, parse, parse_item
from shared.actions import MAX_ARGUMENT_BYTES
from shared.errors import ActionParseError, InvalidRequest, SQLEnvError
from shared.models import MAX_STEP_BUDGET, ResetRequest, StepBatchRequest, StepRequest

MANY = {f"k{number}": 1 for number in range(100_000)}
ACTION = {"action_type": "QUERY", "argument": "SELECT 1"}


@pytest.mark.parametrize(
    ("model", "value", "error", "text"),
    [
        (ResetRequest, MANY, InvalidRequest, "100,000 fields; expected only episode_id, "),
        (StepRequest, {"episode_id": "e", "action": MANY}, ActionParseError, "100,000 fields"),
        (ResetRequest, {"actions": [ACTION | MANY]}, ActionParseError, "actions.0 is not an"),
        (ResetRequest, {"actions": ["QUERY: 1"] * 99 + [MANY]}, ActionParseError, "actions.99"),
        (ResetRequest, {"actions": ["QUERY: 1"] * MAX_STEP_BUDGET + [MANY]}, InvalidRequest,
         "List should have at most 100 items"),
        (ResetRequest, {"difficulty": ["easy"] * 100_000 + ["hm"]}, InvalidRequest, "difficulty"),
        (ResetRequest, {"difficulty": ["easy"] * 4}, InvalidRequest, "at most 3 items"),
        (ResetRequest, {"seed": "9" * 10_000}, InvalidRequest, "seed"),
        (ResetRequest, {"x" * 100_000: 1}, InvalidRequest, "x" * 100 + ": there is no such"),
        (StepRequest, {"episode_id": "e", "action": ACTION | {"y" * 100_000: 1}},
         ActionParseError, "3 fields"),
    ],
)  # fmt: skip
def test_the_error_is_short_and_early(
    model: type[BaseModel], value: Any, error: type[SQLEnvError], text: str
) -> None:
    body = json.dumps(value).encode()
    start = time.process_time()
    with pytest.raises(error) as raised:
        parse(model, body)
    with pytest.raises(error):
        parse_item(model, value)
    assert text in raised.value.message
    assert len(raised.value.message) < 500
    # 100,000 errors of pydantic took 1 s
    assert time.process_time() - start < 0.5


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
