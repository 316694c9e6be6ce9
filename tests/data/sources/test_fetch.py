"""Spider's archive from a local HTTP server: downloaded, checked, unpacked and imported."""

import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from data.sources.spider import unpack
from shared.dataset import load_splits
from tests.data.sources.importing import make_spider, run


class Origin(ThreadingHTTPServer):
    """Serves `content`; `statuses` and `breaks` are of the next replies, which stop after so
    many bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = b""
        self.breaks: list[int] = []
        self.statuses: list[int] = []
        self.requests = 0
        self.url = f"http://127.0.0.1:{self.server_port}/file.zip"


class _Handler(BaseHTTPRequestHandler):
    server: Origin

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        most = self.server.breaks.pop(0) if self.server.breaks else None
        self.wfile.write(self.server.content[:most])

    def log_message(self, *_args: object) -> None:
        """Silence."""


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    """A server of a small Spider; downloads are retried at once and kept in tmp_path/cache."""
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _seconds: None))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = Origin()
    server.content = zip_of(make_spider(tmp_path / "made"))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def zip_of(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, "spider_data/" + path.relative_to(folder).as_posix())
        file.writestr("__MACOSX/spider_data/train_spider.json", "resource fork")
    return packed.getvalue()


def fetch(url: str, out: Path, *args: str) -> tuple[int, str]:
    """Return the exit status and the output of `python -m data fetch spider`."""
    return run("fetch", "spider", "--url", url, "--out", out, *args)


def sizes(data_dir: Path) -> dict[str, int]:
    return {name: len(questions) for name, questions in load_splits(data_dir).items()}


def test_an_archive_is_downloaded_once_and_imported(origin, tmp_path):
    origin.breaks, origin.statuses = [1_000], [200, 503]
    status, text = fetch(origin.url, tmp_path / "out")
    assert status == 0, text
    assert sizes(tmp_path / "out") == {"train": 2, "eval": 2}
    (archive,) = (tmp_path / "cache" / "sqlenv").iterdir()
    assert archive.read_bytes() == origin.content
    assert fetch(origin.url, tmp_path / "out", "--keep", "ties,empty")[0] == 0
    assert sizes(tmp_path / "out") == {"train": 4, "eval": 3}
    assert origin.requests == 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("broken", "cannot download"),
        ("web page", "not a usable zip file"),
        ("other data", "holds no train_spider.json"),
    ],
)
def test_what_cannot_be_used_is_one_error(origin, tmp_path, fault, message):
    match fault:
        case "broken":
            origin.breaks = [1_000] * 9
        case "web page":
            origin.content = b"<html>Sign in</html>"
        case _:
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as file:
                file.writestr("readme.txt", "hello")
            origin.content = packed.getvalue()
    status, text = fetch(origin.url, tmp_path / "out")
    assert status == 1
    assert message in text
    assert not (tmp_path / "out").exists()
    kept = [path.suffix for path in (tmp_path / "cache" / "sqlenv").iterdir()]
    assert kept == ([".zip"] if fault in ("web page", "other data") else [])


def test_nothing_is_unpacked_outside_the_folder(tmp_path):
    link = zipfile.ZipInfo("link.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for name in ("../evil.json", f"{tmp_path}/evil.json", "a/../../evil.json"):
            packed.writestr(name, "[]")
        packed.writestr(link, "/etc/passwd")
    (tmp_path / "in").mkdir()
    unpack(tmp_path / "a.zip", tmp_path / "in")
    assert not (tmp_path / "evil.json").exists()
    assert not (tmp_path / "in" / "link.json").is_symlink()
