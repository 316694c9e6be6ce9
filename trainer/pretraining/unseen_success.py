"""The success of a model on unseen databases, for its model card."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from shared.run_stats import MODES, UNSEEN
from trainer.config import GRPOConfig
from trainer.evaluation.analysis import success_by_question
from trainer.evaluation.evaluate import evaluate
from trainer.evaluation.inputs import JobOptions, load_inputs
from trainer.evaluation.measure import batch_of, connected, model_play

TRIES = 8  # sampled episodes per question, for pass@8


def unseen_success(config: GRPOConfig, console: Console, eval_limit: int = 0) -> dict[str, Any]:
    """Return the success of `config.model_name` on the eval questions about unseen databases.

    With `eval_limit`, these are of the questions that a run with this option plays. The keys are n
    (questions), greedy and sampled (`{rate, n, ci95}`), and pass_at_8: the share of questions of
    which any of 8 sampled answers is right.
    """
    name = Path(config.model_name).name
    with TemporaryDirectory(prefix="sqlenv-base-") as scratch:
        inputs = load_inputs(config, JobOptions(eval_limit=eval_limit), "eval")
        book = inputs.book
        rows = [row for row in inputs.evaluation if book.part(row["database_name"]) == UNSEEN]
        success: dict[str, Any] = {"n": len(rows)}
        with connected(config, (), inputs, Path(scratch) / "server.log") as connection:
            config, client = connection.config, connection.client
            batch = batch_of(inputs.model, config)
            for mode in MODES:
                play = model_play(inputs.model, inputs.tokenizer, config, client, mode)
                shown: dict[str, Any] = {"title": f"{name} ({mode})", "console": console}
                result = evaluate(play, rows, book, mode=mode, batch=batch, **shown)
                success[mode] = result.rate().as_dict()
            shown["title"] = f"{name} ({TRIES} samples)"
            # the samples of a question in one batch, where each has its own random stream
            draws = [row for row in rows for _ in range(TRIES)]
            batch = max(TRIES, batch // TRIES * TRIES)
            result = evaluate(play, draws, book, mode="sampled", batch=batch, **shown)
    tries = success_by_question((one.question_id, one.outcome) for one in result.episodes)
    complete = [correct for correct in tries.values() if len(correct) == TRIES]
    return {**success, "pass_at_8": sum(map(any, complete)) / len(complete)}
