"""Unpacks what an import needs of a zip file, and nothing outside its target."""

import lzma
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from shared.errors import DataError

WANTED = (".json", ".sqlite", ".txt", ".md")
# the second: copies of databases for Spider's hidden test set
IGNORED = {"__MACOSX", "test_database"}


def unpack(
    archive: Path,
    target: Path,
    *,
    max_bytes: int,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> None:
    """Unpacks `archive` under `target`. Raises `DataError`: not a zip, damaged, a path that leads
    out, or too large."""
    again = f"remove {archive} and fetch it again"
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if _wanted(member, archive)]
            total = sum(member.file_size for member in members)
            if total > max_bytes:
                raise DataError(
                    f"{archive} unpacks to {total:,} bytes, over the limit of {max_bytes:,}"
                )
            done = 0
            for member in members:
                path = target / _safe_path(member, archive)
                path.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(member) as source, path.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                done += member.file_size
                progress(done, total)
    # RuntimeError: encrypted; zlib's and lzma's own errors: damage that the decompressor meets
    # before the checksum
    except (
        zipfile.BadZipFile,
        EOFError,
        NotImplementedError,
        RuntimeError,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise DataError(f"{archive} is no usable zip file: {error}; {again}") from error


def _wanted(member: zipfile.ZipInfo, archive: Path) -> bool:
    path = _safe_path(member, archive)
    return not member.is_dir() and path.suffix in WANTED and not IGNORED.intersection(path.parts)


def _safe_path(member: zipfile.ZipInfo, archive: Path) -> PurePosixPath:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    drive = ":" in next(iter(path.parts), "")  # `./` has no parts
    if (
        path.is_absolute()
        or ".." in path.parts
        or drive
        or stat.S_ISLNK(member.external_attr >> 16)
    ):
        raise DataError(
            f"{archive} holds the path {member.filename!r}, which leads out of it: not unpacked"
        )
    return path


def find_root(folder: Path, marker: str) -> Path:
    """The shallowest directory at or below `folder` that holds `marker`, or `DataError`."""
    found = sorted(folder.rglob(marker), key=lambda path: (len(path.parts), path))
    if not found:
        raise DataError(f"the archive holds no {marker}, so it is not this data set")
    return found[0].parent
