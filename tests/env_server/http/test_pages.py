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
