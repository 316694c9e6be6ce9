"""`python -m trainer doctor`: what this machine has for a training run, what is missing, and how to
get it.

Every check imports what it needs itself, so a missing package fails only that check.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from shared.console import counted
from shared.shipped import shipped_path

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"  # only in a checkout
SERVER_MODULES = ("env_server", "fastapi", "uvicorn", "apsw", "pydantic_settings")
OPTIONAL = ("uvloop", "httptools")  # the server also runs without them
if PYPROJECT.is_file():
    INSTALL = "make install   (or: pip install -c constraints.txt -e '.[dev]')"
    EXTRAS = ["", "server", "trainer", "dev"]
else:
    INSTALL = "pip install 'sqlenv[server,trainer]'"
    EXTRAS = ["", "server", "trainer"]


class Status(StrEnum):
    """Whether a check passed."""

    OK = "ok"
    NOTE = "note"  # something is missing that the offline job doesn't need
    FAIL = "fail"  # the offline job can't run


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report. `remedy` is the exact command, or empty."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def requirements() -> Iterator[tuple[str, "Requirement"]]:
    """Yield (extra, requirement) for this project's requirements on this platform.

    The extra is "" for the base requirements. They are read from pyproject.toml in a checkout, else
    from the installed package.
    """
    from packaging.requirements import Requirement

    if PYPROJECT.is_file():
        project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
        groups = {"": project["dependencies"], **project["optional-dependencies"]}
    else:
        texts = importlib.metadata.requires("sqlenv") or []
        extras = importlib.metadata.metadata("sqlenv").get_all("Provides-Extra") or []
        groups = {"": [text for text in texts if "extra ==" not in text]}
        groups |= {
            name: [text for text in texts if f'extra == "{name}"' in text] for name in extras
        }
    for extra, texts in groups.items():
        for requirement in map(Requirement, texts):
            marker = requirement.marker
            if requirement.name != "sqlenv" and (not marker or marker.evaluate({"extra": extra})):
                yield extra, requirement


def check_python() -> Iterator[Diagnosis]:
    """Report the version of Python; with an older one, this program does not start."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Diagnosis("Python", Status.OK, f"{version} at {sys.executable}")


def check_packages() -> Iterator[Diagnosis]:
    """Check every package, one line each; those for development only where one is missing."""
    seen = set[str]()
    for extra, requirement in requirements():
        package = requirement.name
        if extra not in EXTRAS or package in seen:
            continue
        seen.add(package)
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        else:
            if requirement.specifier.contains(version, prereleases=True):
                if extra != "dev":
                    yield Diagnosis(package, Status.OK, version)
                continue
        status = Status.NOTE if extra == "dev" or package in OPTIONAL else Status.FAIL
        detail = f"{version}, needs {requirement.specifier or 'any version'}"
        yield Diagnosis(package, status, detail, INSTALL)


def check_device() -> Iterator[Diagnosis]:
    """Check the GPUs, and report the CPU threads that training uses."""
    import torch

    from trainer.runtime.cpu_budget import usable_cores, usable_threads
    from trainer.runtime.optional_packages import can_compile_kernels

    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        detail = (
            f"cuda:{index} {properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"bfloat16 {'native' if native else 'emulated'}"
        )
        yield Diagnosis("device", Status.OK, detail)
    if torch.cuda.is_available() and not can_compile_kernels():
        detail = "no C compiler or no Python.h: without Triton's kernels, updates take more memory"
        remedy = "apt-get install gcc libc6-dev python3-dev"
        yield Diagnosis("C compiler", Status.NOTE, detail, remedy)
    if not torch.cuda.is_available():
        detail = "no CUDA device: training uses the CPU, as the offline preset does"
        yield Diagnosis("device", Status.OK, detail)
    threads = usable_threads(torch.get_num_threads())
    cores = counted(usable_cores(), "CPU core")
    detail = f"{cores} for this process, training uses {counted(threads, 'thread')}"
    yield Diagnosis("threads", Status.OK, detail)


def check_server(urls: list[str]) -> Iterator[Diagnosis]:
    """Check every URL's version and data; without URLs, whether a run can start its own server."""
    if not urls:
        missing = [name for name in SERVER_MODULES if importlib.util.find_spec(name) is None]
        if missing:
            detail = f"can't be started: no module {', '.join(missing)}"
            yield Diagnosis("server", Status.FAIL, detail, INSTALL)
        else:
            yield Diagnosis("server", Status.OK, "no --server given: a run starts its own")
        return
    import httpx

    from shared.client.auth import bearer
    from shared.client.proxies import proxy_of, through_proxy
    from shared.errors import ServerUnreachable

    start = "python -m env_server --host 127.0.0.1 --port 8000 --data data   (or omit --server)"
    for url in urls:
        try:
            transport = httpx.HTTPTransport(proxy=proxy_of(url))
            with httpx.Client(transport=transport, headers=bearer(), timeout=5.0) as http:
                metadata = http.get(f"{url.rstrip('/')}/metadata").raise_for_status().json()
            detail = (
                f"{url}: version {metadata['version']}, rewards {metadata['reward_version']}, "
                f"SQLite {metadata['sqlite_version']}, questions {metadata['questions']} on "
                f"{metadata['databases']} databases, data {metadata['data_digest']}"
            )
            yield Diagnosis("server", Status.OK, detail)
        except (
            *(httpx.HTTPError, httpx.InvalidURL, ServerUnreachable),
            *(ValueError, KeyError, TypeError),
        ) as error:
            detail = f"{url}{through_proxy(url)}: {type(error).__name__}: {error}"
            yield Diagnosis("server", Status.FAIL, detail, start)


