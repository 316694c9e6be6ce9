"""The documentation is right: its commands parse with their real options, its links lead somewhere,
every page is listed, and all are short. `test_readme.py` runs the commands that are quick enough.

The last tests compare what `make train` runs with its options.
"""

import importlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.test_imports import ROOT

FOLDERS = ("", "docs", "notebooks", "data/models/*", "tests/conformance/hostile", "tests/mutation")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in FOLDERS
    for path in ROOT.glob(f"{folder}/*.md".lstrip("/"))
    if path.name != "CHANGELOG.md"
)
APPS = {
    "trainer": ("trainer.__main__", "app"),
    "env_server": ("env_server.commands", "command"),
    "data": ("data.commands", "app"),
}
SHOWN = {"N": "1", "S": "1"}  # what stands for a number
PROGRAMS = r"(?:trainer|env_server|data|benchmarks|tests\.(?:chaos|conformance))"
COMMAND = re.compile(rf"(?:^|\s)(python -m {PROGRAMS}\b.*|make [a-z].*)")


def commands(page: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of a page's commands, and whether each is complete, as in a block."""
    text = (ROOT / page).read_text().replace(".venv/bin/", "")
    blocks = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for language, block in blocks.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if not language else ():
            if re.match(r"[$\w.]", line) and (found := COMMAND.search(line)):
                yield words_of(found[1]), True
    for inline in re.findall(r"`([^`]+)`", blocks.sub("", text)):
        if found := COMMAND.search(" ".join(inline.split())):
            yield words_of(found[1]), False


def words_of(command: str) -> list[str]:
    """Return a command's words: one of alternatives, optional ones too, and values for numbers."""
    command = re.split(r"\s[#&>]|\s->", command)[0]
    command = re.sub(r"[][]|(?<=\s)\.\.\.(?=\s|$)", "", command)
    words = shlex.split(re.sub(r"([\w.]+)\|[\w|.]+", r"\1", command))
    return [SHOWN.get(word, word) for word in words]


def problem(name: str, words: list[str]) -> str | None:
    """Return what is wrong with the words of `python -m name`, whose command is not run."""
    module, attribute = APPS.get(name, (name, "app"))
    found = importlib.import_module(module)
    if name not in APPS and hasattr(found, "__path__"):
        found = importlib.import_module(f"{name}.__main__")
    if (app := getattr(found, attribute, None)) is None:  # it calls typer.run(main)
        app = typer.Typer()
        app.command()(found.main)
    program = typer.main.get_command(app)
    disarm(program)
    try:
        program.main(words, prog_name=name, standalone_mode=False)
    except Exception as error:  # typer has classes of its own for click's
        if getattr(error, "exit_code", 0) != 2:
            raise
        return f"{type(error).__name__}: {error}"
    return None


def disarm(command: Any) -> None:
    """Let a command only parse, and its subcommands."""
    command.callback = None
    for one in getattr(command, "commands", {}).values():
        disarm(one)


def check_make(words: list[str]) -> None:
    text = (ROOT / "Makefile").read_text()
    for word in words:
        name, equals, _ = word.partition("=")
        assert f"$({name})" in text if equals else re.search(rf"^{name}:", text, re.MULTILINE), word


def check(words: list[str], complete: bool) -> None:
    if words[0] == "make":
        check_make(words[1:])
    elif said := problem(words[2], words[3:]):
        assert not complete, (words, said)
        assert re.search("MissingParameter|NoArgsIsHelp|requires an argument", said), (words, said)


def is_benchmark(words: list[str]) -> bool:
    return words[:2] == ["python", "-m"] and words[2].startswith("benchmarks.")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one(page):
    for words, complete in commands(page):
        if not is_benchmark(words):
            check(words, complete)


@pytest.mark.slow  # they import torch
def test_every_benchmark_is_one():
    found = [one for page in PAGES for one in commands(page) if is_benchmark(one[0])]
    assert len(found) >= 5
    for words, complete in found:
        check(words, complete)


def test_a_wrong_option_or_target_is_found():
    assert "--colour" in str(problem("trainer", ["train", "--colour", "red"]))
    assert "paint" in str(problem("data", ["paint"]))
    assert problem("trainer", ["evaluate", "--policy", "luck"])
    assert problem("trainer", ["train", "--steps", "3"]) is None
    with pytest.raises(AssertionError):
        check_make(["train", "COLOUR=red"])


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    here = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", here.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        there = here.parent / name if name else here
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_the_list_of_pages_is_whole():
    listed = set(re.findall(r"\]\(([\w./-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    present = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert present == {name for name in listed if "/" not in name}


def tracked_pages() -> list[Path]:
    """Return all Markdown that git tracks; where git is absent, the pages of PAGES and the rest."""
    try:
        command = ["git", "ls-files", "*.md"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        names = done.stdout.split()
    except (OSError, subprocess.CalledProcessError):
        names = []
    return [ROOT / name for name in names or (*PAGES, "CHANGELOG.md")]


def test_the_pages_are_short():
    words = {str(page.relative_to(ROOT)): len(page.read_text().split()) for page in tracked_pages()}
    assert {name: count for name, count in words.items() if count > 1_500} == {}
    assert words["README.md"] <= 600
    assert sum(words.values()) <= 20_000, words


def make_commands(*options: str) -> list[str]:
    make = ["make", "-n", "train", *options]
    found = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if " -m trainer " in line]


def test_a_warm_start_comes_first_and_its_model_is_trained():
    taught, trained = make_commands("MODEL=/models/qwen", "WARM_START=3", "SEED=2")
    assert shlex.split(taught)[3:] == (
        ["sft", "--seed", "2", "--model", "/models/qwen", "--rows", "3"]
    )
    assert '--model "$(cd runs/latest && pwd -P)/model"' in trained


@pytest.mark.parametrize(
    "options", [("MODEL=/models/qwen",), ("RESUME=runs/latest", "WARM_START=3")], ids=str
)
def test_no_warm_start_without_the_option_or_in_a_resumed_run(options):
    [trained] = make_commands(*options)
    assert " -m trainer train " in trained
