"""What OpenAPI says of the wire beyond what FastAPI finds: the errors, and bodies that endpoints
read themselves."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from shared.models import ResetRequest, ResetResult, StepRequest, StepResult


class ErrorFields(BaseModel):
    """`code` is for programs, `message` for people: what is wrong and what to do. Some codes have
    further fields."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str
    retryable: bool


class ErrorReply(BaseModel):
    """Every status but 200 has this body."""

    error: ErrorFields


class StepBatchReply(BaseModel):
    results: list[StepResult | ErrorReply]


class ResetBatchReply(BaseModel):
    results: list[ResetResult | ErrorReply]


# not read by FastAPI, so named to OpenAPI here
REQUEST_MODELS: list[type[BaseModel]] = [ResetRequest, StepRequest]
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorReply, "description": "invalid_action"},
    401: {"model": ErrorReply, "description": "unauthorized: where the server has keys"},
    404: {"model": ErrorReply, "description": "unknown_episode, unknown_question"},
    408: {"model": ErrorReply, "description": "request_timeout: the body was too slow to arrive"},
    409: {"model": ErrorReply, "description": "conflict, behind, digest_mismatch"},
    413: {"model": ErrorReply, "description": "body_too_large"},
    422: {"model": ErrorReply, "description": "invalid_request"},
    429: {"model": ErrorReply, "description": "capacity: Retry-After says when to come again"},
    500: {"model": ErrorReply, "description": "internal"},
    503: {"model": ErrorReply, "description": "not_ready, timeout"},
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: ERRORS[status] for status in (401, *statuses)}


def body_of(schema: dict[str, Any], required: bool = True) -> dict[str, Any]:
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}
    }


def ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def batch_of(key: str, model: type[BaseModel]) -> dict[str, Any]:
    items = {"type": "array", "items": ref(model)}
    return body_of(
        {
            "type": "object",
            "required": [key],
            "properties": {key: items},
            "additionalProperties": False,
        }
    )
