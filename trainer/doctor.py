"""`python -m trainer doctor`: what this machine has for a training run, what is missing and the
command that gets it.

Every check runs alone and imports what it checks only then, so that the doctor also works where
packages are missing.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MIN_PYTHON = (3, 11)
# where the sources lie: pyproject.toml is there in a checkout
ROOT = Path(__file__).resolve().parent.parent
SERVER_MODULES = ("env_server", "fastapi", "uvicorn", "apsw", "pydantic_settings")
INSTALL = "make install   (or: pip install -c constraints.txt -e '.[dev]')"


class Status(StrEnum):
    OK = "ok"
    NOTE = "note"  # missing, but the offline job runs without it
    FAIL = "fail"  # the offline job can't run


@dataclass(frozen=True)
class Finding:
    """One line of the report. `remedy` is the exact command, or empty."""

    name: str
    status: Status
    found: str
    remedy: str = ""


def requirements() -> list[tuple[str, str, str]]:
    """(extra, package, specifier) of every requirement of this project; the extra is "" for those
    that always apply.

    Read from pyproject.toml in a checkout, else from the installed package; markers are dropped.
    """
    path = ROOT / "pyproject.toml"
    if path.is_file():
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        groups = {"": project["dependencies"], **project["optional-dependencies"]}
        pairs = [(extra, text) for extra, texts in groups.items() for text in texts]
    else:
        pairs = []
        for text in importlib.metadata.requires("sqlenv") or []:
            marker = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
            pairs.append((marker[1] if marker else "", text))
    found = []
    for extra, text in pairs:
        match = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)", text)
        if match and match[1] != "sqlenv":
            found.append((extra, match[1], match[2].strip()))
    return found


def _version(text: str) -> tuple[int, ...]:
    """The release part of a version as numbers: "2.13.0+cpu" is (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def _satisfies(version: str, specifier: str) -> bool:
    """Whether a version meets `>=` bounds, the only kind that this project writes."""
    bounds = [
        part.strip().removeprefix(">=")
        for part in specifier.split(",")
        if part.strip().startswith(">=")
    ]
    return all(_version(version) >= _version(bound) for bound in bounds)


def check_python() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info[:2] >= MIN_PYTHON
    needed = ".".join(map(str, MIN_PYTHON))
    yield Finding(
        "Python",
        Status.OK if ok else Status.FAIL,
        f"{found} at {sys.executable}",
        "" if ok else f"install Python {needed} or newer, then: make install PYTHON=python{needed}",
    )


def check_packages(extras: tuple[str, ...] = ("", "server", "trainer", "dev")) -> Iterator[Finding]:
    """One line a package. Those of `dev` are only noted: they are for tests."""
    for extra, package, specifier in requirements():
        if extra not in extras:
            continue
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        ok = bool(version) and _satisfies(version, specifier)
        if ok and extra == "dev":
            continue
        bad = Status.NOTE if extra == "dev" or package in ("uvloop", "httptools") else Status.FAIL
        shown = (
            (version or "not installed")
            if ok
            else f"{version or 'not installed'}, needs {specifier or 'any version'}"
        )
        yield Finding(package, Status.OK if ok else bad, shown, "" if ok else INSTALL)


def check_device() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("device", Status.FAIL, "no torch", INSTALL)
        return
    import torch

    from trainer.runtime.cpu_budget import usable_cores, usable_threads

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            native = (
                "native" if torch.cuda.is_bf16_supported(including_emulation=False) else "emulated"
            )
            memory = properties.total_memory / 2**30
            yield Finding(
                "device",
                Status.OK,
                f"cuda:{index} {properties.name}, {memory:.0f} GiB, bfloat16 {native}",
            )
    else:
        yield Finding(
            "device", Status.OK, "no CUDA device: the CPU, which is what the offline preset uses"
        )
    threads = usable_threads(torch.get_num_threads())
    yield Finding(
        "threads",
        Status.OK,
        f"{usable_cores()} CPU cores for this process, training uses {threads} threads",
    )


def check_server(urls: list[str]) -> Iterator[Finding]:
    """Every URL's health and data; without a URL, whether a run can start a server of its own."""
    if not urls:
        missing = [name for name in SERVER_MODULES if importlib.util.find_spec(name) is None]
        yield Finding(
            "server",
            Status.FAIL if missing else Status.OK,
            f"can't be started: no module {', '.join(missing)}"
            if missing
            else "none named: a run starts its own",
            INSTALL if missing else "",
        )
        return
    import httpx

    from shared.client.auth import bearer

    for url in urls:
        try:
            reply = httpx.get(f"{url.rstrip('/')}/metadata", headers=bearer(), timeout=5.0)
            reply.raise_for_status()
            facts = reply.json()
            served = f"questions {facts['questions']} on {facts['databases']} databases, data {facts['data_digest']}"
            rules = f"rewards {facts['reward_version']}, SQLite {facts['sqlite_version']}"
            found = f"{url}: version {facts['version']}, {rules}, {served}"
            yield Finding("server", Status.OK, found)
        except (httpx.HTTPError, ValueError, KeyError, TypeError, httpx.InvalidURL) as error:
            yield Finding(
                "server",
                Status.FAIL,
                f"{url}: {type(error).__name__}: {error}",
                "python -m env_server --host 127.0.0.1 --port 8000 --data data   (or leave --server out)",
            )


def check_data(data_dir: Path) -> Iterator[Finding]:
    if importlib.util.find_spec("pydantic") is None:
        yield Finding("data", Status.FAIL, "can't be read without pydantic", INSTALL)
        return
    from shared.dataset import check_databases, data_digest, load_questions, questions_path
    from shared.errors import DataError

    whole = True
    for split in ("train", "eval"):
        path = questions_path(data_dir, split)
        try:
            questions = load_questions(path)
            check_databases(data_dir, questions)
        except DataError as error:
            whole = False
            yield Finding(f"{split} questions", Status.FAIL, str(error), "python -m data build")
            continue
        levels = Counter(question.difficulty for question in questions)
        parts = ", ".join(f"{levels[level]} {level}" for level in ("easy", "medium", "hard"))
        databases = len({question.database_name for question in questions})
        yield Finding(
            f"{split} questions",
            Status.OK,
            f"{path}: {len(questions)} ({parts}) on {databases} databases",
        )
    if whole:
        yield Finding("data digest", Status.OK, data_digest(data_dir))


def check_model(name: str) -> Iterator[Finding]:
    """Whether the base model is here. A hub name is only noted: it would be downloaded."""
    from trainer.runtime.models import looks_local

    path = Path(name)
    weights = sorted(path.glob("*.safetensors"))
    if weights and (path / "config.json").is_file():
        digest = hashlib.sha256(
            b"".join(hashlib.sha256(file.read_bytes()).digest() for file in weights)
        ).hexdigest()
        size = sum(file.stat().st_size for file in path.iterdir() if file.is_file()) / 2**20
        yield Finding("model", Status.OK, f"{path}: {size:.1f} MiB, weights {digest[:12]}")
    elif not looks_local(name):
        yield Finding(
            "model", Status.NOTE, f"{name} is not a directory: it would be downloaded from the hub"
        )
    else:
        yield Finding(
            "model",
            Status.FAIL,
            f"no model at {path}",
            "python -m trainer pretrain   (takes about an hour)",
        )


def check_spider() -> Iterator[Finding]:
    named = os.environ.get("SPIDER_DIR", "")
    if named and Path(named).is_dir():
        yield Finding(
            "Spider",
            Status.OK,
            f"{named} (SPIDER_DIR)",
            f"python -m data import spider {named} --out spider",
        )
        return
    where = f"SPIDER_DIR is {named}, which is no folder" if named else "SPIDER_DIR is not set"
    yield Finding(
        "Spider", Status.NOTE, f"{where}; real data is optional", "python -m data fetch spider"
    )


def examine(data_dir: Path, model: str, urls: list[str]) -> list[Finding]:
    """Every check in order. A check that fails by itself becomes a finding and does not end the
    others."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("Python", check_python),
        ("packages", check_packages),
        ("device", check_device),
        ("server", lambda: check_server(urls)),
        ("data", lambda: check_data(data_dir)),
        ("model", lambda: check_model(model)),
        ("Spider", check_spider),
    ]
    findings: list[Finding] = []
    for name, check in checks:
        try:
            findings.extend(check())
        except Exception as error:  # the doctor reports whatever is broken
            findings.append(Finding(name, Status.FAIL, f"{type(error).__name__}: {error}", INSTALL))
    return findings


def can_run(findings: list[Finding]) -> bool:
    """Whether nothing that the offline job needs is missing."""
    return all(finding.status is not Status.FAIL for finding in findings)
