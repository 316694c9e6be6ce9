"""Write a directory completely or not at all: in a temporary folder beside it, then renamed."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from shared.dataset import IMPORT_REPORT
from shared.errors import DataError


def check_out(out: Path, sources: Iterable[Path], *, force: bool) -> None:
    """Raise `DataError` if `out` cannot be replaced.

    It overlaps a source, contains the current directory, is a file, or has files of another origin.
    """
    out = out.resolve()
    places = ((one.resolve(), one.parent.resolve() / one.name) for one in sources)
    for source in chain.from_iterable(places):  # a link, too, would be replaced
        if out == source or out in source.parents or source in out.parents:
            raise DataError(f"--out {out} and the source {source} overlap: name another directory")
    if Path.cwd().is_relative_to(out):
        raise DataError(f"--out {out} contains the current directory: name another directory")
    if out.exists() and not out.is_dir():
        raise DataError(f"--out {out} is a file: name a directory")
    if out.is_dir() and any(out.iterdir()) and not (out / IMPORT_REPORT).is_file() and not force:
        remedy = "name another directory, or replace it with --force"
        raise DataError(f"--out {out} is not empty and not from an import: {remedy}")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yield an empty directory that replaces `out` when the block ends without an error."""
    out = out.resolve()
    parent = next(folder for folder in out.parents if folder.is_dir())
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.name}.partial-") as folder:
        new, old = Path(folder) / "new", Path(folder) / "old"
        new.mkdir()
        yield new
        if out.exists():
            out.rename(old)
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
