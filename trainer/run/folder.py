"""The folder of a run, and files written so that a crash never leaves a partial one."""

import errno
import fcntl
import json
import logging
import os
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from pydantic_core import to_jsonable_python

from shared.run_files import (
    EVALUATION,
    REPORT,
    InFolder,
    RunFiles,
    checksums,
    numbered_lines,
    read_file,
    render_checksums,
)
from trainer.errors import RunError

LATEST, SERVER_LOG = "latest", "server.log"
log = logging.getLogger(__name__)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON: non-ASCII text unescaped, non-finite numbers as null, paths as text."""
    plain = to_jsonable_python(value, inf_nan_mode="null")
    return json.dumps(plain, ensure_ascii=False, indent=indent)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` atomically: readers see the old file or the new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with staged.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Create the folder of `path`; raise `RunError` if `write_bytes` could not write there."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise RunError(f"can't write {path}: {error.strerror}; choose another --out") from error


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock a folder for the block, where locks exist; `RunError` if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another process uses {path}: wait for its end, or stop it"
            raise RunError(message) from error
        except OSError as error:
            log.info("can't hold %s: %s", path, error.strerror)
        yield
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_file(path))
    except OSError as error:
        raise RunError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from error


def begin_or_resume(
    path: Path,
    settings: Mapping[str, Any],
    deciding: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> None:
    """Write the settings of a command to `path`. `RunError` names `deciding` ones that differ from
    those of its earlier calls, or a folder of other files."""
    first = deciding(read_json(path)) if path.exists() else {}
    if not first:
        if any(one.name != SERVER_LOG for one in path.parent.glob("*")):
            raise RunError(f"{path.parent} holds other files: choose another --out")
    elif changed := "; ".join(changes(first, deciding(json.loads(to_json(settings))))):
        raise RunError(
            f"{path.parent} was begun with other settings ({changed}): repeat them to resume it, "
            "or choose another --out"
        )
    write_json(path, settings)


def changes(first: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} was {short(first.get(name))} and is {short(value)}"
        for name, value in now.items()
        if first.get(name) != value
    ]


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines file, as `whole_lines` does. `RunError` for a line that is not
    JSON."""
    try:
        for number, line in whole_lines(path):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(f"line {number} of {path} is not JSON: {error}") from error
    except OSError as error:
        raise RunError(f"can't read {path}: {error.strerror}") from error


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, if it exists, but not one cut by a crash."""
    if path.exists():
        yield from (one for one in numbered_lines(path) if one[1].endswith(b"\n"))


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    if path.exists():
        write_text(path, "".join(to_json(row) + "\n" for row in read_lines(path) if wanted(row)))


@dataclass(frozen=True)
class Run(RunFiles):
    """The files of a run, or of an evaluation, which is a run of one phase. They may not exist."""

    curve = InFolder("learning_curve.png")
    transcripts = InFolder("transcripts.md")
    observations = InFolder("observations.jsonl.gz")
    result = InFolder(EVALUATION)  # of an evaluation
    report = InFolder(REPORT)
    server_log = InFolder(SERVER_LOG)
    model = InFolder("model")
    checkpoints = InFolder("checkpoints")

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def finished(self) -> bool:
        return self.summary.is_file() and self.checksums.is_file()

    def seal(self) -> None:
        write_text(self.checksums, render_checksums(checksums(self.path)))

    def last_checkpoint(self) -> Path | None:
        states = self.checkpoints.glob("checkpoint-*/trainer_state.json")  # written last
        names = (path.parent for path in states)
        numbered = [path for path in names if path.name.removeprefix("checkpoint-").isdecimal()]
        return max(numbered, key=checkpoint_step, default=None)


def checkpoint_step(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))


def create_run(out: Path, label: str) -> Run:
    path = out / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{label}"
    if path.exists():  # two runs started in the same second
        path = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"can't create {path}: {error.strerror}; choose another --out") from error
    return Run(path)


def open_run(path: Path) -> Run:
    whole, remedy = path.resolve(), "name the folder of a run, such as runs/latest"
    run = Run(whole.relative_to(Path.cwd()) if Path.cwd() in whole.parents else whole)
    if not run.path.is_dir():
        raise RunError(f"no run at {path}; {remedy}")
    if not run.config.is_file():
        raise RunError(f"{path} is not a run: it has no {run.config.name}; {remedy}")
    return run


def runs_in(out: Path) -> list[Run]:

    def changed(run: Run) -> tuple[float, str]:
        return (run.summary if run.finished else run.config).stat().st_mtime, run.id

    paths = [path for path in (out.iterdir() if out.is_dir() else ()) if not path.is_symlink()]
    runs = (Run(path) for path in paths if saved_settings(path) and not is_evaluation(path))
    return sorted(runs, key=changed, reverse=True)


def is_evaluation(path: Path) -> bool:
    return "evaluation" in saved_settings(path)


def saved_settings(path: Path) -> dict[str, Any]:
    """Return the config.json of a run or an evaluation, empty for other folders."""
    try:
        saved = read_json(Run(path).config)
    except RunError:
        return {}
    return saved if isinstance(saved, dict) and "config" in saved else {}


def how_to_resume(path: Path, settings: Mapping[str, Any], servers: Iterable[str] = ()) -> str:
    command = ["python", "-m", "trainer", settings.get("command", "train"), "--resume", str(path)]
    return shlex.join([*command, *(f"--server={url}" for url in servers)])


def point_latest(run: Run) -> None:
    link = run.path.parent / LATEST
    staged = link.with_name(f".{LATEST}.{secrets.token_hex(4)}")
    try:
        staged.symlink_to(run.id)
        staged.replace(link)
    except OSError as error:  # it is a folder, or the file system has no links
        staged.unlink(missing_ok=True)
        log.warning("can't link %s to %s: %s", link, run.path, error.strerror)
