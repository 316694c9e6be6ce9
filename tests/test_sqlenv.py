"""`sqlenv` has the public names, imports them late, and pages and examples need nothing else."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import sqlenv
from shared.console import PACKAGES
from tests.test_docs import PAGES
from tests.test_imports import ROOT
from tests.test_readme import fenced
from tests.test_unused import OPTIONAL

INTERNAL = set(PACKAGES) - {"sqlenv"}


@pytest.mark.parametrize("name", sqlenv.__all__)
def test_every_name_leads_to_what_has_it(name):
    try:
        found = getattr(sqlenv, name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"needs {error.name}")
    home = getattr(found, "__module__", "").split(".")[0]
    assert home not in INTERNAL or found.__name__ == name


def test_other_names_are_not_there():
    assert dir(sqlenv) == sorted(sqlenv.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Client'"):
        _ = sqlenv.Client


def test_a_client_needs_no_torch_and_no_server():
    code = (
        "import sys, sqlenv\n"
        "assert not {'httpx', 'pydantic'} & {*sys.modules}, 'imported before a name is used'\n"
        "sqlenv.SQLEnvClient, sqlenv.SQLAction, sqlenv.SQLEnvTools, sqlenv.one_line_errors\n"
        "heavy = 'torch transformers trl fastapi starlette apsw env_server trainer'.split()\n"
        "print(*{*heavy} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"


def imports() -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    texts = [(page, "\n".join(fenced(page, "python"))) for page in PAGES]
    texts += [(path.name, path.read_text()) for path in (ROOT / "examples").rglob("*.py")]
    for file, text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield file, node


def test_pages_and_examples_import_only_public_names():
    used = set()
    for file, node in imports():
        names = {one.name for one in node.names}
        module = node.module if isinstance(node, ast.ImportFrom) else None
        roots = {name.split(".")[0] for name in ([module] if module else names)}
        assert not roots & INTERNAL, f"{file}: {ast.unparse(node)}"
        if module == "sqlenv":
            assert names <= set(sqlenv.__all__), f"{file}: {ast.unparse(node)}"
            used.add(file)
    assert {"README.md", "docs/api.md", "docs/your-loop.md", "sync_client.py"} <= used


@pytest.mark.parametrize("page", ["README.md", *(one for one in PAGES if one.startswith("docs/"))])
def test_pages_name_no_internal_module_for_python(page):
    """Folders and commands are named; what a reader would import is in `sqlenv`."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    dotted = re.compile(rf"`(?:{'|'.join(INTERNAL)})\.[a-z_.]+[A-Za-z_]*`")
    assert dotted.findall(text) == []
