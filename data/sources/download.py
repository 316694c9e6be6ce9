"""Download an archive with pooch: retried, checked, past Google Drive's confirmation page."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pooch
import requests

from shared.client.proxies import is_this_machine
from shared.errors import DataError

PAGE_MAX_BYTES = 1 << 20  # a confirmation page is small
CHUNK_BYTES = 1 << 16

Progress = Callable[[int, int | None], None]  # (bytes received, bytes in all if known)


class DownloadError(DataError):
    """A file that cannot be downloaded. The message names the URL and the remedy."""

    code = "download"


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    attempts: int = 5,
    timeout_s: float = 60.0,
    progress: Progress = lambda _done, _total: None,
    notice: Callable[[str], None] = lambda _line: None,
) -> str:
    """Download `url` to `target` and return its SHA-256 in hex; only check a `target` that exists.

    Broken transfers, 429 and 5xx are retried, at most `attempts` transfers in all; `notice` gets
    the reason of each failure. Raises `DownloadError`: no connection, a refusal, a web page instead
    of a file, or a wrong checksum, after which the file is removed.
    """
    pooch.get_logger().setLevel("WARNING")
    cache = pooch.create(
        path=target.parent,
        base_url="",
        registry={target.name: None},
        urls={target.name: url},
        retry_if_failed=attempts - 1,
    )
    try:
        cache.fetch(target.name, downloader=_Downloader(timeout_s, progress, notice))
    except (requests.RequestException, ValueError) as error:
        raise _failure(url, _reason(error)) from error
    actual = str(pooch.file_hash(str(target)))
    expected = sha256.strip().lower() if sha256 else actual
    if actual != expected:
        target.unlink()
        raise DownloadError(
            f"the file from {url} has the SHA-256 {actual}, expected {expected}; it was removed: "
            "download it again, or correct --sha256 if you trust this file"
        )
    return actual


class _Downloader:
    """pooch's HTTP downloader, which also submits Google Drive's confirmation form."""

    def __init__(self, timeout_s: float, progress: Progress, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._http = pooch.HTTPDownloader(
            progressbar=_ProgressBar(progress),
            chunk_size=CHUNK_BYTES,
            timeout=(min(timeout_s, 20.0), timeout_s),
        )

    def __call__(self, url: str, output_file: str, manager: object) -> None:
        if is_this_machine(httpx.URL(url).host):
            self._http.kwargs["proxies"] = dict.fromkeys(("http", "https", "all"))
        try:
            self._http(url, output_file, manager)
            if (page := _page(output_file)) is not None and (form := confirmed_url(page, url)):
                self._http(form, output_file, manager)
        except requests.RequestException as error:
            response = error.response
            if response is not None and response.status_code < 500 and response.status_code != 429:
                raise _failure(url, _reason(error)) from error
            self._notice(f"the transfer failed: {_reason(error)}")
            raise
        if _page(output_file) is not None:
            raise _failure(url, "got a web page instead of a file, perhaps for a quota or a login")


class _ProgressBar:
    """The interface that pooch expects, on a callback."""

    def __init__(self, progress: Progress) -> None:
        self.total = 0
        self._done = 0
        self._progress = progress

    def update(self, count: int) -> None:
        self._done += count
        done = min(self._done, self.total) if self.total else self._done
        self._progress(done, self.total or None)

    def reset(self) -> None:
        self._done = 0

    close = reset


def _failure(url: str, problem: str) -> DownloadError:
    return DownloadError(
        f"cannot download {url}: {problem}; check the network, name a mirror with --url, or "
        "download the archive with a browser, unpack it and run "
        "'python -m data import spider FOLDER --out DIR'"
    )


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _page(path: str) -> str | None:
    """Return the text of a file that is a web page; None for any other file."""
    with Path(path).open("rb") as file:
        head = file.read(PAGE_MAX_BYTES)
    return head.decode(errors="replace") if head.lstrip().startswith(b"<") else None


class _Form(HTMLParser):
    """The first form of a page: its action and its hidden fields."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = values.get("action")
        elif tag == "input" and self.action and values.get("type") == "hidden":
            self.fields[str(values.get("name"))] = values.get("value") or ""


def confirmed_url(page: str, base: str) -> str | None:
    """Return the URL that Google Drive's question about a large file submits to.

    None for any other page. `base` is the URL of the page.
    """
    form = _Form()
    form.feed(page)
    if not form.action or "confirm" not in form.fields:
        return None
    return requests.Request("GET", urljoin(base, form.action), params=form.fields).prepare().url
