"""Records of played episodes."""

from typing import Any

from trainer.run.records import EpisodeRecord


def record(**changes: Any) -> EpisodeRecord:
    """Return a record with the fields `changes`. Steps and rewards follow from them by default."""
    outcome = changes.get("outcome", "correct")
    lost = outcome == "infra_failed"
    correctness = None if lost else float(outcome == "correct")
    fields = {
        "question_id": "q",
        "database": "shop",
        "difficulty": "easy",
        "part": "seen",
        "outcome": outcome,
        "steps": max(len(changes.get(name, ())) for name in ("turns", "actions", "rewards")),
        "correctness": correctness,
        "progress": None if lost else 0.0,
        "operational": None if lost else 0.0,
        "reward": correctness,
        "parse_failures": 0,
        "env_errors": 0,
        "context_overflow": False,
        "turns": (),
    }
    return EpisodeRecord(**{**fields, **changes})
