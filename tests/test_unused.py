"""Every function and class of the packages is used by more than tests: a guard that only its test
calls guards nothing.

Names are compared, as code refers to them: comments and strings don't count, and neither does what
a function says of itself. So a function that shares its name with another one in use is not found.
"""

import ast
import importlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("shared", "env_server", "trainer", "data")
CALLERS = (*PACKAGES, "benchmarks", "docker", "examples")  # beside the notebooks
OPTIONAL = ("gymnasium", "mcp", "openenv", "websockets")  # packages whose methods some override

PUBLIC = {"open_episodes": "of a client"}  # what only users call, beside the names of sqlenv
# decorators that register what they decorate; others, such as property or lru_cache, do not
REGISTER = ("callback", "get", "post", "model_validator", "field_validator")

Tree = tuple[str, ast.AST]  # with the path of its file
Names = tuple[str, ...]  # of a definition and those around it
AnyDefinition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def trees() -> Iterator[Tree]:
    for package in CALLERS:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
    public = ROOT / "sqlenv" / "__init__.pyi"
    yield "sqlenv", ast.parse(public.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield path.name, ast.parse("\n".join(code))


def unused(trees: Iterable[Tree]) -> set[str]:
    """Return the definitions in `PACKAGES` that nothing but themselves refers to."""
    definitions: list[tuple[str, Names, AnyDefinition]] = []
    uses: dict[str, list[tuple[str, Names]]] = defaultdict(list)

    def walk(path: str, node: ast.AST, around: Names) -> None:
        for child in ast.iter_child_nodes(node):
            inside = around
            if isinstance(child, AnyDefinition):
                inside = (*around, child.name)
                definitions.append((path, inside, child))
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                uses[child.id].append((path, around))
            elif isinstance(child, ast.Attribute):
                uses[child.attr].append((path, around))
            elif isinstance(child, ast.alias) and child.asname is not None:
                uses[child.name].append((path, around))
            walk(path, child, inside)

    for path, tree in trees:
        walk(path, tree, ())
    return {
        f"{path}: {'.'.join(names)}"
        for path, names, node in definitions
        if path.partition("/")[0] in PACKAGES
        and not names[-1].startswith("__")
        and all(place == path and names[-1] in around for place, around in uses[names[-1]])
        and not any(map(_registers, node.decorator_list))
    }


def _registers(decorator: ast.expr) -> bool:
    if not isinstance(decorator, ast.Call):
        return False
    name = ast.unparse(decorator.func).rpartition(".")[2]
    return name in REGISTER or "command" in name


def is_override(path: str, names: Names) -> bool:
    """Return whether a method has the name of a method of a class outside the project."""
    try:
        owner: Any = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    except ModuleNotFoundError as error:
        return (error.name or "").split(".")[0] in OPTIONAL  # seen where it is installed
    for name in names[:-1]:
        owner = getattr(owner, name)
    bases = owner.__mro__[1:] if isinstance(owner, type) else ()
    return any(
        hasattr(base, names[-1]) for base in bases if base.__module__.split(".")[0] not in PACKAGES
    )


def test_everything_is_used_by_more_than_tests():
    found, public = set(), set()
    for one in unused(trees()):
        path, _, dotted = one.partition(": ")
        names = tuple(dotted.split("."))
        if names[-1] in PUBLIC:
            public.add(names[-1])
        elif not is_override(path, names):
            found.add(one)
    assert not found, "call or delete what only tests use:\n" + "\n".join(sorted(found))
    assert public == set(PUBLIC)  # no needless exception
