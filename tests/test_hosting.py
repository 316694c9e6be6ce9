"""What a host and its tools read agrees with the project: workflow, hooks, templates, citation."""

import re
import tomllib
from typing import Any

import yaml

from tests.test_docs import check_make
from tests.test_imports import ROOT


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_workflow_runs_what_is_there_on_three_versions_of_python():
    job = read(".github/workflows/ci.yml")["jobs"]["test"]
    runs = job["strategy"]["matrix"]["include"]
    versions = [run["python"] for run in runs]
    declared = [one.rpartition(" ")[2] for one in PROJECT["classifiers"]]
    assert {declared[0], declared[-1]} <= set(versions) <= set(declared)
    assert len(versions) == 3
    assert runs[0]["command"] == ".ci/run"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    for run in runs[1:]:
        make, *words = run["command"].split()
        assert make == "make"
        check_make(words)


def test_the_hooks_run_the_ruff_of_the_constraints():
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"\nruff=={repository['rev'].removeprefix('v')}\n" in constraints
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]


def test_the_templates_are_short():
    for path in (ROOT / ".github").glob("*.md"):
        assert len(path.read_text(encoding="utf-8").splitlines()) == 5, path


def test_the_citation_is_of_this_version():
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    required = {"cff-version", "message", "title", "authors"}
    assert required <= set(citation)
    assert re.fullmatch(r"1\.\d\.\d", citation["cff-version"])
