"""Charts as a PNG."""

import pytest

from trainer.run.charts import Baseline, Chart, Point, Series, png


@pytest.mark.parametrize(
    "series", [[], [Series("s", [Point(3, 1.0, 0.5, 1.5)], "blue", band=True)]]
)
def test_a_chart_with_few_or_no_points_is_drawn(series: list[Series]) -> None:
    chart = Chart("k", "T", series, [Baseline("chance", 0.2)], steps=9)
    assert png([chart], "title").startswith(b"\x89PNG")
