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


def unit_of(name: str, units: set[str]) -> str | None:
    """Return the unit (`package.child`) that a dotted name lies in, or None."""
    unit = ".".join(name.split(".")[:2])
    return unit if unit in units else None


def measure(package: Path) -> tuple[int, int, int, int]:
    """Return the numbers of units, files, lines and arrows of one package."""
    files = [path for path in package.rglob("*.py") if path.stat().st_size]
    units = {
        f"{package.name}.{path.relative_to(package).with_suffix('').parts[0]}"
        for path in files
        if path != package / "__init__.py"
    }
    arrows = set()
    for path in files:
        here = unit_of(".".join(path.relative_to(package.parent).with_suffix("").parts), units)
        targets = {unit_of(name, units) for name in imported_names(path)} - {None, here}
        arrows |= {(here, target) for target in targets if here}
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    return len(units), len(files), lines, len(arrows)


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    print(f"{'package':12} {'units':>6} {'files':>6} {'lines':>7} {'arrows':>7}")
    for name in PACKAGES:
        units, files, lines, arrows = measure(root / name)
        print(f"{name:12} {units:6} {files:6} {lines:7,} {arrows:7}")


if __name__ == "__main__":
    main()
