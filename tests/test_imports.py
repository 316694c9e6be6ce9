"""Who may import whom. The rooms are in ARCHITECTURE.md; this reads every import statement and
holds them to it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("shared", "env_server", "trainer", "data")

# room -> what it may not import, at any depth of its code
FORBIDDEN = {
    "shared": (
        "env_server",
        "trainer",
        "data",
        "torch",
        "fastapi",
        "starlette",
        "uvicorn",
        "transformers",
        "trl",
    ),
    "env_server": ("trainer", "data", "torch", "transformers", "trl"),
    "trainer": ("env_server", "fastapi", "starlette", "uvicorn", "apsw"),
    "data": ("env_server", "trainer", "torch", "fastapi", "starlette", "transformers", "trl"),
}

# Inside the server: a floor may import those below it, never one above. Modules not named here
# (settings, service, the command line) serve any floor; that nobody climbs by way of them is for
# `test_no_cycle` to show.
FLOORS = [("app",), ("http",), ("pool",), ("environment",),
          ("rewards", "verifier", "questions", "render"), ("sql",)]  # fmt: skip


def modules() -> list[str]:
    found = [
        path.relative_to(ROOT) for room in OURS for path in sorted((ROOT / room).rglob("*.py"))
    ]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in found]


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports_of(module: str) -> Iterator[str]:
    """Every absolute name that `module` imports, at any depth: `a.b` for `import a.b` and `from a
    import b`."""
    path = source_of(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def floor_of(name: str) -> int | None:
    part = name.split(".")[1] if name.startswith("env_server.") else None
    return next((height for height, rooms in enumerate(FLOORS) if part in rooms), None)


MODULES = modules()


@pytest.mark.parametrize("room", OURS)
def test_each_room_imports_only_what_it_may(room: str) -> None:
    broken = [
        f"{module} imports {name}"
        for module in MODULES
        if module.split(".")[0] == room
        for name in imports_of(module)
        if name.split(".")[0] in FORBIDDEN[room]
    ]
    assert broken == []


def test_inside_the_server_nothing_imports_a_floor_above_it() -> None:
    broken = [
        f"{module} imports {name}"
        for module in MODULES
        for name in imports_of(module)
        if (here := floor_of(module)) is not None
        and (there := floor_of(name)) is not None
        and there < here
    ]
    assert broken == []


@pytest.mark.parametrize(
    "package",
    [
        "env_server.sql",
        pytest.param(
            "env_server.conformance", id="env_server.conformance, which is for any server"
        ),
    ],
)
def test_some_packages_import_nothing_of_the_server_but_themselves(package: str) -> None:
    broken = [
        f"{module} imports {name}"
        for module in MODULES
        if module.startswith(package)
        for name in imports_of(module)
        if name.split(".")[0] == "env_server" and not name.startswith(package)
    ]
    assert broken == []


def test_no_cycle() -> None:
    """No module imports itself by way of others, by imports inside functions neither."""
    graph = {module: sorted(set(edges(module))) for module in MODULES}
    state: dict[str, int] = {}

    def visit(module: str, path: list[str]) -> None:
        if state.get(module) == 1:
            raise AssertionError("cycle: " + " -> ".join([*path[path.index(module) :], module]))
        if module not in state:
            state[module] = 1
            for other in graph[module]:
                visit(other, [*path, module])
            state[module] = 2

    for module in MODULES:
        visit(module, [])


def edges(module: str) -> Iterator[str]:
    known = set(MODULES)
    for name in imports_of(module):
        target = name if name in known else name.rpartition(".")[0]
        if target in known and target != module:
            yield target


def test_the_checks_see_something() -> None:
    assert {"shared.client", "shared.errors"} <= set(MODULES)
    assert "shared.client.sync.SyncSQLEnvClient" in set(imports_of("shared.client"))
    # inside a function
    assert "trainer.rollout.generators.local.LocalGenerator" in set(
        imports_of("trainer.rollout.loop")
    )
