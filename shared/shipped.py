"""What every package may import: the files that ship with the packages, `data/databases`,
`data/questions` and `data/models`, and what they need.

A relative path that starts with `data/` is looked up in the working directory first. Where nothing
exists there, the file of that name beside the installed packages is used. So the defaults work from
any folder, and a checkout's or a user's own `data/` always wins.
"""

from pathlib import Path

NEEDS_UNIX = (
    "this needs Linux or macOS: on Windows, run it in WSL (wsl --install) or with Docker "
    "(docker compose up)"
)
INSTALLED = Path(__file__).resolve().parents[1]  # holds shared/, env_server/, trainer/ and data/


def shipped_path(path: str | Path) -> Path:
    """Return the path to read for `path`: itself, or the shipped file where only that exists."""
    path = Path(path)
    if path.is_absolute() or path.parts[:1] != ("data",) or path.exists():
        return path
    shipped = INSTALLED / path
    return shipped if shipped.exists() else path
