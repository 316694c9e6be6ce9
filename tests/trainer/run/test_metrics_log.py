"""What metrics.jsonl says of the episodes of a step."""

from tests.trainer.conftest import record
from trainer.run.metrics_log import one_verdict_groups


def test_a_group_is_the_episodes_of_a_question_in_a_step():
    right, wrong, lost = "correct", "wrong", "infra_failed"
    groups = {
        (1, "a"): (right, wrong),
        (1, "b"): (right, right),
        (2, "b"): (wrong, wrong),
        (2, "c"): (wrong, lost),
    }
    episodes = [
        record(step=step, question_id=question, outcome=outcome)
        for (step, question), outcomes in groups.items()
        for outcome in outcomes
    ]
    assert one_verdict_groups(episodes) == 0.75
