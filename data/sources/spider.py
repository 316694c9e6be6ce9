"""Import Spider (Yu et al., 2018) from its own layout, or download it first.

    DIR/database/<db_id>/<db_id>.sqlite
    DIR/train_spider.json [DIR/train_others.json]  -> questions_train.json
    DIR/dev.json                                   -> questions_eval.json

A question's id is its file and row (`spider-dev-0012` is row 12 of dev.json, counted from 0), so
that it does not depend on which rows are dropped.
"""

import tempfile
import zipfile
import zlib
from collections.abc import Collection
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pooch
import requests

from data.choose import EVAL, TRAIN
from data.golds.check_gold import Reason
from data.sources.import_source import Source, check_out, import_source
from data.sources.questions import Row, rows_of
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import copy_database
from shared.console import errors, print_line
from shared.dataset import SPIDER_DEV_PREFIX
from shared.errors import DataError

# file -> (split, prefix of its rows' ids)
FILES = {
    "train_spider.json": (TRAIN, "spider-train-"),
    "train_others.json": (TRAIN, "spider-others-"),
    "dev.json": (EVAL, SPIDER_DEV_PREFIX),
}
OPTIONAL = "train_others.json"
# Google Drive asks whether to download a large file unscanned: `confirm` is the answer
SPIDER_URL = (
    "https://drive.usercontent.google.com/download"
    "?id=1403EGqzIDoHMdQF4c9Bkyl7dZLZ5Wt6J&export=download&confirm=t"
)
ATTEMPTS = 5  # transfers in all, broken ones too
TIMEOUT_S = 60.0  # longest silence of the server


def read_spider(folder: Path) -> Source:
    """Find Spider's questions and databases; a missing file is a problem in the report. Raises
    `DataError` if the folder or a file of questions cannot be used."""
    if not folder.is_dir():
        remedy = "name Spider's folder, with database/, train_spider.json and dev.json"
        raise DataError(f"no directory at {folder}: {remedy}")
    report = ImportReport("spider", str(folder.resolve()))
    rows: list[Row] = []
    for name, (split, prefix) in FILES.items():
        report.splits.setdefault(split, SplitCount())
        if (folder / name).is_file():
            rows += rows_of(folder / name, split, prefix, report)
        elif name != OPTIONAL:
            report.problems.append(f"{folder / name} is missing")
    names = {row.database for row in rows}
    databases = {name: folder / "database" / name / f"{name}.sqlite" for name in names}
    return Source(report, rows, databases, copy_database, [folder])


def fetch_spider(out: Path, url: str, *, force: bool, keep: Collection[Reason]) -> ImportReport:
    """Write the data directory `out` from an archive, which is kept. See `import_source`."""
    cache = pooch.os_cache("sqlenv")
    archive = cache / f"spider-{sha256(url.encode()).hexdigest()[:12]}.zip"
    check_out(out, [archive], force=force)
    _download(url, archive)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".spider-") as folder:
        unpack(archive, Path(folder))
        marks = sorted(Path(folder).rglob("train_spider.json"), key=lambda path: len(path.parts))
        if not marks:
            raise DataError("the archive holds no train_spider.json: it is not this data set")
        source = read_spider(marks[0].parent)
        source.report.path = url
        report = import_source(source, out, force=force, keep=keep)
    print_line(errors, f"The archive is kept at {archive}")
    return report


def _download(url: str, target: Path) -> None:
    """Download `url` to `target`, unless that exists. Raises `DataError`."""
    pooch.get_logger().setLevel("WARNING")
    cache = pooch.create(
        path=target.parent,
        base_url="",
        registry={target.name: None},
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
    """Unpack an archive, never outside `target`. Raises `DataError` if it is damaged."""
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(target)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        problem = f"{archive} is not a usable zip file: {error}"
        raise DataError(f"{problem}; remove it and fetch it again") from error
