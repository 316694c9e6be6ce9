"""Groups of rollouts, and which steps are shown."""

from hypothesis import given
from hypothesis import strategies as st

from trainer.report.groups import chosen_steps, groups


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


@given(st.sets(st.integers(1, 500), max_size=60), st.integers(2, 20))
def test_the_chosen_steps_hold_both_ends(steps: set[int], count: int) -> None:
    chosen = chosen_steps(sorted(steps), count)
    assert len(set(chosen)) == len(chosen) == min(count, len(steps))
    assert set(chosen) <= steps
    if steps:
        assert {min(steps), max(steps)} <= set(chosen)
