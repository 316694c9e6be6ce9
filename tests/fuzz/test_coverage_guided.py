"""Coverage-guided: atheris finds no action or statement that violates a property."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "atheris", reason="atheris has no wheel for this system or Python; hypothesis fuzzes alone"
)

ROOT = Path(__file__).parents[2]
LONG_S = 120


def fuzz(work: Path, *options: str, timeout_s: float) -> str:
    """Run the target and return its output. A failure shows the command that repeats it."""
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.coverage_guided", str(work), *options],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        timeout=timeout_s,
    )  # fmt: skip
    found = sorted(path.name for path in work.glob("*-*") if path.is_file())
    again = "".join(
        f"\npython -m tests.fuzz.coverage_guided WORK_DIR {work / name}" for name in found
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{again}"
    assert found == []
    return done.stdout


def coverage_of(output: str) -> list[int]:
    return [int(number) for number in re.findall(r" cov: (\d+) ", output)]


def test_a_short_run(tmp_path: Path) -> None:
    output = fuzz(tmp_path / "work", "-runs=1500", "-seed=1", timeout_s=250)
    assert re.search(r"^Done 1[5-9]\d\d runs in", output, re.MULTILINE), output[-2000:]
    assert coverage_of(output)[-1] > 300, "nothing of ours was instrumented"


@pytest.mark.slow
@pytest.mark.timeout(LONG_S + 300)
def test_a_long_run(tmp_path: Path) -> None:
    output = fuzz(tmp_path / "work", f"-max_total_time={LONG_S}", timeout_s=LONG_S + 200)
    coverage = coverage_of(output)
    assert coverage[-1] > coverage[0], "the guide found nothing beyond the first inputs"
