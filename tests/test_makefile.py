"""What make runs for its options, as `make -n` prints it."""

import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def commands(*options: str) -> list[str]:
    """Return the trainer's commands of `make train` with these options."""
    make = ["make", "-n", "train", *options]
    found = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if " -m trainer " in line]


def test_a_warm_start_comes_first_and_its_model_is_trained() -> None:
    taught, trained = commands("MODEL=/models/qwen", "WARM_START=3", "SEED=2")
    assert shlex.split(taught)[3:] == (
        ["sft", "--seed", "2", "--model", "/models/qwen", "--rows", "3"]
    )
    assert '--model "$(cd runs/latest && pwd -P)/model"' in trained


@pytest.mark.parametrize(
    "options", [("MODEL=/models/qwen",), ("RESUME=runs/latest", "WARM_START=3")], ids=str
)
def test_no_warm_start_without_the_option_or_in_a_resumed_run(options: tuple[str, ...]) -> None:
    [trained] = commands(*options)
    assert " -m trainer train " in trained