def check_data(data_dir: Path) -> Iterator[Diagnosis]:
    """Check the questions and databases of a data directory."""
    from shared.dataset import (
        check_databases,
        data_digest,
        data_directory,
        load_questions,
        questions_path,
    )
    from shared.errors import DataError
    from shared.models import DIFFICULTIES

    if not data_directory(data_dir).is_dir():
        problem = f"no directory at {data_dir}"
        yield Diagnosis("data", Status.FAIL, problem, "pass an existing directory as --data")
        return
    complete = True
    for split in ("train", "eval"):
        name, path = f"{split} questions", questions_path(data_dir, split)
        try:
            questions = load_questions(path)
            check_databases(data_dir, questions)
        except DataError as error:
            complete = False
            yield Diagnosis(name, Status.FAIL, str(error))  # it names the remedy
            continue
        levels = Counter(question.difficulty for question in questions)
        counts = ", ".join(f"{levels[level]} {level}" for level in DIFFICULTIES)
        databases = len({question.database_name for question in questions})
        detail = f"{path}: {len(questions)} ({counts}) on {databases} databases"
        yield Diagnosis(name, Status.OK, detail)
    if complete:
        yield Diagnosis("data digest", Status.OK, data_digest(data_dir))


def check_model(name: str) -> Iterator[Diagnosis]:
    """Check that the base model is on this machine; a Hugging Face name is only noted."""
    from trainer.errors import ModelLoadError
    from trainer.runtime.models import check_directory, looks_local

    path = shipped_path(name)
    if not looks_local(str(path)):
        detail = f"{name} is not a directory: it would be downloaded from the Hugging Face hub"
        yield Diagnosis("model", Status.NOTE, detail)
        return
    try:
        check_directory(str(path))
    except ModelLoadError as error:
        yield Diagnosis("model", Status.FAIL, error.message)  # it names the remedy
        return
    weights = sorted(path.glob("*.safetensors"))
    digests = b"".join(map(_sha256, weights))
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file()) / 2**20
    detail = f"{path}: {size:.1f} MiB, weights {hashlib.sha256(digests).hexdigest()[:12]}"
    yield Diagnosis("model", Status.OK, detail)


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def check_memory(name: str) -> Iterator[Diagnosis]:
    """Compare the memory of training the model, by its preset, with this machine's."""
    import torch

    from trainer.config import GRPOConfig
    from trainer.runtime.memory import GIB, machine_memory, training_memory
    from trainer.runtime.models import preset_of, read_config
    from trainer.runtime.out_of_memory import remedies
    from trainer.runtime.precision import precision

    choice = preset_of(name, served=True)
    yield Diagnosis("preset", Status.OK, f"{choice.preset}: {choice.why}")
    model_config = read_config(name, download=False)
    if model_config is None:
        yield Diagnosis("memory", Status.NOTE, f"unknown: {name} has no config.json here")
        return
    config = GRPOConfig.preset(choice.preset, **choice.settings)
    device, dtype = precision(config.device, config.dtype)
    gpu = device != "cpu"
    try:
        memory = training_memory(model_config, config, dtype, gpu=gpu)
    except Exception as error:  # other architectures lack this or that; loading says what is wrong
        kind = f"{type(error).__name__} for model_type {model_config.get('model_type')!r}"
        yield Diagnosis("memory", Status.NOTE, f"unknown: it can't be calculated ({kind})")
        return
    has = machine_memory()
    if gpu:
        has = torch.cuda.get_device_properties(torch.device(device)).total_memory
    detail = f"{memory}; this {'GPU' if gpu else 'machine'} has {has / GIB:.1f} GiB"
    if memory.peak < has:
        yield Diagnosis("memory", Status.OK, detail)
    else:
        yield Diagnosis("memory", Status.NOTE, detail, "; or ".join(remedies(config)))


def check_spider() -> Iterator[Diagnosis]:
    """Check for the Spider data set, which is optional."""
    folder = os.environ.get("SPIDER_DIR", "")
    if folder and Path(folder).is_dir():
        command = f"python -m data import spider {folder} --out spider"
        yield Diagnosis("Spider", Status.OK, f"{folder} (SPIDER_DIR)", command)
        return
    problem = f"SPIDER_DIR is {folder}, not a folder" if folder else "SPIDER_DIR is not set"
    detail = f"{problem}; real data is optional"
    yield Diagnosis("Spider", Status.NOTE, detail, "python -m data fetch spider")


def examine(data_dir: Path, model: str, urls: list[str]) -> list[Diagnosis]:
    """Run every check; one that raises becomes a failed diagnosis and doesn't stop the others."""
    checks: dict[str, Callable[[], Iterator[Diagnosis]]] = {
        "Python": check_python,
        "packages": check_packages,
        "device": check_device,
        "server": lambda: check_server(urls),
        "data": lambda: check_data(data_dir),
        "model": lambda: check_model(model),
        "memory": lambda: check_memory(model),
        "Spider": check_spider,
    }
    diagnoses: list[Diagnosis] = []
    for name, check in checks.items():
        try:
            diagnoses.extend(check())
        except Exception as error:  # whatever is broken is reported
            detail = f"{type(error).__name__}: {error}"
            diagnoses.append(Diagnosis(name, Status.FAIL, detail, INSTALL))
    return diagnoses


def can_run(diagnoses: list[Diagnosis]) -> bool:
    """Return whether the offline job can run."""
    return all(diagnosis.status is not Status.FAIL for diagnosis in diagnoses)
