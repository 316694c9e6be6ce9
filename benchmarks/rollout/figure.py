"""The time line of a rollout as a PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.rollout.measure import ELSE, ENVIRONMENT, GENERATION, Span
from shared.console import percent
from trainer.run.charts import COLOURS

REST = "parsing, tokens, rewards"
TRACKS = {GENERATION: "blue", ENVIRONMENT: "orange", REST: "violet"}
STYLE = {"axes.titlelocation": "left", "axes.titlesize": 11, "font.size": 10}


def live_curve(spans: Sequence[Span]) -> tuple[list[float], list[int]]:
    """Return the times, and the live episodes from each on, as each turn starts."""
    turns = [span for span in spans if span.phase == GENERATION]
    end = spans[-1].end_s
    return [*(turn.start_s for turn in turns), end], [*(turn.live for turn in turns), 0]


def tracks(spans: Sequence[Span]) -> dict[str, list[tuple[float, float]]]:
    """Return lane -> (start, seconds) of each span."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in TRACKS}
    for span in spans:
        name = REST if span.phase in ELSE else span.phase
        found[name].append((span.start_s, span.end_s - span.start_s))
    return found


def draw(rollouts: Mapping[str, Sequence[Span]], path: Path) -> None:
    """Draw the time lines, title -> spans without gaps, one below the other."""
    longest = max(spans[-1].end_s for spans in rollouts.values())
    with rc_context(STYLE):
        figure = Figure(figsize=(9.6, 3.6 * len(rollouts)), dpi=110, layout="constrained")
        panels = figure.subplots(
            2 * len(rollouts), 1, sharex=True, height_ratios=[1.1, 1] * len(rollouts), squeeze=False
        )[:, 0]
        for number, (title, spans) in enumerate(rollouts.items()):
            curve, bars = panels[2 * number : 2 * number + 2]
            _curve(curve, spans, title)
            _bars(bars, spans)
        panels[-1].set(xlabel="seconds since the start of the rollout", xlim=(0, 1.01 * longest))
        figure.savefig(path, format="png")


def _curve(axes: Axes, spans: Sequence[Span], title: str) -> None:
    times, live = live_curve(spans)
    axes.step(times, live, where="post", color=COLOURS["green"], lw=1.8)
    axes.fill_between(times, live, step="post", color=COLOURS["green"], alpha=0.12)
    axes.set(title=title, ylabel="episodes\nstill live", ylim=(0, 1.12 * max(live)))
    axes.grid(alpha=0.25)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def _bars(axes: Axes, spans: Sequence[Span]) -> None:
    whole_s, labels = spans[-1].end_s, []
    for height, (name, bars) in enumerate(tracks(spans).items()):
        colour = COLOURS[TRACKS[name]]
        # an edge of its own colour keeps a bar of a few ms visible
        axes.broken_barh(bars, (height - 0.36, 0.72), color=colour, lw=0.6)
        labels.append(f"{name} {percent(sum(seconds for _, seconds in bars) / whole_s)}")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
