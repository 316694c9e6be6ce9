"""The folder that a training run leaves behind, and files written so that a crash never leaves half
of one.

runs/<id>/
  config.json         every setting that the run used
  summary.json        the result: rates, counts, times, versions, digests
  learning_curve.png  reward and success over the steps
  transcripts.md      the same questions: random, before, after
  report.html         all of it as one page; `python -m trainer report` draws it anew
  episodes.jsonl      one line an episode, of training and of every evaluation (`shared.run_files`)
  metrics.jsonl       one line a log event
  server.log          what the environment server said, where the run started it
  live/               what the live view measured and, without a notebook or terminal, drew (`trainer.grpo.live`)
  model/              the trained model and its tokenizer
  evaluations/        what the measurements before and after gave, as JSON
  checkpoints/        what a resumed run continues from
  SHA256SUMS          the digests of a finished run's files, for `sha256sum --check` and `python -m env_server verify`
runs/latest           a relative link to the run that began last
"""

import errno
import json
import logging
import math
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shared.run_files import REPORT, EpisodeLine, MetricsRow, RunFiles, checksums, render_checksums
from trainer.errors import RunError

LATEST = "latest"
log = logging.getLogger(__name__)


def _plain(value: Any) -> Any:
    """`value` with NaN and infinities as null: JSON has neither, and strict readers refuse Python's
    spelling."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: non-ASCII text as it is, non-finite numbers as null, paths as text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` in one step: a reader sees the old file or the whole new one, also after a
    crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)  # mkstemp makes it the owner's alone
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_writable(path: Path) -> None:
    """`RunError` where `write_bytes` could not make or replace `path`. Makes its folder."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise RunError(f"can't write {path}: {error.strerror}; choose another --out") from error


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """What a run's JSON file holds, or `RunError` naming it."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from error


def append_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Add one JSON line a row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every row of a JSON lines file; none where there is no file. A last line cut short by a crash
    is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:  # bytes: the cut may be inside a character
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield json.loads(line)


def metrics_rows(path: Path) -> Iterator[MetricsRow]:
    """Yield the rows of a metrics.jsonl."""
    return cast(Iterator[MetricsRow], read_lines(path))


def episode_lines(path: Path) -> Iterator[EpisodeLine]:
    """Yield the lines of an episodes.jsonl unchecked: those of older runs lack some fields."""
    return (EpisodeLine.model_construct(**line) for line in read_lines(path))


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the rows that are not `wanted`: what a resumed run will write again."""
    if path.exists():
        write_text(path, "".join(to_json(row) + "\n" for row in read_lines(path) if wanted(row)))


@dataclass(frozen=True)
class Run(RunFiles):
    """One run's folder. The attributes name its files, which may not exist yet."""

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def curve(self) -> Path:
        return self.path / "learning_curve.png"

    @property
    def transcripts(self) -> Path:
        return self.path / "transcripts.md"

    @property
    def report(self) -> Path:
        return self.path / REPORT

    @property
    def live(self) -> Path:
        return self.path / "live"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def evaluation(self, phase: str, mode: str) -> Path:
        """Where the measurement `phase` (random, before, after) in `mode` (greedy, sampled) is
        kept."""
        return self.path / "evaluations" / f"{phase}_{mode}.json"

    def seal(self) -> None:
        """Write down the digests of what a finished run leaves."""
        write_text(self.checksums, render_checksums(checksums(self.path)))

    def last_checkpoint(self) -> Path | None:
        """The checkpoint of the highest step that was written to its end, or None."""
        complete = (
            path.parent for path in self.checkpoints.glob("checkpoint-*/trainer_state.json")
        )
        numbered = [path for path in complete if path.name.removeprefix("checkpoint-").isdecimal()]
        return max(numbered, key=checkpoint_step, default=None)


def checkpoint_step(path: Path) -> int:
    """How many optimiser steps a checkpoint folder has behind it."""
    return int(path.name.removeprefix("checkpoint-"))


def create_run(out: Path, label: str) -> Run:
    """A fresh folder `out`/<UTC time>-<label>. `point_latest` makes it the latest, once it can be
    resumed."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for name in (
        f"{stamp}-{label}",
        *(f"{stamp}-{label}-{secrets.token_hex(2)}" for _ in range(8)),
    ):
        run = Run(out.absolute() / name)
        try:
            run.path.mkdir(parents=True)
        except FileExistsError:  # two runs began in the same second
            continue
        except OSError as error:
            raise RunError(
                f"can't make the run's folder {run.path}: {error.strerror}; choose another --out"
            ) from error
        return run
    raise RunError(f"can't find a free name for a run in {out}")


def open_run(path: Path) -> Run:
    """The run to be resumed, or `RunError` saying what is missing."""
    run = Run(path.resolve())
    if not run.path.is_dir():
        raise RunError(
            f"no run at {path}; --resume takes the folder of an interrupted run, such as runs/latest"
        )
    if not run.config.is_file():
        raise RunError(
            f"{path} is not a run: it has no {run.config.name}; --resume takes a folder such as runs/latest"
        )
    return run


def point_latest(run: Run) -> None:
    """Make `latest`, beside the run, a relative link to it. Where that can't be, a warning says so."""
    link = run.path.parent / LATEST
    if link.exists() and not link.is_symlink():
        log.warning("%s is not a link, so it is left alone; this run is %s", link, run.path)
        return
    staged = link.with_name(f".{LATEST}.{secrets.token_hex(4)}")
    try:
        staged.symlink_to(run.id)
        os.replace(staged, link)
    except OSError as error:
        staged.unlink(missing_ok=True)
        log.warning("can't link %s to %s: %s", link, run.path, error.strerror)
