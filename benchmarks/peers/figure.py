"""The costs of a report as one PNG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.peers.report import LOOP
from trainer.run.charts import COLOURS

STYLE = {"axes.titlelocation": "left", "axes.titlesize": 11, "legend.frameon": False}
SIZE_INCHES = (10.8, 4.4)


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw CPU time and steps per second of each peer."""
    peers = report["peers"]
    titles = [peer["title"].replace(", ", ",\n").replace(": ", ":\n") for peer in peers]
    server, client, rates = (
        [peer.get(key, 0.0) for peer in peers]
        for key in ("server_cpu_us", "client_cpu_us", "steps_per_s")
    )
    with rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, dpi=110, layout="constrained")
        cpu, speed = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        cpu.barh(titles, server, 0.6, color=COLOURS["green"], label="server and its SQL")
        costs = cpu.barh(
            titles, client, 0.6, server, color=COLOURS["orange"], label="client or loop"
        )
        cpu.bar_label(costs, labels=[*map(_label, peers)], padding=3, fontsize=9)
        cpu.set(title="Cost of a step", xlabel="CPU time per step, us")
        cpu.legend(loc="center right")
        speeds = speed.barh(titles, rates, 0.6, color=COLOURS["blue"])
        shown = [f"{rate:,.0f}" if rate else "" for rate in rates]
        speed.bar_label(speeds, labels=shown, padding=3, fontsize=9)
        speed.set(title=f"Speed, {report['episodes']} episodes at once", xlabel="steps/s")
        for axes, room in ((cpu, 1.7), (speed, 1.2)):  # room for the labels
            axes.set_xlim(0, room * axes.dataLim.x1)
            axes.grid(axis="x", alpha=0.25)
            axes.set_axisbelow(True)
            axes.xaxis.set_major_formatter("{x:,.0f}")
        cpu.invert_yaxis()
        figure.savefig(path, format="png")


def _label(peer: Mapping[str, Any]) -> str:
    """Return the cost in words: as a multiple of SQLEnv's client or loop, whichever it is."""
    if "not_measured" in peer:
        return "not measured"
    ratio = peer["cpu_ratio"]["median"]
    kind = "loop" if peer["base"] == LOOP else "client"
    multiple = "" if peer["base"] == peer["name"] else f": {ratio:.1f} x SQLEnv's {kind}"
    return f"{peer['cpu_us']:,.0f}{multiple}"
