"""Draw what the published results beside other environments say, as one picture.

python -m benchmarks.peers.figure     reads docs/figures/peers*.json, writes peers.png there
"""

import json
from pathlib import Path
from typing import Any

import typer
from matplotlib.figure import Figure

from trainer.charts import COLOURS

FOLDER = Path("docs/figures")
KILLED = "kill, 5 s"  # the fault that the picture shows
SIZE_INCHES = (10.8, 4.6)


def panels(steps: Any, trust: Any, faults: Any) -> list[tuple[str, str, dict[str, float]]]:
    """Return title, format of a value, and values by environment of each panel."""
    names = {"sqlenv": "SQLEnv", "nemo-gym": "NeMo Gym", "skyrl-gym": "SkyRL-gym"}
    deleted = {title: 100 * trust[name]["earned"]["DELETE FROM T"] for name, title in names.items()}
    accepted = {title: sum(trust[name]["accepted"].values()) for name, title in names.items()}
    lost = {
        title: next(one["lost"] for one in faults[name]["disturbed"] if one["fault"] == KILLED)
        for name, title in (("sqlenv", "SQLEnv"), ("openenv", "OpenEnv, TRL"))
    }
    ratios = {peer["name"]: peer["cpu_ratio"]["median"] for peer in steps["peers"]}
    cost = {"SQLEnv": ratios["sqlenv"], "OpenEnv": ratios["openenv"], "TRL's loop": ratios["trl"]}
    return [
        ("A constant DELETE earns, % of 254 questions", "{:.1f}", deleted),
        (f"Wrong answers accepted, of {trust['sqlenv']['wrong']}", "{:.0f}", accepted),
        ("Server killed for 5 s: episodes lost, of 64", "{:.0f}", lost),
        ("CPU time of a step, SQLEnv = 1", "{:.1f}", cost),
    ]


def draw(path: Path, folder: Path = FOLDER) -> None:
    results = (folder / f"{name}.json" for name in ("peers", "peers-trust", "peers-faults"))
    found = panels(*(json.loads(result.read_text()) for result in results))
    figure = Figure(figsize=SIZE_INCHES, dpi=110, layout="constrained")
    for axes, (title, form, values) in zip(figure.subplots(2, 2).flat, found, strict=True):
        colours = [COLOURS["blue" if name == "SQLEnv" else "orange"] for name in values]
        bars = axes.barh(list(values), list(values.values()), 0.6, color=colours)
        axes.bar_label(bars, labels=[form.format(value) for value in values.values()], padding=3)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlim(0, 1.2 * max(values.values()))
        axes.invert_yaxis()
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.set_xticks([])
    figure.savefig(path, format="png")


def main() -> None:
    """Draw the published results beside other environments."""
    draw(FOLDER / "peers.png")


if __name__ == "__main__":
    typer.run(main)
