import pytest

from trainer.run.console import seconds_text
from trainer.run.printed_tables import agreement_line


def test_seconds_have_two_units():
    times = [seconds_text(value) for value in (12.34, 90, 3599.6, 9000, None)]
    assert times == ["12.3 s", "1 min 30 s", "1 h 0 min", "2 h 30 min", "–"]


@pytest.mark.parametrize(("samples", "voted"), [(2, False), (3, True)])
def test_two_attempts_have_no_votes_to_take_as_labels(samples, voted):
    group = {
        "winning_share": {"rate": 0.9},
        "labels": {"n": 4, "rate": None},
        "agreement": {str(k): {} for k in range(1, samples + 1)},
        "success": {"n": 20},
    }
    assert ("votes on 4 of 20 questions" in agreement_line(group)) == voted
