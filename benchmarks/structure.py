"""How is the code divided? Count each package's units, files, lines and import arrows.

    python benchmarks/structure.py [CHECKOUT]

A unit is a module or sub-package directly inside `shared`, `env_server`, `trainer` or `data`. An
arrow is a pair of units of which one imports the other; its number of import statements does not
matter. `CHECKOUT` is the root of any version of this repository, by default this one.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("shared", "env_server", "trainer", "data")


def imported_names(path: Path) -> Iterator[str]:
    """Yield every absolute name that a module imports, at any depth of its code."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def measure(package: Path) -> tuple[int, int, int, int]:
    """Return the numbers of units, files, lines and arrows of one package."""
    names = {  # path -> dotted name
        path: path.relative_to(package.parent).with_suffix("").as_posix().replace("/", ".")
        for path in package.rglob("*.py")
        if path.stat().st_size
    }
    units = {unit_of(name) for name in names.values()} - {f"{package.name}.__init__"}
    arrows = set()
    for path, name in names.items():
        here = unit_of(name)
        targets = {unit_of(imported) for imported in imported_names(path)}
        arrows |= {(here, target) for target in (targets & units) - {here} if here in units}
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in names)
    return len(units), len(names), lines, len(arrows)


def unit_of(name: str) -> str:
    """Return the first two parts of a dotted name, which may be a unit (`package.child`)."""
    return ".".join(name.split(".")[:2])


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    print(f"{'package':12} {'units':>6} {'files':>6} {'lines':>7} {'arrows':>7}")
    for name in PACKAGES:
        units, files, lines, arrows = measure(root / name)
        print(f"{name:12} {units:6} {files:6} {lines:7,} {arrows:7}")


if __name__ == "__main__":
    main()
