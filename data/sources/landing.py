"""Writes a directory whole or not at all: it is made beside its place and renamed into it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.sources.report import REPORT_NAME
from shared.errors import DataError


def check_place(out: Path, source: Path, *, force: bool) -> None:
    """`DataError` where `out` must not be written: it holds `source`, is a file, or holds files of
    another origin."""
    out, source = out.resolve(), source.resolve()
    if out == source or out in source.parents or source in out.parents:
        raise DataError(f"--out {out} and the source {source} overlap: name another directory")
    if out.exists() and not out.is_dir():
        raise DataError(f"--out {out} is a file: name a directory")
    if out.is_dir() and any(out.iterdir()) and not (out / REPORT_NAME).is_file() and not force:
        raise DataError(
            f"--out {out} is not empty and no earlier import: name another, or replace it with --force"
        )


@contextmanager
def landing(out: Path) -> Iterator[Path]:
    """An empty directory that becomes `out`, in place of what was there, when the block ends
    without an error."""
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.partial-") as held:
        made, old = Path(held) / "made", Path(held) / "old"
        made.mkdir()
        yield made
        if out.exists():
            out.rename(old)
        try:
            made.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise


def copy_database(source: Path, target: Path) -> None:
    """A copy that its owner may write, whatever the source's permissions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
