"""Success of base models against the tokens that they were pretrained on: bases.md, .json, .png."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.learning.report import markdown_table, percent, wrapped
from benchmarks.learning.seeds import RUN_COLOURS
from shared.console import percent as percent_axis
from shared.run_stats import MODES
from trainer.errors import RunError
from trainer.run.charts import Chart, Point, Series, png
from trainer.run.folder import read_json


@dataclass(frozen=True)
class Base:
    """A pretrained model: its folder's name, and the records of its measured stages."""

    name: str
    parameters: int
    tokens: Sequence[int]  # seen at the end of each stage, since the start
    success: Sequence[dict[str, Any]]  # of each stage, as `unseen_success` returns it


def read_base(folder: Path) -> Base:
    """Read a model's `pretraining.json`; `RunError` if it is missing or a stage is not measured."""
    path = folder / "pretraining.json"
    if not path.is_file():
        raise RunError(f"no {path}: name the --out folders of 'python -m trainer pretrain'")
    stages = read_json(path)["stages"]
    if any("success" not in stage for stage in stages):
        raise RunError(
            f"{path} has a stage without its success: repeat 'python -m trainer pretrain'"
        )
    tokens = list(accumulate(stage["tokens"] for stage in stages))
    success = [stage["success"] for stage in stages]
    return Base(folder.resolve().name, stages[-1]["parameters"], tokens, success)


def page(bases: Sequence[Base], command: str) -> str:
    """Return bases.md."""
    rows = [
        [
            base.name,
            f"{base.parameters:,}",
            f"{tokens / 1e6:.0f}",
            *(percent(success[mode]) for mode in MODES),
            f"{100 * success['pass_at_8']:.1f}",
        ]
        for base in bases
        for tokens, success in zip(base.tokens, base.success, strict=True)
    ]
    headings = ["model", "parameters", "million tokens", *MODES, "any of 8 samples right"]
    head = wrapped(
        "Success of base models, after each stage of their pretraining, on the "
        f"{bases[0].success[0]['n']} easy and medium eval questions about unseen databases, in % "
        "with 95 % Wilson intervals. Each model was trained once."
    )
    table = markdown_table(headings, rows)
    picture = "![Success against tokens](bases.png)"
    return f"# The base models\n\n{head}\n\n    {command}\n\n{table}\n{picture}\n"


def curves(bases: Sequence[Base]) -> bytes:
    """Return a PNG with one chart per mode, with 95 % intervals."""
    charts = []
    for mode in MODES:
        series = [
            Series(
                f"{base.name} ({base.parameters / 1e6:.2f} M)",
                [
                    # aside, so that no interval hides another
                    Point(tokens / 1e6 + 0.4 * index, one[mode]["rate"], *one[mode]["ci95"])
                    for tokens, one in zip(base.tokens, base.success, strict=True)
                ],
                RUN_COLOURS[index % len(RUN_COLOURS)],
                "marked",
            )
            for index, base in enumerate(bases)
        ]
        bounds, axis = (0.0, 1.0), "million tokens of pretraining"
        charts.append(Chart(mode, mode, series, bounds=bounds, form=percent_axis, x_label=axis))
    return png(charts, "Success of base models on unseen databases; 95 % intervals", dpi=120)
