"""The values of charts as rows, and charts as a PNG."""

import pytest

from shared.console import percent
from trainer.run.charts import Baseline, Chart, Point, Series, png, values


@pytest.mark.parametrize(
    "series", [[], [Series("s", [Point(3, 1.0, 0.5, 1.5)], "blue", band=True)]]
)
def test_a_chart_with_few_or_no_points_is_drawn(series: list[Series]) -> None:
    chart = Chart("k", "T", series, [Baseline("chance", 0.2)], steps=9)
    assert png([chart], "title").startswith(b"\x89PNG")


def test_the_values_of_a_chart_are_rows_by_step() -> None:
    first = Series("a", [Point(1, 0.5, 0.25, 0.75), Point(2, 1.0)], "blue")
    second = Series("b", [Point(2, 0.25)], "green")
    chart = Chart("k", "T", [first, second], form=percent)
    assert values(chart) == [(1, ["50.0 % [25.0 %, 75.0 %]", ""]), (2, ["100.0 %", "25.0 %"])]
    long = Chart("k", "T", [Series("s", [Point(x, x) for x in range(1000)], "blue")])
    steps = [step for step, _ in values(long)]
    assert len(steps) <= 130
    assert (steps[0], steps[-1]) == (0, 999)
    assert values(Chart("k", "T")) == []
