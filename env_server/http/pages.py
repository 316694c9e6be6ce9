"""The API's description: /openapi.json, and the page /docs, which works offline.

The page's scripts come with the package fastapi-offline and are served from here, and the browser
is told to load nothing from anywhere else. Links are relative, so that a gateway may add a prefix.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from pydantic_core import to_json

from env_server.http.responses import http_error_bytes, json_reply

DOCUMENT, SWAGGER = "/openapi.json", "/docs"
SCRIPTS = SWAGGER + "/scripts"
FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
POLICY = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline' data:"}
MISSING = (
    f"{SWAGGER} needs the package fastapi-offline: run 'pip install fastapi-offline' (the extra "
    f"'docs') and start the server again, or read {DOCUMENT}"
)


def scripts_folder() -> Path | None:
    """Return the folder of the page's scripts, or None without fastapi-offline."""
    spec = find_spec("fastapi_offline")
    folder = Path(spec.origin).parent / "static" if spec and spec.origin else None
    return folder if folder and all((folder / name).is_file() for name in FILES) else None


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
        app.mount(SCRIPTS, StaticFiles(directory=folder))
    bundle, style, icon = (f"{SCRIPTS[1:]}/{name}" for name in FILES)
    page = get_swagger_ui_html(
        openapi_url=DOCUMENT[1:],
        title=app.title,
        swagger_js_url=bundle,
        swagger_css_url=style,
        swagger_favicon_url=icon,
    )

    @app.get(SWAGGER, include_in_schema=False)
    async def swagger() -> Response:
        if folder is None:
            return json_reply(http_error_bytes(404, MISSING), 404)
        return Response(page.body, headers=POLICY, media_type="text/html")
