"""The success of a model on unseen databases, for its model card."""

from typing import Any

from rich.console import Console

from trainer.config import GRPOConfig
from trainer.evaluation.evaluate import choose
from trainer.evaluation.run import run_evaluation
from trainer.evaluation.settings import EvaluationSettings
from trainer.rollout.dataset import load_question_prompts

TRIES = 8  # sampled episodes per question


def unseen_success(config: GRPOConfig, console: Console, eval_limit: int = 0) -> dict[str, Any]:
    """Return the success of `config.model_name` on the eval questions about unseen databases.

    With `eval_limit`, these are of the questions that a run with this option plays. The keys are n
    (questions), greedy and sampled (`{rate, n, ci95}`), and pass_at_8: the share of questions of
    which any of 8 sampled answers is right.
    """
    rows = choose(load_question_prompts(config, "eval"), eval_limit)
    asked: dict[str, Any] = {"config": config, "part": "unseen"}
    asked["question_ids"] = tuple(row["question_id"] for row in rows)
    greedy = run_evaluation(EvaluationSettings(**asked, temperature=None), console)
    sampled = run_evaluation(EvaluationSettings(**asked, samples=TRIES), console)
    tries = sampled["success"]["overall"]
    return {
        "n": greedy["questions"],
        "greedy": greedy["success"]["overall"]["success"],
        "sampled": tries["success"],
        "pass_at_8": tries["pass_at"][str(TRIES)]["rate"],
    }
