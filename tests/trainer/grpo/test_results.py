"""What the terminal shows of a finished job."""

from pathlib import Path

import pytest

from trainer.grpo.results import draw_report
from trainer.run.folder import Run


def test_a_report_that_fails_names_the_command_that_draws_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw_report(Run(tmp_path / "my run"))  # which has no files
    assert f"try again with: python -m trainer report '{tmp_path / 'my run'}'\n" in caplog.text
