import pytest

from tests.trainer.grpo.live.live_data import POINTS, ROWS, episode, result
from trainer.grpo.live.snapshot import LiveSnapshot, Trace


@pytest.fixture
def snapshot() -> LiveSnapshot:
    return LiveSnapshot(
        title="GRPO of tiny, seed 1",
        step=12,
        steps=20,
        rows=ROWS,
        points=POINTS,
        questions={"train": 3, "eval": 3},
        traces=[Trace(10, "How many animals?", episode(1))],
        evaluations={
            "random": {"sampled": result(1, 20)},
            "before": {"greedy": result(8, 20), "sampled": result(6, 20)},
        },
    )
