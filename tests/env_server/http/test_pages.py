"""/docs: from files of the server's own, open to browsers, or a line on how to get them.

`tests/browser/test_api_pages.py` opens them.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from env_server.app import create_app
from env_server.http import openapi as pages
from env_server.settings import Settings
from tests.env_server.http.conftest import TRAINER

pytestmark = pytest.mark.anyio


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of fastapi-offline, whether or not it is installed."""
    for name in pages.FILES:
        (tmp_path / name).write_text(f"content of {name}")
    monkeypatch.setattr(pages, "scripts_folder", lambda: tmp_path)
    return tmp_path


@asynccontextmanager
async def serving(**given: str) -> AsyncIterator[httpx.AsyncClient]:
    """An application that is not started: the pages need no data."""
    transport = httpx.ASGITransport(create_app(Settings(**given)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://env") as http:
        yield http


async def test_the_page_loads_only_what_the_server_has(scripts: Path) -> None:
    async with serving(api_key=TRAINER) as http:
        page = await http.get("/docs")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "//" not in re.sub(r"<!--.*?-->", "", page.text, flags=re.DOTALL)
        links = re.findall(r"""(?:src|href)="([^"]+)"|url: '([^']+)'""", page.text)
        names = {one or other for one, other in links}
        assert len(names) >= 3
        for name in names:
            assert (await http.get(httpx.URL("http://env/docs").join(name))).status_code == 200


async def test_without_its_scripts_the_page_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    async with serving() as http:
        reply = await http.get("/docs")
        message = reply.json()["error"]["message"]
        assert reply.status_code == 404
        assert "pip install fastapi-offline" in message
        assert "\n" not in message
        assert (await http.get("/openapi.json")).status_code == 200


async def test_the_scripts_folder_is_all_that_is_served(scripts: Path) -> None:
    (scripts.parent / "secret").write_text("secret")
    async with serving(api_key=TRAINER) as http:
        assert (await http.get("/docs/scripts/swagger-ui.css")).text == "content of swagger-ui.css"
        for name in ("nothing", "../secret", "%2e%2e/secret", "..%2fsecret", ""):
            reply = await http.get(f"/docs/scripts/{name}")
            assert reply.status_code in (401, 404)
        for path in ("/docs/scripts", "/docs/", "/docsx", "/docs/scripts/../../step"):
            assert (await http.post(path)).status_code in (401, 404, 405)


async def test_no_other_origin_may_call() -> None:
    site = {"Origin": "https://notebook.example", "Access-Control-Request-Method": "POST"}
    async with serving(api_key=TRAINER) as http:
        assert (await http.options("/step", headers=site)).status_code == 401
        reply = await http.get("/health", headers=site)
        assert "access-control-allow-origin" not in reply.headers
