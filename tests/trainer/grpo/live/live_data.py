"""Episodes, evaluations and measurements of a training that a live display shows."""

from shared.run_stats import Rate
from tests.trainer.records import record
from trainer.evaluation.evaluate import EvalResult
from trainer.run.records import EpisodeRecord, Turn

ROWS = [{"step": step, "reward": 0.1 * step, "loss": 0.0} for step in range(1, 13)]
POINTS = [
    {"step": 0, "train": Rate(1, 3).as_dict(), "eval": Rate(0, 3).as_dict()},
    {"step": 10, "train": Rate(3, 3).as_dict(), "eval": Rate(0, 0).as_dict()},
]


def episode(
    number: int, *, correct: bool = True, action: str = "QUERY: SELECT 1", shown: str = "1"
) -> EpisodeRecord:
    return record(
        question_id=f"q{number}",
        database="farm",
        part="unseen",
        outcome="correct" if correct else "wrong",
        progress=0.5,
        operational=-0.02,
        reward=1.055 if correct else 0.055,
        turns=(Turn(action, shown), Turn("ANSWER: 1", "")),
    )


def result(right: int, n: int) -> EvalResult:
    return EvalResult(
        "sampled", tuple(episode(number, correct=number < right) for number in range(n)), 1.0
    )
