"""Judging an answer is bounded, whatever the text and the gold."""

import pytest

from benchmarks.verdict_cost import golds, measure, texts

MAX_MS = 150  # of CPU: ten times what the slowest takes


@pytest.mark.slow
@pytest.mark.parametrize("name", golds())
def test_no_text_takes_long(name: str) -> None:
    gold = golds()[name]
    costs = [measure(name, gold, label, text) for label, text in texts(gold)]
    assert [cost for cost in costs if cost.ms > MAX_MS] == []


def test_thousands_of_lines_take_milliseconds() -> None:
    for name in ("integer", "20 names", "190 close floats"):
        gold = golds()[name]
        for text in ("1\n" * 10_000, "12.3\n" * 4_000, "'\\" * 10_000, "[" + "'a'," * 5_000):
            assert measure(name, gold, text[:9], text).ms < MAX_MS
