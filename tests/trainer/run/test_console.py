from trainer.run.console import seconds_text


def test_seconds_have_two_units():
    times = [seconds_text(value) for value in (12.34, 90, 3599.6, 9000, None)]
    assert times == ["12.3 s", "1 min 30 s", "1 h 0 min", "2 h 30 min", "–"]
