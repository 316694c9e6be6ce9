"""notebooks/train_grpo.ipynb: the order of its cells, its committed outputs; slow: a whole run.

In its setup, what is missing is installed, and a hosted machine's torch is kept.
"""

import ast
import builtins
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.model_families import tiny_model, tiny_tokenizer
from trainer.config.presets import PRESETS, SAVED_AS
from trainer.runtime import notebook
from trainer.runtime.models import preset_of
from trainer.runtime.notebook import install_missing, keep_torch, write_pictures

ROOT = Path(__file__).parents[2]
PACKAGES = ("sqlenv", "trainer.", "shared.", "env_server.", "data.")
NOTEBOOK = ROOT / "notebooks" / "train_grpo.ipynb"
SECTIONS = (
    "Setup",
    "Configuration",
    "Smoke test",
    "Baseline",
    "Training",
    "Summary",
    "Transcripts",
    "mean",
    "left",
)


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    return dict(json.loads(NOTEBOOK.read_text(encoding="utf-8")))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((one.asname or one.name).split(".")[0] for one in node.names)
        elif isinstance(node, ast.FunctionDef):
            yield node.name
            yield from (one.arg for one in node.args.args)


def test_a_cell_uses_only_names_of_itself_and_earlier_cells(committed):
    known = set(dir(builtins))
    for cell in code_cells(committed):
        tree = ast.parse(source(cell))
        known |= set(bound(tree))
        used = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        assert used <= known, f"{sorted(used - known)} in:\n{source(cell)}"


def test_every_section_exists_and_its_models_are_presets(committed):
    headings = [
        source(cell).splitlines()[0]
        for cell in committed["cells"]
        if source(cell).startswith("## ")
    ]
    assert [heading.split(".")[0] for heading in headings] == [
        f"## {number}" for number in range(1, len(SECTIONS) + 1)
    ]
    assert all(part in heading for part, heading in zip(SECTIONS, headings, strict=True))
    code = "\n".join(source(cell) for cell in code_cells(committed))
    defaults = re.findall(r'^DEFAULT_MODEL = "(.*)" if GPU else "(.*)"$', code, re.MULTILINE)
    for model in defaults[0]:
        assert PRESETS[preset_of(model, served=True).preset]["model_name"] == model


def test_calls_give_the_arguments_that_the_projects_functions_take(committed):
    """A changed signature shows here, and not only in the slow run below."""
    functions: dict[str, Any] = {}
    called = 0
    for cell in code_cells(committed):
        nodes = list(ast.walk(ast.parse(source(cell))))
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
                module = importlib.import_module(str(node.module))
                functions |= {
                    one.asname or one.name: getattr(module, one.name) for one in node.names
                }
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            spread = any(isinstance(one, ast.Starred) for one in node.args)
            if node.func.id in functions and not spread and all(one.arg for one in node.keywords):
                signature = inspect.signature(functions[node.func.id])
                signature.bind(*node.args, **{str(one.arg): one for one in node.keywords})
                called += 1
    assert called > 15


def check_outputs(notebook: dict[str, Any]) -> None:
    outputs = {index: cell["outputs"] for index, cell in enumerate(code_cells(notebook))}
    texts = {
        index: "".join(
            "".join(one.get("text", one.get("data", {}).get("text/plain", ""))) for one in found
        )
        for index, found in outputs.items()
    }
    assert not [one for found in outputs.values() for one in found if one["output_type"] == "error"]
    everything = "\n".join(texts.values())
    assert "Loaded " in everything
    assert " questions: " in everything
    assert "DESCRIBE: " in everything
    assert "Smoke test passed" in everything
    assert "the live view failed 0 times" in everything
    assert "right before" in everything
    assert "python -m env_server verify" in everything

    def having(kind: str) -> list[int]:
        return [
            index
            for index, found in outputs.items()
            for one in found
            if kind in one.get("data", {})
        ]

    training = next(
        index for index, cell in enumerate(code_cells(notebook)) if "build_trainer" in source(cell)
    )
    pictures = having("image/png")
    assert pictures.count(training) == 1  # redrawn in place: one figure for any number of steps
    assert len(pictures) == 2
    assert [index for index in having("text/markdown") if index > training]  # transcripts
    page = "".join(
        "".join(one["data"]["text/markdown"]) for found in outputs.values() for one in found
        if "text/markdown" in one.get("data", {})
    )  # fmt: skip
    assert "| random | before | after |" in page


