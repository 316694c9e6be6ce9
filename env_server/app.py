"""The FastAPI application: lifespan, routers, exception handlers, OpenAPI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from env_server.http import responses, routes
from env_server.http.auth import Keys
from env_server.http.mcp import mcp
from env_server.http.openapi import add_pages, document
from env_server.http.openenv import openenv
from env_server.page.views import add_page
from env_server.questions import QuestionBank
from env_server.service import DESCRIPTION, package_version, running
from env_server.settings import Settings
from env_server.telemetry import Metrics
from shared.errors import SQLEnvError


class _Direct(Route):
    """A route without FastAPI's layers, which names itself for the metrics as theirs do."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


def create_app(settings: Settings | None = None, bank: QuestionBank | None = None) -> FastAPI:
    """Return the application, whose lifespan runs the SQL workers and, without a `bank`, loads it.

    `app.state.service` is the `Service` during the lifespan, else None.
    """
    settings = settings or Settings()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        questions = bank or QuestionBank.load(settings.data_dir, follow_links=settings.follow_links)
        async with running(settings, questions, metrics) as service:
            app.state.service = service
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
        generate_unique_id_function=lambda route: route.name,
        openapi_url=None,  # `add_pages` serves it
    )
    app.state.service, app.state.metrics = None, metrics
    for router in (routes.episodes, routes.data, routes.server, routes.operator, openenv, mcp):
        app.include_router(router)
    # Before FastAPI's own, which stay for OpenAPI: its routing costs 0.15 ms of CPU per request
    for endpoint in (routes.step, routes.step_batch, routes.reset, routes.reset_batch):
        app.router.routes.insert(0, _Direct(f"/{endpoint.__name__}", endpoint, methods=["POST"]))
    add_pages(app)
    add_page(app)
    app.add_exception_handler(SQLEnvError, responses.on_sqlenv_error)
    app.add_exception_handler(RequestValidationError, responses.on_validation_error)
    app.add_exception_handler(HTTPException, responses.on_http_error)
    app.add_middleware(Keys, settings=settings, metrics=metrics)
    app.add_middleware(responses.CatchAll, metrics=metrics)
    app.openapi = cache(lambda: document(app, settings))  # type: ignore[method-assign]
    return app
