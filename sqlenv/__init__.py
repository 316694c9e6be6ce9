"""The public names of this project, which `__init__.pyi` lists. What is not here is internal.

A name is imported at its first use, so that a client needs neither torch nor a server.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi")
_MODULES = {
    alias.name: node.module
    for node in ast.parse(_STUB.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
