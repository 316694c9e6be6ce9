"""Databases of a user's own, and proofs that they are left alone."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

SHOP = """
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, buyer TEXT, total REAL);
INSERT INTO orders (buyer, total) VALUES ('Ann', 10.5), ('Bo', 99.0), ('Cy', 7.25);
"""
Still = tuple[dict[str, tuple[bytes, int]], int]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "my files").mkdir()
    return run_script(tmp_path / "my files" / "shop.db", SHOP)


def run_script(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def still(folder: Path) -> Still:
    files = {
        one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in sorted(folder.iterdir())
    }
    return files, folder.stat().st_mtime_ns


def killed_writer(path: Path, script: str) -> None:
    """A program that was killed in the middle: it runs `script` with `c`, a connection, and leaves
    no time to close."""
    connect = f"import os, sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None)"
    code = f"{connect}\n{script}\nos._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
