"""Downloads from a local HTTP server: failures, checksums, confirmation pages, hostile archives."""

import contextlib
import hashlib
import io
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from data.settings import DataSettings
from data.sources.archive import unpack
from data.sources.command import fetch_app
from data.sources.download import DownloadError, confirmed_url, download
from data.sources.fetch import archive_path, fetch_spider
from shared.dataset import load_splits
from shared.errors import DataError
from tests.data.sources.tiny_spider import make_spider

GOOGLE_PAGE = """<!DOCTYPE html><html><body><p>Google Drive can't scan this file for viruses.</p>
<form id="download-form" action="{action}" method="get">
<input type="submit" value="Download anyway"/>
<input type="hidden" name="id" value="abc"><input type="hidden" name="export" value="download">
<input type="hidden" name="confirm" value="t"><input type="hidden" name="uuid" value="1-2">
</form></body></html>"""


class Origin(ThreadingHTTPServer):
    """Serves `content` at /file.zip; `breaks`: the next replies stop after so many bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = b""
        self.breaks: list[int] = []
        self.statuses: list[int] = []
        self.requests = 0

    def url(self, path: str = "/file.zip") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def do_GET(self) -> None:
        if self.path.startswith("/page"):
            action = "/file.zip" if self.path == "/page" else "/nothing"
            page = (
                GOOGLE_PAGE.format(action=action)
                if self.path != "/page-login"
                else "<html>Sign in</html>"
            )
            return self.reply(200, page.encode(), {"Content-Type": "text/html; charset=utf-8"})
        if not self.path.startswith("/file.zip"):
            return self.reply(404, b"no", {})
        if self.server.statuses:
            return self.reply(self.server.statuses.pop(0), b"busy", {})
        self.server.requests += 1
        return self.reply(200, self.server.content, {"Content-Type": "application/zip"})

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if (
            status == 200
            and self.server.breaks
            and "text/html" not in headers.get("Content-Type", "")
        ):
            self.wfile.write(body[: self.server.breaks.pop(0)])
            self.close_connection = True
            return
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Silence."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once."""
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _seconds: None))


@pytest.fixture
def origin() -> Iterator[Origin]:
    server = Origin()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def content(origin: Origin) -> bytes:
    origin.content = hashlib.shake_256(b"content").digest(300_000)
    return origin.content


def get(origin: Origin, target: Path, path: str = "/file.zip", **options: object) -> str:
    return download(origin.url(path), target, **options)  # type: ignore[arg-type]


