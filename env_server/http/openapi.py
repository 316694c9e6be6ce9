"""OpenAPI: what FastAPI can't infer (errors, keys, bodies that endpoints parse), and /docs.

The page's scripts come with the package fastapi-offline and are served from here, and the browser
is told to load nothing from anywhere else, and to run no other script than these and the page's
own. Links are relative, so that a gateway may add a prefix.
"""

import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json

from env_server.http.auth import DOCUMENT, SCRIPTS, SWAGGER, is_open
from env_server.http.responses import http_error_bytes, json_reply, page_headers
from env_server.settings import Settings
from shared import models
from shared.pages import digest_of

FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
OWN_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
MISSING = (
    f"{SWAGGER} needs the package fastapi-offline: run 'pip install fastapi-offline' (the extra "
    f"'docs') and start the server again, or read {DOCUMENT}"
)
_SCHEMAS = "#/components/schemas/"
GUIDE = (
    "`POST /reset` starts an episode, `POST /step` plays one action of it: 'DESCRIBE: table', "
    "'SAMPLE: table', 'QUERY: SELECT ...' or 'ANSWER: text', which ends it. `GET /questions` lists "
    "what an episode can be about."
)


class ErrorFields(models.WireModel):
    """What is wrong. Some codes have more fields."""

    model_config = ConfigDict(extra="allow")

    code: str
    """Kind of error, for programs."""
    message: str
    """What is wrong, where, and what to do, for people."""
    retryable: bool
    """Whether the same request, sent again later, can succeed."""


class ErrorReply(models.WireModel):
    """The body of every status except 200."""

    error: ErrorFields
    """What is wrong."""


class StepBatchReply(models.WireModel):
    """The reply to many steps."""

    results: list[models.StepResult | ErrorReply]
    """One result or error per step, in order."""


class ResetBatchReply(models.WireModel):
    """The reply to many resets."""

    results: list[models.ResetResult | ErrorReply]
    """One result or error per reset, in order."""


class Status(models.WireModel):
    """The reply to a probe."""

    status: str
    """"healthy" or "ready"."""
    problem: str | None = None
    """What slows the server down and needs an operator; absent if nothing does."""


BATCHES: dict[type[BaseModel], tuple[str, type[BaseModel]]] = {
    models.ResetBatchRequest: ("resets", models.ResetRequest),
    models.StepBatchRequest: ("steps", models.StepRequest),
}
ERRORS = {
    400: "invalid_action",
    401: "unauthorized: if the server has keys",
    403: "forbidden: a page of another site, an agent's key for rewards at each step or more tries",
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
    """Return the OpenAPI document, whose calls ask for a key if the server has any."""
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
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    has_keys = bool(settings.api_key or settings.agent_keys or settings.operator_key)
    for path, operations in found["paths"].items():
        if has_keys and not is_open(path):
            for operation in operations.values():
                operation["security"] = [{"key": []}]
    return found


def scripts_folder() -> Path | None:
    """Return the folder of the page's scripts, if all are there."""
    spec = find_spec("fastapi_offline")
    folder = Path(spec.origin).parent / "static" if spec and spec.origin else None
    return folder if folder and all((folder / name).is_file() for name in FILES) else None


def _file(path: Path, media_type: str) -> Callable[[], Awaitable[Response]]:
    """Return an endpoint that serves a file from memory: a request holds no descriptor for it."""
    content = path.read_bytes()

    async def serve() -> Response:
        return Response(content, media_type=media_type)

    return serve


def add_pages(app: FastAPI) -> None:
    """Add the document and the page; without its scripts, a line that says how to get them."""

    @cache
    def document() -> bytes:
        return to_json(app.openapi())

    @app.get(DOCUMENT, include_in_schema=False)
    async def openapi() -> Response:
        return json_reply(document())

    folder = scripts_folder()
    if folder:
        for name, media_type in FILES.items():
            app.get(f"{SCRIPTS}/{name}", include_in_schema=False)(_file(folder / name, media_type))
    bundle, style, icon = (f"{SCRIPTS[1:]}/{name}" for name in FILES)
    page = get_swagger_ui_html(
        openapi_url=DOCUMENT[1:],
        title=app.title,
        swagger_js_url=bundle,
        swagger_css_url=style,
        swagger_favicon_url=icon,
    )
    own = " ".join(
        f"'{digest_of(script)}'" for script in OWN_SCRIPT.findall(bytes(page.body).decode())
    )
    headers = page_headers(f"'self' {own}", "'self'", "'self' data:")

    @app.get(SWAGGER, include_in_schema=False)
    async def swagger() -> Response:
        if folder is None:
            return json_reply(http_error_bytes(404, MISSING), 404)
        return Response(page.body, headers=headers, media_type="text/html")
