"""Numbers on charts, and charts as a PNG."""

import itertools

import pytest
from matplotlib.figure import Figure

from shared.console import percent
from trainer.run.charts import (
    LABEL_HEIGHT,
    Baseline,
    Chart,
    Point,
    Series,
    axis_number,
    label_ends,
    plot,
    png,
    step_ticks,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1,234"),
        (999.9, "1,000"),
        (999.4, "999"),
        (0.25, "0.25"),
        (0.0003, "3e-4"),
        (-0.000125, "-1.25e-4"),
        (7, "7"),
        (float("nan"), "-"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert axis_number(value) == text


def test_shares_are_percentages() -> None:
    assert percent(0.7396) == "74.0 %"


@pytest.mark.parametrize(
    "series", [[], [Series("s", [Point(3, 1.0, 0.5, 1.5)], "blue", band=True)]]
)
def test_a_chart_with_few_or_no_points_is_drawn(series: list[Series]) -> None:
    baseline = Baseline("chance", 0.2, interval=(0.1, 0.3))
    assert png([Chart("k", "T", series, [baseline], steps=9)], "title").startswith(b"\x89PNG")


@pytest.mark.parametrize("top", [0.5, 0.99])
def test_names_stand_beside_the_ends_in_their_order_without_overlaps(top: float) -> None:
    curves = [
        Series(f"curve {n}", [Point(0, 0.0), Point(9, top - n / 1000)], "blue") for n in range(4)
    ]
    logged = Series("as logged", [Point(0, 0.0), Point(9, 1.0)], "blue", "faint")
    axes = Figure().subplots()
    chart = Chart("k", "T", [*curves, logged], [Baseline("chance", 0.02)], bounds=(0.0, 1.0))
    plot(axes, chart)
    label_ends(axes, chart)
    placed = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert list(placed) == ["chance", "curve 3", "curve 2", "curve 1", "curve 0"]
    heights = list(placed.values())
    assert all(b - a > LABEL_HEIGHT - 1e-9 for a, b in itertools.pairwise(heights))
    assert placed["chance"] == pytest.approx(0.02)
    assert max(heights) <= 1.0
    assert abs(placed["curve 0"] - top) < 4 * LABEL_HEIGHT


@pytest.mark.parametrize(
    ("first", "last", "ticks"),
    [(-0.055, 0, [0]), (-0.02, 1, [0, 1]), (-2, 100, [0, 20, 40, 60, 80, 100])],
)
def test_the_x_axis_has_whole_steps(first: float, last: float, ticks: list[float]) -> None:
    assert step_ticks(first, last) == ticks