def test_a_broken_transfer_is_retried(origin: Origin, content: bytes, tmp_path: Path) -> None:
    origin.breaks = [100_000, 50_000]
    seen: list[tuple[int, int | None]] = []
    notices: list[str] = []
    digest = get(
        origin,
        tmp_path / "a.zip",
        progress=lambda done, total: seen.append((done, total)),
        notice=notices.append,
    )
    assert (tmp_path / "a.zip").read_bytes() == content
    assert digest == hashlib.sha256(content).hexdigest()
    assert origin.requests == 3
    assert seen[-1] == (len(content), len(content))
    assert len(notices) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_transfer_that_stays_broken_leaves_nothing(
    origin: Origin, content: bytes, tmp_path: Path
) -> None:
    origin.breaks = [70_000, 70_000]
    with pytest.raises(DownloadError, match="cannot download"):
        get(origin, tmp_path / "a.zip", attempts=2)
    assert list(tmp_path.iterdir()) == []
    get(origin, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == content


def test_a_refusal_is_not_retried(origin: Origin, content: bytes, tmp_path: Path) -> None:
    origin.statuses = [403, 403]
    with pytest.raises(DownloadError, match="403"):
        get(origin, tmp_path / "a.zip")
    assert origin.statuses == [403]


def test_a_busy_server_is_retried_a_limited_number_of_times(
    origin: Origin, content: bytes, tmp_path: Path
) -> None:
    origin.statuses = [503, 429]
    get(origin, tmp_path / "a.zip", attempts=3)
    assert (tmp_path / "a.zip").exists()
    origin.statuses = [503] * 9
    with pytest.raises(DownloadError, match="503"):
        get(origin, tmp_path / "b.zip", attempts=3)
    assert len(origin.statuses) == 6


def test_wrong_checksum_is_refused_and_the_file_removed(
    origin: Origin, content: bytes, tmp_path: Path
) -> None:
    with pytest.raises(DownloadError, match="SHA-256") as refused:
        get(origin, tmp_path / "a.zip", sha256="0" * 64)
    assert hashlib.sha256(content).hexdigest() in refused.value.message
    assert list(tmp_path.iterdir()) == []
    get(origin, tmp_path / "a.zip", sha256=hashlib.sha256(content).hexdigest().upper())
    assert (tmp_path / "a.zip").exists()


def test_an_existing_file_is_checked_and_not_downloaded(
    origin: Origin, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.zip").write_bytes(b"old")
    assert get(origin, tmp_path / "a.zip") == hashlib.sha256(b"old").hexdigest()
    assert origin.requests == 0
    with pytest.raises(DownloadError, match="SHA-256"):
        get(origin, tmp_path / "a.zip", sha256=hashlib.sha256(content).hexdigest())
    get(origin, tmp_path / "a.zip", sha256=hashlib.sha256(content).hexdigest())


def test_confirmation_page_is_followed(origin: Origin, content: bytes, tmp_path: Path) -> None:
    origin.breaks = [100_000]
    get(origin, tmp_path / "a.zip", "/page")
    assert (tmp_path / "a.zip").read_bytes() == content
    assert origin.requests == 2


def test_another_web_page_is_refused(origin: Origin, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="web page"):
        get(origin, tmp_path / "a.zip", "/page-login")
    assert not (tmp_path / "a.zip").exists()


def test_confirmed_url_carries_the_hidden_fields() -> None:
    page = GOOGLE_PAGE.format(action="https://drive.usercontent.google.com/download")
    expected = (
        "https://drive.usercontent.google.com/download?id=abc&export=download&confirm=t&uuid=1-2"
    )
    assert confirmed_url(page, "https://drive.google.com/uc?id=abc") == expected
    page = GOOGLE_PAGE.format(action="/download?authuser=0")
    assert confirmed_url(page, "https://a.example/uc") == (
        "https://a.example/download?authuser=0&id=abc&export=download&confirm=t&uuid=1-2"
    )
    assert confirmed_url("<html><form action='/login'></form></html>", "https://a.example/") is None


def zip_of(folder: Path, top: str = "spider_data/") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, top + path.relative_to(folder).as_posix())
        file.writestr("__MACOSX/spider_data/._dev.json", "resource fork")
    return packed.getvalue()


def settings(tmp_path: Path, **fields: object) -> DataSettings:
    return DataSettings(cache_dir=tmp_path / "cache", **fields)  # type: ignore[arg-type]


def test_fetch_downloads_unpacks_and_imports(origin: Origin, tmp_path: Path) -> None:
    origin.content = zip_of(make_spider(tmp_path / "made"))
    origin.breaks = [1_000]
    fetched = fetch_spider(tmp_path / "out", settings(tmp_path, spider_url=origin.url()))
    assert {name: len(questions) for name, questions in load_splits(tmp_path / "out").items()} == {
        "train": 2,
        "eval": 2,
    }
    assert fetched.sha256 == hashlib.sha256(origin.content).hexdigest()
    assert not fetched.checked
    assert fetched.report.path == origin.url()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [fetched.archive.name]


def invoke(*args: object, **env: str) -> tuple[int, str]:
    app = typer.Typer()
    app.add_typer(fetch_app, name="fetch")
    result = CliRunner().invoke(
        app, ["fetch", "spider", *map(str, args)], env={"COLUMNS": "200", **env}
    )
    return result.exit_code, result.output


def test_command_shows_how_to_pin_the_checksum(origin: Origin, tmp_path: Path) -> None:
    origin.content = zip_of(make_spider(tmp_path / "made"))
    digest = hashlib.sha256(origin.content).hexdigest()
    cache = str(tmp_path / "cache")
    status, text = invoke("--out", tmp_path / "out", "--url", origin.url(), SQLENV_CACHE_DIR=cache)
    assert status == 0, text
    assert f"SQLENV_SPIDER_SHA256={digest}" in text
    status, text = invoke(
        "--out", tmp_path / "out", "--url", origin.url(), "--sha256", digest, SQLENV_CACHE_DIR=cache
    )
    assert status == 0, text
    assert "SQLENV_SPIDER_SHA256" not in text


def test_command_keeps_what_it_is_to_keep(origin: Origin, tmp_path: Path) -> None:
    origin.content = zip_of(make_spider(tmp_path / "made"))
    options = ["--keep-ties", "--keep-empty", "--url", origin.url(), "--out", tmp_path / "out"]
    status, text = invoke(*options, SQLENV_CACHE_DIR=str(tmp_path / "cache"))
    assert status == 0, text
    kept = {name: len(questions) for name, questions in load_splits(tmp_path / "out").items()}
    assert kept == {"train": 4, "eval": 3}


def test_command_without_a_network_names_the_url_and_the_remedy(tmp_path: Path) -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: every connection is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/file.zip"
        status, text = invoke(
            "--out",
            tmp_path / "out",
            SQLENV_SPIDER_URL=url,
            SQLENV_CACHE_DIR=str(tmp_path),
            SQLENV_DOWNLOAD_ATTEMPTS="1",
        )
    assert status == 1
    assert url in text
    assert "--url" in text
    assert "python -m data import spider" in text
    assert not (tmp_path / "out").exists()


def test_an_occupied_out_is_refused_before_the_download(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("notes")
    with pytest.raises(DataError, match="--force"):
        fetch_spider(tmp_path / "out", settings(tmp_path), url=origin.url())
    assert origin.requests == 0


@pytest.mark.parametrize(
    "name", ["../evil.json", "/evil.json", "a/../../evil.json", "..\\evil.json", "C:\\evil.json"]
)
def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("good.json", "[]")
        packed.writestr(name, "[]")
    with pytest.raises(DataError, match="leads outside"):
        unpack(archive, tmp_path / "in", max_bytes=1_000)
    assert not list(tmp_path.rglob("evil.json"))


def test_links_and_oversize_archives_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    link = zipfile.ZipInfo("link.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="leads outside"):
        unpack(archive, tmp_path / "in", max_bytes=1_000)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("bomb.json", b"0" * 2_000_000)
    with pytest.raises(DataError, match="over the limit"):
        unpack(archive, tmp_path / "in", max_bytes=1_000_000)


@pytest.mark.parametrize("damage", ["not a zip at all", "cut", "flipped"])
def test_damaged_archive_is_named(origin: Origin, tmp_path: Path, damage: str) -> None:
    whole = zip_of(make_spider(tmp_path / "made"))
    middle = len(whole) // 2
    flipped = whole[:2_000] + bytes(byte ^ 255 for byte in whole[2_000:middle]) + whole[middle:]
    origin.content = {"cut": whole[:middle], "flipped": flipped}.get(damage, damage.encode())
    configured = settings(tmp_path, spider_url=origin.url())
    with pytest.raises(DataError, match="not a usable zip file") as refused:
        fetch_spider(tmp_path / "out", configured)
    assert str(archive_path(configured, origin.url())) in refused.value.message
    assert not (tmp_path / "out").exists()


def test_a_member_without_a_name_is_skipped(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("./", "")
        packed.writestr("./dev.json", "[]")
    unpack(archive, tmp_path / "out", max_bytes=100)
    assert (tmp_path / "out" / "dev.json").read_text() == "[]"


def test_damage_inside_a_member_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("dev.json", "hello" * 1000)
    content = bytearray(archive.read_bytes())
    # the first byte of the compressed text
    content[content.index(b"dev.json") + len("dev.json")] = 0xFF
    archive.write_bytes(content)
    with pytest.raises(DataError, match="not a usable zip file"):
        unpack(archive, tmp_path / "out", max_bytes=10_000)


def test_a_bad_setting_is_one_line_that_names_it(tmp_path: Path) -> None:
    status, printed = invoke("--out", tmp_path / "out", SQLENV_DOWNLOAD_ATTEMPTS="many")
    assert status == 1
    assert "error: SQLENV_DOWNLOAD_ATTEMPTS=many:" in printed
    assert "Traceback" not in printed


def test_an_archive_of_something_else_is_refused(origin: Origin, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("readme.txt", "hello")
    origin.content = packed.getvalue()
    with pytest.raises(DataError, match=r"holds no train_spider\.json"):
        fetch_spider(tmp_path / "out", settings(tmp_path, spider_url=origin.url()))
