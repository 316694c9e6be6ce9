"""The picture of the results beside other environments shows what is published."""

from pathlib import Path

from benchmarks.peers.figure import FOLDER, draw
from tests.test_imports import ROOT


def test_the_picture_is_made_of_the_published_results(tmp_path: Path) -> None:
    made = tmp_path / "peers.png"
    draw(made, ROOT / FOLDER)
    assert made.read_bytes()[:4] == b"\x89PNG"
