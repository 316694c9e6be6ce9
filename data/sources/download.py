"""Downloads one file: resumed where it broke, checked against a SHA-256, past Google Drive's
confirmation page.

The transfer goes to `<target>.part`; `<target>.part.json` remembers the URL and the server's ETag,
so that only the same file is taken up again. The file gets its name when it is whole and its
checksum is right.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import httpx
import stamina

from shared.errors import DataError

BY_HAND = "download the archive with a browser, unpack it and run 'python -m data import spider FOLDER --out DIR'"
PAGE_MAX_BYTES = 1 << 20  # a confirmation page is small

Progress = Callable[[int, int | None], None]  # (bytes so far, bytes in all where the server says)


class _Broken(Exception):
    """The transfer ended early or the server is busy: worth another attempt."""


class DownloadError(DataError):
    """A file that can't be downloaded. The message names the URL and the remedy."""

    code = "download"


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    attempts: int = 6,
    timeout_s: float = 60.0,
    wait_s: float = 1.0,
    progress: Progress = lambda _done, _all: None,
    notice: Callable[[str], None] = lambda _line: None,
) -> str:
    """Brings `url` to `target` and returns its SHA-256 in hex. A `target` that is there already is
    only checked.

    A broken transfer, a 429 or a 5xx is taken up again, `attempts` in all, the first pause about
    `wait_s`. Raises `DownloadError`: no connection, a refusal, a web page in the file's place, or a
    wrong checksum.
    """
    part = target.with_name(target.name + ".part")
    # `notice` tells of retries, with their reason
    logging.getLogger("stamina").addHandler(logging.NullHandler())
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            for attempt in stamina.retry_context(
                on=(_Broken, httpx.TransportError),
                attempts=attempts,
                timeout=None,
                wait_initial=wait_s,
                wait_max=30.0,
                wait_jitter=wait_s,
            ):
                with attempt, _told(notice):
                    _transfer(url, part, timeout_s, progress)
        except (_Broken, httpx.HTTPError, httpx.InvalidURL) as error:
            kept = part.stat().st_size if part.exists() else 0
            resumes = f"; {kept:,} bytes are kept and the same command goes on" if kept else ""
            raise DownloadError(
                f"can't download {url}: {_reason(error)}{resumes}; check the network, name a mirror with --url, "
                f"or {BY_HAND}"
            ) from error
        found = file_sha256(part)
    else:
        found = file_sha256(target)
    if sha256 and found != sha256.strip().lower():
        held = target if target.exists() else part
        held.unlink()
        _note(part).unlink(missing_ok=True)
        raise DownloadError(
            f"the file from {url} has the SHA-256 {found}, not {sha256.strip().lower()}, and was removed: download it "
            "again, or correct --sha256 if you trust this file"
        )
    if not target.exists():
        part.rename(target)
        _note(part).unlink(missing_ok=True)
    return found


@contextmanager
def _told(notice: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except (_Broken, httpx.TransportError) as error:
        notice(f"the transfer broke off: {_reason(error)}")
        raise


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _transfer(url: str, part: Path, timeout_s: float, progress: Progress) -> None:
    """One attempt, which goes on from what `part` holds."""
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, 20.0))
    with httpx.Client(follow_redirects=True, timeout=timeout) as client:
        page = _receive(client, url, url, part, progress)
        if page is None:
            return
        confirmed = confirmed_url(page, url)
        if confirmed is None or _receive(client, confirmed, url, part, progress) is not None:
            raise DownloadError(
                f"{url} gave a web page in place of a file, perhaps for a quota or a login; name another with --url, "
                f"or {BY_HAND}"
            )


def _receive(
    client: httpx.Client, url: str, named: str, part: Path, progress: Progress
) -> str | None:
    """Receives `url` into `part` (None), or returns the HTML page that came instead. `named` is the
    URL asked for."""
    done, etag = _held(part, named)
    headers = {"Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        if etag:
            headers["If-Range"] = etag
    with client.stream("GET", url, headers=headers) as reply:
        status = reply.status_code
        if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            if reply.headers.get("Content-Range", "").strip() == f"bytes */{done}":
                return None  # it was whole already
            part.unlink()
            raise _Broken("the server no longer has the rest of the partial file")
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= 500:
            raise _Broken(f"HTTP {status} {reply.reason_phrase}")
        reply.raise_for_status()
        if reply.headers.get("Content-Type", "").startswith("text/html"):
            return _page(reply)
        if status == httpx.codes.PARTIAL_CONTENT and not reply.headers.get(
            "Content-Range", ""
        ).startswith(f"bytes {done}-"):
            part.unlink(missing_ok=True)
            raise _Broken("the server sent another range than was asked for")
        if status != httpx.codes.PARTIAL_CONTENT:
            done = 0
        length = reply.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        _remember(part, named, reply.headers.get("ETag"))
        with part.open("ab" if done else "wb") as file:
            # as they come: a fixed size would hold bytes back that a break loses
            for chunk in reply.iter_bytes():
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done != total:
        raise _Broken(f"{done:,} of {total:,} bytes came")
    return None


def _page(reply: httpx.Response) -> str:
    body = b""
    for chunk in reply.iter_bytes():
        body += chunk
        if len(body) > PAGE_MAX_BYTES:
            break
    return body.decode(reply.encoding or "utf-8", errors="replace")


def _held(part: Path, url: str) -> tuple[int, str | None]:
    """`(bytes held, ETag)` of a partial transfer of this very URL; anything else is not gone on
    with."""
    try:
        note = json.loads(_note(part).read_text())
        if isinstance(note, dict) and note.get("url") == url:
            return part.stat().st_size, note.get("etag")
    except (OSError, ValueError):
        pass
    return 0, None


def _remember(part: Path, url: str, etag: str | None) -> None:
    # If-Range takes strong ones alone
    strong = etag if etag and not etag.startswith("W/") else None
    _note(part).write_text(json.dumps({"url": url, "etag": strong}))


class _Form(HTMLParser):
    """The first form of a page: its action and its hidden fields."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = found.get("action")
        elif tag == "input" and self.action and found.get("type") == "hidden" and found.get("name"):
            self.fields[str(found["name"])] = found.get("value") or ""


def confirmed_url(page: str, base: str) -> str | None:
    """Where a page of Google Drive that asks whether to download a large file leads to; None for
    any other page."""
    form = _Form()
    form.feed(page)
    if not form.action or "confirm" not in form.fields:
        return None
    return str(httpx.URL(base).join(form.action).copy_merge_params(form.fields))
