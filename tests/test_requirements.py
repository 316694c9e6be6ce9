"""Every third-party module that a package imports is declared."""

import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from tests.test_imports import MODULES, OURS, ROOT, imports_of

EXTRAS = {
    "shared": [],
    "shared.order_by": ["server"],  # of shared, but imported only by env_server and data
    "shared.pages": ["server"],
    "shared.agents": ["gymnasium", "openenv"],
    "env_server": ["server", "mcp"],
    "trainer": ["trainer", "notebook", "lora", "api"],
    "data": ["server", "postgres"],
}


def declared(extras: list[str]) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = project["dependencies"] + [
        text for extra in extras for text in project["optional-dependencies"][extra]
    ]
    return {Requirement(text).name.lower().replace("_", "-") for text in texts}


@pytest.mark.parametrize("package", EXTRAS)
def test_every_import_is_declared(package: str) -> None:
    modules = {
        name.split(".")[0]
        for module in MODULES
        if max((known for known in EXTRAS if f"{module}.".startswith(f"{known}.")), key=len)
        == package
        for name in imports_of(module)
    }
    installed = packages_distributions()
    names = {
        module: {name.lower().replace("_", "-") for name in installed.get(module, [module])}
        for module in modules - {*OURS, *sys.stdlib_module_names}
    }
    known = declared(EXTRAS[package])
    assert {module for module, choices in names.items() if not choices & known} == set()
    assert names  # the check sees something
