"""Groups of rollouts."""

from trainer.report.groups import groups


def test_a_question_that_comes_twice_in_a_batch_is_two_groups() -> None:
    rows = [
        {"question_id": question, "reward": reward, "outcome": outcome}
        for question, reward, outcome in (
            *(("a", 1.0, "correct"), ("a", 0.0, "wrong"), ("b", None, "infra_failed")),
            *(("b", 1.0, "correct"), ("a", 0.5, "wrong"), ("a", 0.25, "wrong")),
        )
    ]
    found = groups(1, rows, 2)
    assert [(group.question_id, group.mean) for group in found] == [
        ("a", 0.5),
        ("a", 0.375),
        ("b", 1.0),
    ]
    # a lost rollout is no wrong one
    assert [(group.correct, group.contrast) for group in found] == [
        (1, True),
        (0, False),
        (1, False),
    ]
