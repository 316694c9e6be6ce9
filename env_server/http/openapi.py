"""OpenAPI for what FastAPI can't infer: errors, keys, bodies that endpoints parse."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from env_server.http.auth import METRICS, OPERATOR, is_open
from env_server.settings import ENV_PREFIX, Settings
from shared.models import (
    ResetBatchRequest,
    ResetRequest,
    ResetResult,
    StepBatchRequest,
    StepRequest,
    StepResult,
)

_SCHEMAS = "#/components/schemas/"
KEYS = {
    f"{ENV_PREFIX}API_KEY": "The trainer's key: episodes of its own, rewards as asked.",
    f"{ENV_PREFIX}AGENT_KEYS": "One of the agents' keys: episodes of its own, rewards at the end.",
    f"{ENV_PREFIX}OPERATOR_KEY": "The operator's key: everybody's episodes, verdicts, metrics.",
}
TRAINER_KEY, AGENTS_KEY, OPERATOR_KEY = KEYS
GUIDE = (
    "`POST /reset` starts an episode, `POST /step` plays one action of it: 'DESCRIBE: table', "
    "'SAMPLE: table', 'QUERY: SELECT ...' or 'ANSWER: text', which ends it. `GET /questions` lists "
    "what an episode can be about."
)


class _Model(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ErrorFields(_Model):
    """What is wrong. Some codes have more fields."""

    model_config = ConfigDict(extra="allow")

    code: str
    """Kind of error, for programs."""
    message: str
    """What is wrong, where, and what to do, for people."""
    retryable: bool
    """Whether the same request, sent again later, can succeed."""


class ErrorReply(_Model):
    """The body of every status except 200."""

    error: ErrorFields
    """What is wrong."""


class StepBatchReply(_Model):
    """The reply to many steps."""

    results: list[StepResult | ErrorReply]
    """One result or error per step, in order."""


class ResetBatchReply(_Model):
    """The reply to many resets."""

    results: list[ResetResult | ErrorReply]
    """One result or error per reset, in order."""


class Status(_Model):
    """The reply to a probe."""

    status: str
    """"healthy" or "ready"."""


BATCHES: dict[type[BaseModel], tuple[str, type[BaseModel]]] = {
    ResetBatchRequest: ("resets", ResetRequest),
    StepBatchRequest: ("steps", StepRequest),
}
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
    500: "internal, or of broken data database_load, question_load",
    503: "not_ready, timeout",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of an endpoint with these errors."""
    return {
        status: {"model": ErrorReply, "description": ERRORS[status]} for status in (401, *statuses)
    }


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the `openapi_extra` of an endpoint with this body."""
    required = any(field.is_required() for field in model.model_fields.values())
    content = {"application/json": {"schema": {"$ref": _SCHEMAS + model.__name__}}}
    return {"requestBody": {"required": required, "content": content}}


def query_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the `openapi_extra` of an endpoint whose query has this model's fields."""
    schemas = model.model_json_schema()["properties"]
    return {
        "parameters": [
            {"name": name, "in": "query", "description": field.description, "schema": schemas[name]}
            for name, field in model.model_fields.items()
        ]
    }


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI document of a server with these settings."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        description=f"{app.description}.\n\n{GUIDE}",
        routes=app.routes,
    )
    requests = [model for batch, (_, item) in BATCHES.items() for model in (batch, item)]
    _, schemas = models_json_schema(
        [(model, "validation") for model in requests], ref_template=_SCHEMAS + "{model}"
    )
    for schema in schemas["$defs"].values():
        for part in schema.get("properties", {}).values():
            part.pop("default", None)  # generated clients take a field that has one as required
    for batch, (field, item) in BATCHES.items():
        items = {"$ref": _SCHEMAS + item.__name__}
        schemas["$defs"][batch.__name__]["properties"][field]["items"] = items
    components = found["components"]
    components["schemas"] = schemas["$defs"] | components["schemas"]
    components["securitySchemes"] = {
        name: {"type": "http", "scheme": "bearer", "description": text}
        for name, text in KEYS.items()
    }
    for path, operations in found["paths"].items():
        if keys := _keys(path, settings):
            for operation in operations.values():
                operation["security"] = [{key: []} for key in keys]
    return found


def _keys(path: str, settings: Settings) -> list[str]:
    """Return the names of the keys that open a path; none if it needs no key."""
    agents = {TRAINER_KEY: settings.api_key, AGENTS_KEY: settings.agents}
    has_agents = any(agents.values())
    if path.startswith((OPERATOR, METRICS)):
        return [OPERATOR_KEY] if has_agents or settings.operator_key else []
    if is_open(path) or not has_agents:
        return []
    given = agents | {OPERATOR_KEY: settings.operator_key}
    return [name for name, value in given.items() if value]
