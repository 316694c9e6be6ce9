"""`python -m trainer compare RUN RUN ...`: runs and evaluations beside the first of them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from shared.console import percent, print_line
from shared.run_stats import Mode, wilson_interval
from trainer.config import ConfigError
from trainer.run.analysis import compare as compare_success
from trainer.run.console import percent_number, table
from trainer.run.evaluation import Measured, read_measured
from trainer.run.evaluation_tables import p_text
from trainer.run.folder import Run, check_writable, read_json, read_lines, write_bytes
from trainer.run.options import console, guarded

CURVE_COLOURS = ("blue", "orange", "green", "grey")  # of as many runs
LOOKS: tuple[tuple[Mode, Literal["line", "dashed"]], ...] = (
    ("greedy", "line"),
    ("sampled", "dashed"),
)


def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN ...", help="Folders of runs or evaluations.")
    ],
    out: Annotated[Path, typer.Option(help="Picture of the learning curves.")] = Path(
        "comparison.png"
    ),
) -> None:
    """Compare runs and evaluations with the first of them, question by question.

    Of a run, its greedy measurement after training counts. Prints the success of each, what it
    gains and loses against the first on the questions of both, and which settings differ, and draws
    the learning curves of all in one picture.
    """
    with guarded():
        if not 2 <= len(paths) <= len(CURVE_COLOURS):
            raise ConfigError(f"name 2 to {len(CURVE_COLOURS)} runs or evaluations to compare")
        found = [read_measured(path) for path in paths]
        console.print(comparison_table(found))
        for name, values in different_settings(paths).items():
            print_line(console, f"{name}: {', '.join(values)}")
        curves = [list(read_lines(Run(path).metrics)) for path in paths]
        if any(curves):
            from trainer.charts import Chart, Series, curve_points, png

            check_writable(out)
            series = [
                Series(f"{str(path)[-30:]}, {mode}", curve_points(rows, mode), colour, kind)
                for path, rows, colour in zip(paths, curves, CURVE_COLOURS, strict=False)
                for mode, kind in LOOKS
                if curve_points(rows, mode)
            ]
            title = "Success on eval questions"
            chart = Chart("compared", title, series, bounds=(0.0, None), form=percent)
            write_bytes(out, png([chart]))
            print_line(console, f"wrote {out}")


def comparison_table(found: list[Measured]) -> RenderableType:
    """Return success of each in percent, with its difference to the first on their questions."""
    first, rows = found[0], []
    for one in found:
        right, n = sum(one.success.values()), len(one.success)
        low, high = (percent_number(end) for end in wilson_interval(round(right), n))
        cells = [one.name, str(n), f"{percent_number(right / n)} [{low}, {high}]"]
        if one is not first:
            paired = compare_success(first.success, one.success)
            if paired["n"]:
                ends = "{:+.1f} to {:+.1f}".format(*(100 * end for end in paired["ci95"]))
                cells += [str(paired["n"]), f"{100 * paired['difference']:+.1f} [{ends}]"]
                cells += [str(paired["gained"]), str(paired["lost"]), p_text(paired["p_value"])]
            else:
                cells += ["0"]
        rows.append([*cells, *[""] * (8 - len(cells))])
    headings = ("run", "questions", "success %", "of both", "difference", "gained", "lost", "p")
    return table(f"Against {first.name}", headings, rows)


def different_settings(paths: list[Path]) -> dict[str, list[str]]:
    """Return the settings of config.json that are not the same in all, with the value of each."""
    saved = [flat(read_json(Run(path).config)) for path in paths]
    names = dict.fromkeys(name for one in saved for name in one)
    values = {name: [str(one.get(name, "unset"))[:60] for one in saved] for name in names}
    left_out = ("output_dir", "server_urls")
    return {
        name: each for name, each in values.items() if len(set(each)) > 1 and name not in left_out
    }


def flat(saved: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one dict; a field of GRPOConfig has its own name."""
    found: dict[str, Any] = {}
    for name, value in saved.items():
        if isinstance(value, dict):
            inner = "" if name == "config" else f"{prefix}{name}."
            found |= flat(value, inner)
        else:
            found[f"{prefix}{name}"] = value
    return found