def test_the_outputs_of_a_whole_run_are_committed(committed):
    assert [cell["execution_count"] for cell in code_cells(committed)] == list(
        range(1, len(code_cells(committed)) + 1)
    )
    check_outputs(committed)
    assert NOTEBOOK.stat().st_size < 500_000


def test_the_walkthrough_shows_the_pictures_of_the_committed_run(tmp_path):
    write_pictures(Path(shutil.copy(NOTEBOOK, tmp_path)))
    walkthrough = (NOTEBOOK.parent / "README.md").read_text(encoding="utf-8")
    for figure in tmp_path.glob("*.png"):
        assert (NOTEBOOK.parent / figure.name).read_bytes() == figure.read_bytes()
        assert f"]({figure.name})" in walkthrough


def test_outside_the_project_it_asks_for_the_git_url(committed, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", source(code_cells(committed)[0])],
        cwd=tmp_path,
        env={
            name: value
            for name, value in os.environ.items()
            if name not in ("SQLENV_SOURCE", "PYTHONPATH")
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "set SOURCE" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", ["shipped", "general"])
def test_it_runs_from_top_to_bottom(model, tmp_path, monkeypatch):
    """The general model is a random Llama in a folder, whose name gives it SmolLM2's preset."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("SQLENV_NOTEBOOK_STEPS", "2")
    monkeypatch.setenv("SQLENV_NOTEBOOK_QUESTIONS", "4")
    monkeypatch.setenv("SQLENV_NOTEBOOK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if model == "general":
        folder = tmp_path / "SmolLM2-135M-random"
        untrained = tiny_model("smollm2")
        brief = {"system_prompt": "short", "max_new_tokens": 24, "step_budget": 4}
        setattr(untrained.config, SAVED_AS, brief)
        untrained.save_pretrained(folder)
        tiny_tokenizer("smollm2").save_pretrained(folder)
        monkeypatch.setenv("SQLENV_NOTEBOOK_MODEL", str(folder))
        monkeypatch.setenv("SQLENV_NOTEBOOK_DEMONSTRATIONS", "8")
    notebook = nbformat.read(NOTEBOOK, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = nbclient.NotebookClient(
        notebook,
        timeout=800,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )
    client.execute()
    check_outputs(notebook)
    (run,) = (tmp_path / "runs").glob("*notebook-*")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["train_steps"] == 2
    assert summary["eval_success_after"]["greedy"]["overall"]["n"] == 4
    verified = subprocess.run(
        [sys.executable, "-m", "env_server", "verify", str(run)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    demonstrated = list((tmp_path / "runs" / "warm-start").glob("*/demonstrations.jsonl"))
    assert bool(demonstrated) == (model == "general")


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


def test_colab_installs_under_constraints_and_keeps_its_torch(colab):
    pip = Pip()
    assert install_missing(ROOT, pip)
    assert pip.command[:4] == [sys.executable, "-m", "pip", "install"]
    assert pip.command[-2:] == ["-e", f"{ROOT}[server,trainer]"]
    pinned = dict(line.split("==") for line in pip.constraints if "==" in line)
    assert not pinned.keys() & {"torch", "torchvision", "triton"}
    assert {"trl", "transformers"} <= pinned.keys()


def test_pins_of_another_cuda_are_dropped_with_torchs(monkeypatch):
    monkeypatch.setattr(notebook, "_version", COLAB.get)
    lines = "# note\ntorch==2.13.0\nnvidia-nccl-cu12==2.29\ntorchmetrics==1.9\nrich==14.2\n"
    assert keep_torch(lines).splitlines() == ["# note", "torchmetrics==1.9", "rich==14.2"]


def test_a_package_replaced_while_loaded_asks_for_a_new_session(colab, monkeypatch):
    monkeypatch.setattr(notebook, "PRELOADED", ("numpy",))
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__version__="1.26.4"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="numpy changed while loaded: restart the session"):
        install_missing(ROOT, Pip())


def test_where_everything_is_installed_nothing_is():
    def pip(*_: Any, **__: Any) -> None:
        raise AssertionError("pip was called")

    assert not install_missing(ROOT, pip)


def test_the_setup_is_imported_without_any_package():
    """It runs before anything is installed: -S leaves out site-packages."""
    code = "import trainer.runtime.notebook"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
