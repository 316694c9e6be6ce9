"""Download Spider's archive with pooch, unpack it and import it."""

import os
import tempfile
import zipfile
import zlib
from collections.abc import Collection
from hashlib import sha256 as digest_of
from importlib.util import find_spec
from pathlib import Path

import pooch
import requests

from data.golds.execute import Reason
from data.sources.convert import check_out
from data.sources.report import ImportReport
from data.sources.spider import import_spider
from shared.console import errors, print_line
from shared.errors import DataError

# Google Drive asks whether to download a large file unscanned: `confirm` is the answer
SPIDER_URL = (
    "https://drive.usercontent.google.com/download"
    "?id=1403EGqzIDoHMdQF4c9Bkyl7dZLZ5Wt6J&export=download&confirm=t"
)
ATTEMPTS = 5  # transfers in all, broken ones too
TIMEOUT_S = 60.0  # longest silence of the server
SUFFIXES = (".json", ".sqlite", ".txt", ".md")
IGNORED = {"__MACOSX", "test_database"}  # the latter: copies for Spider's hidden test set


def cache_dir() -> Path:
    """Return where archives are kept."""
    return Path(os.environ.get("SQLENV_CACHE_DIR") or Path.home() / ".cache" / "sqlenv")


def fetch_spider(
    out: Path,
    url: str = SPIDER_URL,
    sha256: str | None = None,
    *,
    force: bool = False,
    keep: Collection[Reason] = (),
) -> ImportReport:
    """Write the data directory `out` from an archive, which is kept.

    `sha256` is what it must have; `keep`: see `run_gold`. Raises `DataError`.
    """
    archive = cache_dir() / f"spider-{digest_of(url.encode()).hexdigest()[:12]}.zip"
    check_out(out, [archive], force=force)
    download(url, archive, sha256)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".spider-") as folder:
        unpack(archive, Path(folder))
        marks = sorted(Path(folder).rglob("train_spider.json"), key=lambda path: len(path.parts))
        if not marks:
            raise DataError("the archive holds no train_spider.json: it is not this data set")
        report = import_spider(marks[0].parent, out, force=force, source_name=url, keep=keep)
    digest = pooch.file_hash(str(archive))
    print_line(errors, f"The archive is kept at {archive}; pin it with --sha256 {digest}")
    return report


def download(url: str, target: Path, sha256: str | None = None) -> None:
    """Download `url` to `target`, unless that exists and has the checksum. Raises `DataError`."""
    pooch.get_logger().setLevel("WARNING")
    cache = pooch.create(
        path=target.parent,
        base_url="",
        registry={target.name: sha256},
        urls={target.name: url},
        retry_if_failed=ATTEMPTS - 1,
    )
    shown = errors.is_terminal and find_spec("tqdm") is not None
    try:
        downloader = pooch.HTTPDownloader(progressbar=shown, timeout=TIMEOUT_S)
        cache.fetch(target.name, downloader=downloader)
    except (requests.RequestException, ValueError) as error:
        raise DataError(
            f"cannot download {url}: {error}; check the network, name a mirror with --url, or "
            "download the archive with a browser, unpack it and run "
            "'python -m data import spider FOLDER --out DIR'"
        ) from error


def unpack(archive: Path, target: Path) -> None:
    """Unpack the data of an archive. Raises `DataError` if it is damaged."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                path = Path(name)
                if path.suffix in SUFFIXES and not IGNORED.intersection(path.parts):
                    packed.extract(name, target)  # never outside `target`
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        problem = f"{archive} is not a usable zip file: {error}"
        raise DataError(f"{problem}; remove it and fetch it again") from error
