"""What this machine has for a training run. Every check imports what it needs itself, so a missing
package fails only that check."""

import importlib.metadata
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from shared.console import counted

EXTRAS = ("server", "trainer")
OPTIONAL = ("uvloop", "httptools")  # the server also runs without them
INSTALL = f"pip install 'sqlenv[{','.join(EXTRAS)}]'   (in a checkout: make install)"


class Status(StrEnum):
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


def check_packages() -> Iterator[Diagnosis]:
    from packaging.requirements import Requirement

    version = ".".join(map(str, sys.version_info[:3]))
    yield Diagnosis("Python", Status.OK, f"{version} at {sys.executable}")
    needed = {
        one.name: one.specifier
        for one in map(Requirement, importlib.metadata.requires("sqlenv") or ())
        if not one.marker or any(one.marker.evaluate({"extra": name}) for name in EXTRAS)
    }
    for package, specifier in needed.items():
        try:
            version = importlib.metadata.version(package)
            fits = specifier.contains(version, prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            version, fits = "not installed", False
        if fits:
            yield Diagnosis(package, Status.OK, version)
        else:
            status = Status.NOTE if package in OPTIONAL else Status.FAIL
            detail = f"{version}, needs {specifier or 'any version'}"
            yield Diagnosis(package, status, detail, INSTALL)


def check_device() -> Iterator[Diagnosis]:
    import torch

    from trainer.runtime.cpu_budget import usable_cores, usable_threads
    from trainer.runtime.memory import can_compile_kernels

    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        detail = f"cuda:{index} {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, "
        detail += f"bfloat16 {'native' if native else 'emulated'}"
        yield Diagnosis("device", Status.OK, detail)
    if not torch.cuda.is_available():
        detail = "no CUDA device: training uses the CPU, as the offline preset does"
        yield Diagnosis("device", Status.OK, detail)
    elif not can_compile_kernels():
        detail = "no C compiler or no Python.h: without Triton's kernels, updates take more memory"
        remedy = "apt-get install gcc libc6-dev python3-dev"
        yield Diagnosis("C compiler", Status.NOTE, detail, remedy)
    threads = usable_threads(torch.get_num_threads())
    cores = counted(usable_cores(), "CPU core")
    detail = f"{cores} for this process, training uses {counted(threads, 'thread')}"
    yield Diagnosis("threads", Status.OK, detail)


def check_data(data_dir: Path) -> Iterator[Diagnosis]:
    from shared import dataset
    from shared.errors import DataError
    from shared.models import DIFFICULTIES

    complete = True
    for split in ("train", "eval"):
        name, path = f"{split} questions", dataset.questions_path(data_dir, split)
        try:
            questions = dataset.load_questions(path)
            dataset.check_databases(data_dir, questions)
        except DataError as error:
            complete = False
            yield Diagnosis(name, Status.FAIL, str(error))  # it names the remedy
            continue
        levels = Counter(question.difficulty for question in questions)
        counts = ", ".join(f"{levels[level]} {level}" for level in DIFFICULTIES)
        databases = len({question.database_name for question in questions})
        detail = f"{len(questions)} ({counts}) on {databases} databases"
        yield Diagnosis(name, Status.OK, detail)
    if complete:
        yield Diagnosis("data digest", Status.OK, dataset.data_digest(data_dir))


def check_model(name: str) -> Iterator[Diagnosis]:
    from trainer.errors import ModelLoadError
    from trainer.runtime.model_path import looks_local, model_path
    from trainer.runtime.models import check_directory

    path = model_path(name)
    if not looks_local(str(path)):
        detail = f"{name} is not a directory: it would be downloaded from the Hugging Face hub"
        yield Diagnosis("model", Status.NOTE, detail)
        return
    try:
        check_directory(str(path))
    except ModelLoadError as error:
        yield Diagnosis("model", Status.FAIL, error.message)  # it names the remedy
        return
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file()) / 2**20
    yield Diagnosis("model", Status.OK, f"{path}: {size:.1f} MiB")


def check_memory(name: str) -> Iterator[Diagnosis]:
    import torch

    from trainer.config.settings import GRPOConfig
    from trainer.runtime.memory import GIB, machine_memory, training_memory
    from trainer.runtime.models import preset_of, read_config
    from trainer.runtime.out_of_memory import remedies
    from trainer.runtime.precision import precision

    choice = preset_of(name, served=True)
    yield Diagnosis("preset", Status.OK, f"{choice.preset}: {choice.why}")
    config = GRPOConfig.preset(choice.preset, **choice.settings)
    device, dtype = precision(config.device, config.dtype)
    gpu = device != "cpu"
    model_config = read_config(name, download=False)
    memory = model_config and training_memory(model_config, config, dtype, gpu=gpu)
    if not memory:
        problem = "no config.json here" if model_config is None else "layers of another kind"
        yield Diagnosis("memory", Status.NOTE, f"unknown: {name} has {problem}")
        return
    has = machine_memory()
    if gpu:
        has = torch.cuda.get_device_properties(torch.device(device)).total_memory
    detail = f"{memory}; this {'GPU' if gpu else 'machine'} has {has / GIB:.1f} GiB"
    if memory.peak < has:
        yield Diagnosis("memory", Status.OK, detail)
    else:
        yield Diagnosis("memory", Status.NOTE, detail, "; or ".join(remedies(config)))


def examine(data_dir: Path, model: str) -> list[Diagnosis]:
    """Run every check; one that raises becomes a failed diagnosis and doesn't stop the others."""
    checks: dict[str, Callable[[], Iterator[Diagnosis]]] = {
        "packages": check_packages,
        "device": check_device,
        "data": lambda: check_data(data_dir),
        "model": lambda: check_model(model),
        "memory": lambda: check_memory(model),
    }
    diagnoses: list[Diagnosis] = []
    for name, check in checks.items():
        try:
            diagnoses.extend(check())
        except Exception as error:  # whatever is broken is reported
            detail = f"{type(error).__name__}: {error}"
            diagnoses.append(Diagnosis(name, Status.FAIL, detail, INSTALL))
    return diagnoses
