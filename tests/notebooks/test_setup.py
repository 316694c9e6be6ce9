"""The notebook's setup: Colab is recognised, its torch is kept, and the machine is named."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.runtime import notebook
from trainer.runtime.notebook import install_missing, keep_torch, on_colab

ROOT = Path(__file__).parents[2]
COLAB = {"torch": "2.9.1+cu126", "torchvision": "0.24.1+cu126", "triton": "3.5.1", "numpy": "2.0.2"}


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be a fresh Colab session: its packages, its torch, and none of this project's."""
    find, missing = importlib.util.find_spec, {"apsw", "trl"}

    def version(name: str) -> str:
        if name not in COLAB:
            raise importlib.metadata.PackageNotFoundError(name)
        return COLAB[name]

    monkeypatch.setattr(notebook, "NEEDED", ("torch", "apsw", "trl"))
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(notebook, "PRELOADED", ())


class Pip:
    """Stands in for `subprocess.run`, and reads the constraints while they exist."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.constraints: list[str] = []

    def __call__(self, command: list[str], check: bool) -> None:
        assert check
        self.command = command
        path = Path(command[command.index("-c") + 1])
        self.constraints = path.read_text().splitlines()


def test_colab_is_recognised_by_its_variable_alone() -> None:
    assert on_colab({"COLAB_RELEASE_TAG": "release-colab-external_20261119"})
    assert not on_colab({})


def test_colab_installs_under_constraints_and_keeps_its_torch(colab: None) -> None:
    pip = Pip()
    assert install_missing(ROOT, pip)
    assert pip.command[:4] == [sys.executable, "-m", "pip", "install"]
    assert pip.command[-2:] == ["-e", f"{ROOT}[server,trainer]"]
    pinned = dict(line.split("==") for line in pip.constraints if "==" in line)
    assert not pinned.keys() & {"torch", "torchvision", "triton"}
    given = (ROOT / "constraints.txt").read_text().splitlines()
    others = [line for line in given if "==" in line and not line.startswith("torch==")]
    assert others
    assert set(others) <= set(pip.constraints)


def test_pins_of_another_cuda_are_dropped_with_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_version", COLAB.get)
    lines = "# note\ntorch==2.13.0\nnvidia-nccl-cu12==2.29\ntorchmetrics==1.9\nrich==14.2\n"
    assert keep_torch(lines).splitlines() == ["# note", "torchmetrics==1.9", "rich==14.2"]


def test_a_package_replaced_while_loaded_asks_for_a_new_session(
    colab: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "PRELOADED", ("numpy",))
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__version__="1.26.4"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="numpy changed while loaded: restart the session"):
        install_missing(ROOT, Pip())


def test_where_everything_is_installed_nothing_is() -> None:
    def pip(*_: Any, **__: Any) -> None:
        raise AssertionError("pip was called")

    assert not install_missing(ROOT, pip)


def test_the_setup_is_imported_without_any_package() -> None:
    """It runs before anything is installed: -S leaves out site-packages."""
    code = "import trainer.runtime.notebook as setup; print(setup.on_colab({}))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
