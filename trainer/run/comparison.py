"""Runs and evaluations beside the first of them: success, settings, learning curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console, RenderableType

from shared.console import percent, print_line
from shared.run_stats import Mode
from trainer.charts import Chart, Series, curve_points, png
from trainer.config.settings import ConfigError
from trainer.errors import RunError
from trainer.run.analysis import compare, share
from trainer.run.console import rate_text, table
from trainer.run.evaluation import Measured, read_measured
from trainer.run.folder import Run, check_writable, read_json, read_lines, write_bytes
from trainer.run.printed_tables import paired_cells

CURVE_COLOURS = ("blue", "orange", "green", "grey")  # of as many runs
LOOKS: tuple[tuple[Mode, Literal["line", "dashed"]], ...] = (
    ("greedy", "line"),
    ("sampled", "dashed"),
)
LEFT_OUT = ("output_dir", "server_urls", "options.out")  # settings that decide no result


def compare_runs(paths: Sequence[Path], out: Path, console: Console) -> None:
    if not 2 <= len(paths) <= len(CURVE_COLOURS):
        raise ConfigError(f"name 2 to {len(CURVE_COLOURS)} runs or evaluations to compare")
    found = [read_measured(path) for path in paths]
    if len({one.settings["data_digest"] for one in found}) > 1:
        raise RunError("these were measured on different data: name those of the same --data")
    console.print(comparison_table(found), crop=False, width=None if console.is_terminal else 160)
    for name, values in different_settings(paths).items():
        print_line(console, f"{name}: {', '.join(values)}")
    series = [
        Series(f"{str(path)[-30:]}, {mode}", points, colour, kind)
        for path, colour in zip(paths, CURVE_COLOURS, strict=False)
        for mode, kind in LOOKS
        if (points := curve_points(list(read_lines(Run(path).metrics)), mode))
    ]
    if series:
        check_writable(out)
        title = "Success on eval questions"
        write_bytes(out, png([Chart("compared", title, series, bounds=(0.0, None), form=percent)]))
        print_line(console, f"wrote {out}")


def comparison_table(found: Sequence[Measured]) -> RenderableType:
    first, rows = found[0], []
    for one in found:
        rate = share([tries.share for tries in one.tries.values()])
        cells = [one.name, str(len(one.tries)), rate_text(rate)]
        if one is not first:
            paired = compare(first.tries, one.tries)
            cells += [str(paired["n"]), *(paired_cells(paired) if paired["n"] else ())]
        rows.append([*cells, *[""] * (8 - len(cells))])
    headings = ("run", "questions", "success %", "of both", "difference", "gained", "lost", "p")
    return table(f"Against {first.name}", headings, rows)


def different_settings(paths: Sequence[Path]) -> dict[str, list[str]]:
    saved = [flat(read_json(Run(path).config)) for path in paths]
    names = dict.fromkeys(name for one in saved for name in one)
    values = {name: [str(one.get(name, "unset")) for one in saved] for name in names}
    return {
        name: [one if len(one) <= 60 else f"…{one[-59:]}" for one in each]  # paths end differently
        for name, each in values.items()
        if len(set(each)) > 1 and name not in LEFT_OUT
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
