"""The trainer image's entry point runs its command as the owner of the mounted directory."""

import errno
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docker" / "as_owner.py"
AS_OWNER = runpy.run_path(str(SCRIPT))
WRITE = 'touch "$0/made"; id -u; id -G'
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can hand a directory over")


@as_root
def test_root_runs_the_command_as_the_owner_of_the_directory(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    os.chown(runs, 4321, 4322)
    # pytest's folders are readable only by their owner
    for parent in (tmp_path, *tmp_path.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    command = [sys.executable, str(SCRIPT), str(runs), "/bin/sh", "-c", WRITE, str(runs)]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
    assert result.stdout.split() == ["4321", "4322"], result.stderr
    assert ((runs / "made").stat().st_uid, (runs / "made").stat().st_gid) == (4321, 4322)


@as_root
def test_a_directory_of_root_is_given_to_the_owner_of_the_checkout_or_the_image_user(
    tmp_path: Path,
) -> None:
    checkout, owner_of = tmp_path / "compose.yaml", AS_OWNER["owner_of"]
    assert owner_of(tmp_path, checkout, (10001, 10001)) == (10001, 10001)
    checkout.touch()
    assert owner_of(tmp_path, checkout, (10001, 10001)) == (10001, 10001)
    os.chown(checkout, 1000, 1001)
    assert owner_of(tmp_path, checkout, (10001, 10001)) == (1000, 1001)


def test_a_folder_that_cannot_be_written_is_named_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    monkeypatch.setattr(os, "getuid", lambda: 10001)
    with pytest.raises(SystemExit, match="Read-only file system; mount it for writing"):
        AS_OWNER["main"]([str(tmp_path), "true"])
