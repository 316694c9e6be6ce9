"""Charts as SVG: what they show, that the page can hold them, and their values in words."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from shared.console import percent
from tests.trainer.played_run import HOSTILE
from trainer.report import svg
from trainer.run.charts import Chart, Point, Series


def chart(**changes: Any) -> Chart:
    points = [Point(step, step / 10) for step in range(1, 11)]
    return Chart(**{"key": "k", "title": "T", "series": [Series("s", points, "blue")], **changes})


def numbers(markup: str, pattern: str) -> list[float]:
    return [float(text) for text in re.findall(pattern, markup)]


def test_a_chart_can_be_read_in_numbers() -> None:
    made = chart(form=percent)
    drawn = str(svg.draw(made))
    assert drawn.count('class="hit"') == 10
    assert "step 3: s: 30.0 %" in drawn
    assert svg.values(made)[0] == (1, ["10.0 %"])
    assert ">20 %</text>" in drawn  # tick labels are text


def test_the_page_can_hold_a_drawing() -> None:
    """No inline style, which the page's policy blocks; no id twice; colours of the theme."""
    points = [Point(x, x, x - 1, x + 1) for x in range(4)]
    kinds = [Series(kind, points, "green", kind) for kind in ("line", "faint", "dashed")]
    made = [
        chart(key=key, series=[*kinds, Series("d", points, "blue", "diamonds")]) for key in "ab"
    ]
    texts = [str(svg.draw(one)) for one in made]
    ids = []
    for text in texts:
        root = ElementTree.fromstring(text.replace("xlink:", ""))
        ids += [one.get("id") for one in root.iter() if one.get("id")]
        assert not any(one.tag == "style" or one.get("style") for one in root.iter())
        assert 'stroke="var(--green)"' in text
        assert "#1a7f4b" not in text
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("ys", [[0.0, 0.0], [5.0], [-1e9, 1e9], [1e-9, 2e-9]])
def test_points_lie_inside_the_picture_whatever_their_values(ys: list[float]) -> None:
    points = [Point(x, y, y, y) for x, y in enumerate(ys)]
    drawn = str(svg.draw(chart(series=[Series("s", points, "blue", "dashed", band=True)])))
    marks = re.findall(r'<use xlink:href="[^"]*" x="([\d.]+)" y="([\d.]+)"', drawn)
    marks = [mark for mark in marks if mark != ("0", "300")]  # where the area is put
    assert len(marks) >= len(ys)
    for x, y in marks:
        assert svg.LEFT <= float(x) <= svg.WIDTH - svg.RIGHT
        assert svg.TOP <= float(y) <= svg.HEIGHT - svg.BOTTOM


def tick_labels(drawn: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", drawn)


@pytest.mark.parametrize("ys", [[-0.0021, 0.0011], [0.9981, 1.0019], [123_456.0, 123_456.9]])
def test_tick_labels_differ(ys: list[float]) -> None:
    points = [Point(x, y) for x, y in enumerate(ys)]
    drawn = str(svg.draw(chart(series=[Series("s", points, "blue")])))
    values = [text for text in tick_labels(drawn) if text not in ("0", "1", "GRPO step")]
    assert len(values) >= 3
    assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    ("last", "labels"),
    [(70, ["0", "15", "30", "45", "60", "70"]), (61, ["0", "15", "30", "45", "61"]), (1, ["1"])],
)
def test_the_last_step_is_labelled(last: int, labels: list[str]) -> None:
    points = [Point(x, 0.5) for x in range(min(last, 1), last + 1)]
    drawn = str(svg.draw(chart(series=[Series("s", points, "blue")])))
    assert tick_labels(drawn)[: len(labels)] == labels


def test_labels_are_escaped_and_an_empty_chart_is_nothing() -> None:
    assert svg.draw(chart(series=[])) == ""
    hostile = chart(title=HOSTILE, series=[Series(HOSTILE, [Point(1, 1)], "blue")])
    assert "<script>" not in str(svg.draw(hostile))


def test_a_long_curve_is_drawn_as_means_within_its_range() -> None:
    thin = svg.thinned([Point(x, x, x - 1, x + 1) for x in range(1000)], 100)
    assert len(thin) == 100
    assert thin[0] == Point(4.5, 4.5, -1, 10)
    long = chart(series=[Series("s", [Point(x, x) for x in range(1000)], "blue")])
    assert len(svg.values(long)) <= 130


def test_columns_are_stacked() -> None:
    parts = [Series(name, [Point(1, 2.0), Point(2, 4.0)], "blue") for name in "ab"]
    drawn = str(svg.draw(chart(series=parts, stacked=True, bounds=(0.0, 8.0))))
    columns = re.findall(r'<path d="([^"]*)"[^>]*fill="var\(--blue\)"', drawn)
    tops = [min(numbers(column, r"[ML] [\d.]+ ([\d.]+)")) for column in columns]
    height = svg.HEIGHT - svg.TOP - svg.BOTTOM
    shares = [round((svg.HEIGHT - svg.BOTTOM - top) / height, 2) for top in tops]
    assert shares == [0.25, 0.5, 0.5, 1.0]
