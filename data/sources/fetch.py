"""Download Spider's archive, unpack it and import it."""

import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256 as digest_of
from pathlib import Path

from data.golds.execute import Reason
from data.settings import DataSettings
from data.sources.archive import find_root, unpack
from data.sources.download import download
from data.sources.report import ImportReport
from data.sources.spider import import_spider
from data.sources.staging import check_out
from shared.console import errors, print_line, progress_bar


@dataclass(frozen=True)
class FetchResult:
    """A finished fetch. `checked`: whether `sha256` was compared with a given checksum."""

    archive: Path
    sha256: str
    checked: bool
    report: ImportReport


def archive_path(settings: DataSettings, url: str) -> Path:
    """Return where the archive of `url` is kept, a different file for each URL."""
    return settings.cache_dir / f"spider-{digest_of(url.encode()).hexdigest()[:12]}.zip"


def fetch_spider(
    out: Path,
    settings: DataSettings,
    *,
    url: str | None = None,
    sha256: str | None = None,
    force: bool = False,
    keep: Collection[Reason] = (),
) -> FetchResult:
    """Write the data directory `out` from the official archive, with progress on stderr.

    `keep`: see `run_gold`. Raises `DataError`.
    """
    url = url or settings.spider_url
    expected = sha256 or (settings.spider_sha256 if url == settings.spider_url else None)
    archive = archive_path(settings, url)
    check_out(out, [archive], force=force)
    with progress_bar("downloading", in_bytes=True) as progress:
        actual = download(
            url,
            archive,
            sha256=expected,
            attempts=settings.download_attempts,
            timeout_s=settings.download_timeout_s,
            progress=progress,
            notice=lambda line: print_line(errors, line, "yellow"),
        )
    with tempfile.TemporaryDirectory(dir=settings.cache_dir, prefix=".spider-") as folder:
        with progress_bar("unpacking", in_bytes=True) as progress:
            max_bytes = settings.unpacked_max_bytes
            unpack(archive, Path(folder), max_bytes=max_bytes, progress=progress)
        root = find_root(Path(folder), "train_spider.json")
        report = import_spider(root, out, force=force, source_name=url, keep=keep)
    return FetchResult(archive, actual, expected is not None, report)
