"""Unpack the files of a zip archive that an import needs, and nothing outside the target folder."""

import lzma
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from shared.errors import DataError

SUFFIXES = (".json", ".sqlite", ".txt", ".md")
IGNORED = {"__MACOSX", "test_database"}  # the latter: copies for Spider's hidden test set
# RuntimeError: encrypted; zlib's and lzma's: damage found before the checksum is checked
DAMAGE = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error, lzma.LZMAError,
)  # fmt: skip


def unpack(
    archive: Path,
    target: Path,
    *,
    max_bytes: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    """Unpack `archive` under `target`; `progress` gets (bytes done, bytes in all).

    Raises `DataError`: not a zip, damaged, too large, or a path that leads outside.
    """
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if _wanted(member, archive)]
            total = sum(member.file_size for member in members)
            if total > max_bytes:
                size = f"{total:,} bytes, over the limit of {max_bytes:,}"
                raise DataError(f"{archive} unpacks to {size}")
            done = 0
            for member in members:
                path = target / _safe_path(member, archive)
                path.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(member) as source, path.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                done += member.file_size
                progress(done, total)
    except DAMAGE as error:
        problem = f"{archive} is not a usable zip file: {error}"
        raise DataError(f"{problem}; remove it and fetch it again") from error


def _wanted(member: zipfile.ZipInfo, archive: Path) -> bool:
    path = _safe_path(member, archive)
    return not member.is_dir() and path.suffix in SUFFIXES and not IGNORED.intersection(path.parts)


def _safe_path(member: zipfile.ZipInfo, archive: Path) -> PurePosixPath:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    drive = ":" in next(iter(path.parts), "")  # `./` has no parts
    link = stat.S_ISLNK(member.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or drive or link:
        name = f"{archive} holds the path {member.filename!r}"
        raise DataError(f"{name}, which leads outside: not unpacked")
    return path


def find_root(folder: Path, marker: str) -> Path:
    """Return the shallowest directory with a file `marker` at or below `folder`."""
    paths = sorted(folder.rglob(marker), key=lambda path: (len(path.parts), path))
    if not paths:
        raise DataError(f"the archive holds no {marker}: it is not this data set")
    return paths[0].parent
