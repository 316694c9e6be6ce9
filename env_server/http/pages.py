"""The API's description: /openapi.json, and the pages /docs and /redoc, which work offline.

The pages' scripts come with the package fastapi-offline and are served from here, and the browser
is told to load nothing from anywhere else. Links are relative, so that a gateway may add a prefix.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from pydantic_core import to_json
from starlette._utils import get_route_path

from env_server.http.responses import http_error_bytes, json_reply

DOCUMENT, SWAGGER, REDOC = "/openapi.json", "/docs", "/redoc"
SCRIPTS = SWAGGER + "/scripts"
FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "redoc.standalone.js", "favicon.png")
# ReDoc's worker is a blob; it would also load a logo from its maker's server
POLICY = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline' data: blob:"}


def scripts_folder() -> Path | None:
    """Return the folder of the pages' scripts, or None without fastapi-offline."""
    spec = find_spec("fastapi_offline")
    folder = Path(spec.origin).parent / "static" if spec and spec.origin else None
    return folder if folder and all((folder / name).is_file() for name in FILES) else None


def add_pages(app: FastAPI) -> None:
    """Add the document and the pages; without their scripts, a line that says how to get them."""

    @cache
    def document() -> bytes:
        return to_json(app.openapi())

    @app.get(DOCUMENT, include_in_schema=False)
    async def openapi() -> Response:
        return json_reply(document())

    if folder := scripts_folder():
        app.mount(SCRIPTS, StaticFiles(directory=folder))
    bundle, style, redoc_bundle, icon = (f"{SCRIPTS[1:]}/{name}" for name in FILES)
    swagger = get_swagger_ui_html(
        openapi_url=DOCUMENT[1:],
        title=app.title,
        swagger_js_url=bundle,
        swagger_css_url=style,
        swagger_favicon_url=icon,
    )
    redoc = get_redoc_html(
        openapi_url=DOCUMENT[1:],
        title=app.title,
        redoc_js_url=redoc_bundle,
        redoc_favicon_url=icon,
        with_google_fonts=False,
    )
    pages = {SWAGGER: bytes(swagger.body), REDOC: bytes(redoc.body)}

    @app.get(SWAGGER, include_in_schema=False)
    @app.get(REDOC, include_in_schema=False)
    async def page(request: Request) -> Response:
        path = get_route_path(request.scope)
        if folder is None:
            message = (
                f"{path} needs the package fastapi-offline: run 'pip install fastapi-offline' (the "
                f"extra 'docs') and start the server again, or read {DOCUMENT}"
            )
            return json_reply(http_error_bytes(404, message), 404)
        return Response(pages[path], headers=POLICY, media_type="text/html")
