"""Numbers on charts, the axis of steps, and charts as a PNG."""

import pytest

from trainer.run.charts import Baseline, Chart, Point, Series, axis_number, png, step_ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.5, "1,234"), (999.9, "1,000"), (999.4, "999"), (0.25, "0.25"), (7, "7")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert axis_number(value) == text


@pytest.mark.parametrize(
    "series", [[], [Series("s", [Point(3, 1.0, 0.5, 1.5)], "blue", band=True)]]
)
def test_a_chart_with_few_or_no_points_is_drawn(series: list[Series]) -> None:
    baseline = Baseline("chance", 0.2, interval=(0.1, 0.3))
    assert png([Chart("k", "T", series, [baseline], steps=9)], "title").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("first", "last", "ticks"),
    [(-0.055, 0, [0]), (-0.02, 1, [0, 1]), (-2, 100, [0, 20, 40, 60, 80, 100])],
)
def test_the_x_axis_has_whole_steps(first: float, last: float, ticks: list[float]) -> None:
    assert step_ticks(first, last) == ticks
