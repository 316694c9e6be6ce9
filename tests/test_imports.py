"""Which package may import which, as in ARCHITECTURE.md: every import statement is checked, at any
depth of the code. And every third-party module that a package imports is declared."""

import ast
import functools
import graphlib
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
OURS = ("shared", "env_server", "trainer", "data")

# package -> what it may not import
FORBIDDEN = {
    "shared": (
        "env_server", "trainer", "data",
        "torch", "fastapi", "starlette", "uvicorn", "transformers", "trl",
    ),
    "env_server": ("trainer", "data", "torch", "transformers", "trl"),
    "trainer": ("env_server", "data", "fastapi", "starlette", "uvicorn", "apsw"),
    "data": ("env_server", "trainer", "torch", "fastapi", "starlette", "transformers", "trl"),
}  # fmt: skip

# package -> floors of units (modules and sub-packages directly inside it), the highest first. A
# unit imports only units of lower floors.
FLOORS = {
    "shared": (
        ("server_process",), ("run_files",), ("run_stats",), ("agents", "dataset"), ("client",),
        ("models", "pages"), ("actions", "console"),
        ("order_by",),
        ("answers", "code_digest", "errors", "key_files", "sql_parser", "seeds", "shipped"),
        ("sqltext", "subset"),
    ),
    "env_server": (
        ("__main__",), ("asgi", "commands"), ("app",), ("page",), ("audit", "http"), ("service",),
        ("episode_pool", "rules"), ("store",), ("episode",), ("describe",), ("questions",),
        ("telemetry",),
        ("verifier", "rewards"), ("render", "tries"), ("sql",), ("settings",),
    ),
    "trainer": (
        ("__main__", "prompts", "rewards"), ("improve", "train_command"),
        ("grpo", "play", "pretraining", "report", "sft"),
        ("run",), ("rollout",), ("runtime",), ("charts", "config", "errors"),
    ),
    "data": (
        ("__main__",), ("commands",), ("introspection",),
        ("audit", "generate"), ("build", "sources"),
        ("choose",),
        ("domains",), ("golds",), ("cell_formats",), ("column_names",),
    ),
}  # fmt: skip

# packages that import nothing of the package around them: any server can be checked without ours
SELF_CONTAINED = ("env_server.sql", "tests.conformance", "tests.chaos")


def modules(package: str) -> list[str]:
    paths = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def imports_of(module: str) -> tuple[str, ...]:
    """Return what `module` imports: `a.b` for `import a.b` and for `from a import b`."""
    return tuple(_imports_of(module))


def _imports_of(module: str) -> Iterator[str]:
    path = source_of(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def unit_of(name: str) -> str:
    """Return the unit that a dotted name lies in: `trainer.run` for `trainer.run.folder.Run`."""
    return ".".join(name.split(".")[:2])


MODULES = [module for package in OURS for module in modules(package)]
UNITS = {unit_of(module) for module in MODULES} - set(OURS)
FLOOR = {
    f"{package}.{unit}": height
    for package, floors in FLOORS.items()
    for height, units in enumerate(reversed(floors))
    for unit in units
}


def climbs(module: str, names: Iterable[str]) -> list[str]:
    """Return the imports, among `names`, of a unit that is not on a lower floor of its package."""
    own = unit_of(module)
    targets = {unit_of(name) for name in names} & UNITS - {own}
    return [
        f"{module} imports {target}"
        for target in sorted(targets)
        if own.split(".")[0] == target.split(".")[0] and FLOOR[target] >= FLOOR[own]
    ]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    broken = [
        f"{module} imports {name}"
        for module in modules(package)
        for name in imports_of(module)
        if name.split(".")[0] in (*FORBIDDEN[package], "sqlenv", "tests", "benchmarks")
    ]
    assert broken == []


def test_every_unit_has_a_floor() -> None:
    assert sorted(UNITS - FLOOR.keys()) == [], "add it to FLOORS"
    assert sorted(FLOOR.keys() - UNITS) == [], "remove it from FLOORS"


@pytest.mark.parametrize("package", OURS)
def test_units_import_only_lower_floors(package: str) -> None:
    own = [one for one in MODULES if one.startswith(f"{package}.") and unit_of(one) in UNITS]
    assert [line for module in own for line in climbs(module, imports_of(module))] == []


@pytest.mark.parametrize("package", SELF_CONTAINED)
def test_some_packages_import_nothing_around_them(package: str) -> None:
    around = {package.split(".")[0], "env_server"}
    broken = [
        f"{module} imports {name}"
        for module in modules(package.replace(".", "/"))
        if ".test_" not in module
        for name in imports_of(module)
        if name.split(".")[0] in around and unit_of(name) != package
    ]
    assert broken == []


def test_no_cycle() -> None:
    """No module imports itself through others, also not by imports inside functions."""
    graphlib.TopologicalSorter({module: set(edges(module)) for module in MODULES}).prepare()


def edges(module: str) -> Iterator[str]:
    known = set(MODULES)
    for name in imports_of(module):
        target = name if name in known else name.rpartition(".")[0]
        if target in known and target != module:
            yield target


@pytest.mark.parametrize(
    ("module", "name", "climbing"),
    [
        ("trainer.run.folder", "trainer.rollout.row.RolloutRow", False),
        ("trainer.rollout.loop", "trainer.run.folder.Run", True),
        ("trainer.grpo.grpo_job", "trainer.pretraining.imitation.fit", True),
        ("env_server.episode_pool", "env_server.http.requests", True),
        ("shared.client.limits", "shared.errors.SQLEnvError", False),
    ],
)
def test_the_floors_see_a_violation(module: str, name: str, climbing: bool) -> None:
    assert bool(climbs(module, iter([name]))) is climbing


EXTRAS = {
    "shared": [],
    # of shared, but imported only by env_server, data, and play, which hosts a server
    "shared.order_by": ["server"],
    "shared.sql_parser": ["server"],
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


@pytest.mark.slow
def test_training_and_play_need_no_library_of_an_optional_extra() -> None:
    """In a process of its own, in which the libraries of `api` and `lora` cannot be imported."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(['openai', 'peft'])\n"
        "import trainer.grpo.grpo_job, trainer.play.agent, trainer.run.evaluation"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
