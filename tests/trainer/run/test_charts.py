"""Numbers on charts, and charts as a PNG."""

import pytest

from shared.console import percent
from trainer.run.charts import Baseline, Chart, Point, Series, number, png


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1,234"),
        (0.25, "0.25"),
        (0.0003, "3e-4"),
        (-0.000125, "-1.25e-4"),
        (7, "7"),
        (float("nan"), "-"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_shares_are_percentages() -> None:
    assert percent(0.7396) == "74.0 %"


@pytest.mark.parametrize(
    "series", [[], [Series("s", [Point(3, 1.0, 0.5, 1.5)], "blue", band=True)]]
)
def test_a_chart_with_few_or_no_points_is_drawn(series: list[Series]) -> None:
    baseline = Baseline("chance", 0.2, interval=(0.1, 0.3))
    assert png([Chart("k", "T", series, [baseline], steps=9)], "title").startswith(b"\x89PNG")
