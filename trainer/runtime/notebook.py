"""The setup of a notebook: before `install_missing` has run, it needs only the standard library. As
a program, it writes the pictures of a notebook's outputs beside it, for the walkthrough."""

import base64
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

NEEDED = ["apsw", "fastapi", "httpx", "matplotlib", "rich", "sqlglot", "torch", "trl", "uvicorn"]
# a hosted machine has the build of these that its GPU needs
TORCH_PACKAGES = ("torch", "torchvision", "torchaudio", "triton")
# may be loaded before the first cell; another version then takes a new session
PRELOADED = ("numpy", "matplotlib", "rich")


def install_missing(root: Path, run: Callable[..., Any] = subprocess.run) -> bool:
    """Install the project in `root` under its constraints if a package is missing; an installed
    torch is kept. Return whether it installed; `RuntimeError` if the session must be restarted."""
    if all(importlib.util.find_spec(name) for name in NEEDED):
        return False
    with tempfile.TemporaryDirectory(prefix="sqlenv-install-") as folder:
        constraints = Path(folder) / "constraints.txt"
        given = (root / "constraints.txt").read_text(encoding="utf-8")
        constraints.write_text(keep_torch(given), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "-q", "-c", str(constraints)]
        run([*pip, "-e", f"{root}[server,trainer]"], check=True)
    importlib.invalidate_caches()
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in PRELOADED}
    if stale := [name for name, version in loaded.items() if version not in (None, _version(name))]:
        raise RuntimeError(
            f"{', '.join(stale)} changed while loaded: restart the session (on Colab: Runtime > "
            "Restart session) and run all cells again"
        )
    return True


def keep_torch(constraints: str) -> str:
    if _version("torch") is None:
        return constraints
    cuda = re.compile(rf"^(?:{'|'.join(TORCH_PACKAGES)}|nvidia-[\w-]+)\s*==.*\n?", re.MULTILINE)
    return cuda.sub("", constraints)


def machine() -> str:
    import psutil
    import torch

    device = "no GPU"
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        device = f"GPU {gpu.name} with {gpu.total_memory / 2**30:.0f} GiB"
    cpu = f"{os.cpu_count()} CPU cores with {psutil.virtual_memory().total / 2**30:.0f} GiB"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{platform.system()}: {device}, {cpu}, {versions}"


def write_pictures(notebook: Path) -> None:
    """Write the PNGs of a notebook's outputs to figure1.png, figure2.png, ... beside it."""
    cells = json.loads(notebook.read_bytes())["cells"]
    found = (one.get("data", {}) for cell in cells for one in cell.get("outputs", []))
    pictures = [data["image/png"] for data in found if "image/png" in data]
    for number, picture in enumerate(pictures, start=1):
        (notebook.parent / f"figure{number}.png").write_bytes(base64.b64decode(picture))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
