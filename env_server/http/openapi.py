"""OpenAPI for what FastAPI can't infer: the errors, and bodies that endpoints parse themselves."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from shared.models import ResetRequest, ResetResult, StepRequest, StepResult


class ErrorFields(BaseModel):
    """`code` is for programs, `message` for people. Some codes have more fields."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str
    retryable: bool


class ErrorReply(BaseModel):
    """The body of every status except 200."""

    error: ErrorFields


class StepBatchReply(BaseModel):
    """One result or error per step, in order."""

    results: list[StepResult | ErrorReply]


class ResetBatchReply(BaseModel):
    """One result or error per reset, in order."""

    results: list[ResetResult | ErrorReply]


REQUEST_MODELS: list[type[BaseModel]] = [ResetRequest, StepRequest]
ERRORS = {
    400: "invalid_action",
    401: "unauthorized: if the server has keys",
    403: "forbidden: rewards at each step, for an agent's key",
    404: "unknown_episode, unknown_question",
    408: "request_timeout: the body took too long to arrive",
    409: "conflict, behind, digest_mismatch",
    413: "body_too_large, episode_too_large, reply_too_large: of an item of a batch",
    422: "invalid_request",
    429: "capacity, queue_full: Retry-After says when to try again",
    500: "internal",
    503: "not_ready, timeout",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of an endpoint with these errors."""
    codes = (401, *statuses)
    return {code: {"model": ErrorReply, "description": ERRORS[code]} for code in codes}


def body_of(schema: dict[str, Any], required: bool = True) -> dict[str, Any]:
    """Return the `openapi_extra` of an endpoint with this body."""
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}


def ref(model: type[BaseModel]) -> dict[str, str]:
    """Return the schema that refers to a request model."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def batch_of(key: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the `openapi_extra` of an endpoint that takes `{key: [model, ...]}`."""
    schema = {
        "type": "object",
        "required": [key],
        "properties": {key: {"type": "array", "items": ref(model)}},
        "additionalProperties": False,
    }
    return body_of(schema)
