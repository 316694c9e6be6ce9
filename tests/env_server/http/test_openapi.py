"""The OpenAPI document: nothing without a description, errors, documented bodies; and /docs.

/docs loads files of the server's own, or says how to get them.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from env_server.app import create_app
from env_server.http import openapi as pages
from env_server.http.openapi import document
from env_server.settings import Settings
from tests.env_server.http.conftest import TRAINER
from tests.test_imports import ROOT

pytestmark = pytest.mark.anyio

CURL = re.compile(r"""localhost:8000/(reset|step) -d '(\{.*?\})'""")


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    settings = Settings(api_key="k" * 16)  # type: ignore[arg-type]
    return document(create_app(settings), settings)


def operations(api: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, found in api["paths"].items():
        for method, operation in found.items():
            yield f"{method} {path}", operation


def undescribed(api: dict[str, Any]) -> set[str]:
    """Return the models, fields, calls, parameters and replies without a description."""
    found = {
        f"{name}.{field}"
        for name, schema in api["components"]["schemas"].items()
        for field, part in schema.get("properties", {}).items()
        if not part.get("description")
    }
    found |= {
        name for name, part in api["components"]["schemas"].items() if "description" not in part
    }
    for call, operation in operations(api):
        parts = {call: operation} | {
            f"{call} {name}": part
            for kind in ("parameters", "responses")
            for name, part in named(operation.get(kind, {}))
        }
        found |= {name for name, part in parts.items() if not part.get("description")}
    return found


def named(parts: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(parts, dict):
        yield from parts.items()
    else:
        yield from ((part["name"], part) for part in parts)


def test_everything_has_a_description(api):
    assert undescribed(api) == set()
    assert len(list(operations(api))) >= 14
    assert len(api["components"]["schemas"]) >= 25


def test_calls_that_need_a_key_say_so(api):
    assert set(api["components"]["securitySchemes"]) == {"key"}
    asking = {call for call, operation in operations(api) if "security" in operation}
    assert {"post /step", "get /questions", "get /metrics", "get /operator/tries"} <= asking
    assert not {"get /health", "get /ready"} & asking
    without = document(create_app(Settings()), Settings())
    assert not [call for call, operation in operations(without) if "security" in operation]


def test_generated_clients_take_the_documented_bodies(api):
    schemas = api["components"]["schemas"]

    def errors(name: str, body: Any) -> list[Any]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": api["components"]}
        return list(Draft202012Validator(schema).iter_errors(body))

    pages = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))]
    bodies = [found for text in pages for found in CURL.findall(text)]
    assert {path for path, _ in bodies} == {"reset", "step"}
    for path, body in bodies:
        assert errors(f"{path.title()}Request", json.loads(body)) == []
    for name, body in (("Reset", {"sed": 7}), ("Reset", {"difficulty": "extreme"}), ("Step", {})):
        assert errors(f"{name}Request", body)
    for name in ("Reset", "Step"):
        fields = schemas[f"{name}Request"]["properties"].values()
        assert not [field for field in fields if "default" in field], "would be a required field"
    batch = schemas["StepBatchRequest"]["properties"]["steps"]
    assert batch["items"] == {"$ref": "#/components/schemas/StepRequest"}
    text = json.dumps(api)
    assert {one.split('"')[0] for one in text.split('"#/components/schemas/')[1:]} <= set(schemas)
    assert "HTTPValidationError" not in text, "FastAPI's own error shape is not sent"


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


async def test_the_page_loads_only_what_the_server_has(scripts):
    async with serving(api_key=TRAINER) as http:
        page = await http.get("/docs")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self' 'sha256-")
        assert "unsafe" not in policy
        assert "//" not in re.sub(r"<!--.*?-->", "", page.text, flags=re.DOTALL)
        links = re.findall(r"""(?:src|href)="([^"]+)"|url: '([^']+)'""", page.text)
        names = {one or other for one, other in links}
        assert len(names) >= 3
        for name in names:
            assert (await http.get(httpx.URL("http://env/docs").join(name))).status_code == 200


async def test_without_its_scripts_the_page_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    async with serving() as http:
        reply = await http.get("/docs")
        message = reply.json()["error"]["message"]
        assert reply.status_code == 404
        assert "pip install fastapi-offline" in message
        assert "\n" not in message
        assert (await http.get("/openapi.json")).status_code == 200
