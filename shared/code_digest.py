"""A digest of source files, so that a result names the code that decided it."""

import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def code_digest(*names: str) -> str:
    """Return a digest of Python files, and of those in folders, named from the packages' parent."""
    total = hashlib.sha256()
    for name in names:
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{file.relative_to(ROOT).as_posix()} {content}\n".encode())
    return total.hexdigest()
