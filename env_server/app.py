"""The FastAPI application: lifespan, routers, exception handlers, OpenAPI."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from env_server.http import responses, routes
from env_server.http.auth import Keys, closed_to_operators
from env_server.http.openapi import REQUEST_MODELS
from env_server.http.operator import operator
from env_server.metrics import Metrics
from env_server.questions import QuestionBank
from env_server.service import DESCRIPTION, package_version, running
from env_server.settings import Settings
from shared.errors import SQLEnvError

log = logging.getLogger(__name__)


def create_app(settings: Settings | None = None, bank: QuestionBank | None = None) -> FastAPI:
    """Return the application. Its lifespan runs the SQL workers, and loads the questions unless
    `bank` is given.

    `app.state.service` is the `Service` during the lifespan; otherwise it is None, and requests
    for episodes get 503. Startup raises what `QuestionBank.load` raises.
    """
    settings = settings or Settings()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        questions = bank or QuestionBank.load(settings.data_dir)
        for path in closed_to_operators(settings):
            log.warning("%s is closed: set SQLENV_OPERATOR_KEY to open it to that key", path)
        async with running(settings, questions, metrics) as service:
            app.state.service = service
            log.info("SQL workers: processes %s", ", ".join(map(str, service.sql.pids)))
            try:
                yield
            finally:
                app.state.service = None

    app = FastAPI(
        title="SQLEnv",
        description=DESCRIPTION,
        version=package_version(),
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.service, app.state.metrics = None, metrics
    for router in (routes.episodes, routes.server, operator):
        app.include_router(router)
    app.add_exception_handler(SQLEnvError, responses.on_sqlenv_error)
    app.add_exception_handler(RequestValidationError, responses.on_validation_error)
    app.add_exception_handler(HTTPException, responses.on_http_error)
    app.add_middleware(Keys, settings=settings, metrics=metrics)
    app.add_middleware(responses.CatchAll, metrics=metrics)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's OpenAPI with the request models that the endpoints parse themselves."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, requests = models_json_schema(
            [(model, "validation") for model in REQUEST_MODELS],
            ref_template="#/components/schemas/{model}",
        )
        document["components"]["schemas"] = requests["$defs"] | document["components"]["schemas"]
        app.openapi_schema = document
    return app.openapi_schema
