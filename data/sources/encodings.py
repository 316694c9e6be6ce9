"""Text files in whatever encoding, as UTF-8."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from shared.errors import DataError

MARKS = {  # the longest first: UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
GUESS = "cp1252"  # what Windows writes in Western Europe and America
_CONTROL = re.compile("[\0-\x08\x0e-\x1f]")  # no text file has them
CHUNK = 1 << 20


def as_utf8(path: Path, encoding: str | None, target: Path) -> tuple[Path, str | None]:
    """Return a UTF-8 file with the text of `path`, and the encoding if it was guessed.

    It is `path` or, where the encoding is not UTF-8, `target`. The encoding is the given one, that
    of a byte order mark, UTF-8, or `GUESS` where nothing contradicts it. Raise `DataError` for a
    file or an encoding that can't be read.
    """
    start = _start(path)
    marked = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    named = encoding or marked or "utf-8"
    try:
        if codecs.lookup(named).name == "utf-8":
            named = "utf-8-sig"
    except LookupError as error:
        raise DataError(f"--encoding {encoding} is not an encoding that Python knows") from error
    try:
        if named == "utf-8-sig":
            for _ in _text(path, named):
                pass
            return path, None
        _copy(path, named, target)
        return target, None
    except UnicodeError as error:
        problem = f"{path} is not {named.removesuffix('-sig').upper()} ({error})"
    if encoding is None and marked is None:
        try:
            _copy(path, GUESS, target)
        except UnicodeError:
            pass
        else:
            return target, GUESS
    raise DataError(
        f"{problem}: name its encoding, for example --encoding latin-1, or save it as UTF-8"
    )


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _text(path: Path, encoding: str) -> Iterator[str]:
    """Yield the text in chunks. Raise `UnicodeError` also for control characters."""
    with path.open(encoding=encoding, newline="") as file:
        while text := file.read(CHUNK):
            if found := _CONTROL.search(text):
                raise UnicodeError(f"it has the control character {found[0]!r}")
            yield text


def _copy(path: Path, encoding: str, target: Path) -> None:
    with target.open("w", encoding="utf-8", newline="") as file:
        file.writelines(_text(path, encoding))
