"""What a base model can do before reinforcement learning, for its card: success on the shipped,
unseen databases."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from shared.run_stats import MODES, UNSEEN
from trainer.config import GRPOConfig
from trainer.evaluation.inputs import JobOptions, load_inputs
from trainer.evaluation.measure import batch_of, connected, measure, model_play
from trainer.run.statistics import pass_at_k

TRIES = 8  # sampled episodes a question, for pass@8


def base_success(config: GRPOConfig, console: Console) -> dict[str, Any]:
    """`{n, greedy, sampled: {rate, n, ci95}, pass_at_8}` of `config.model_name` on unseen
    databases' eval questions.

    pass@8 is the mean over questions of whether any of the 8 is right.
    """
    name = Path(config.model_name).name
    with TemporaryDirectory(prefix="sqlenv-base-") as scratch:
        inputs = load_inputs(config, JobOptions(), "eval")
        rows = [
            row for row in inputs.evaluation if inputs.book.part(row["database_name"]) == UNSEEN
        ]
        with connected(config, (), inputs, Path(scratch) / "server.log") as there:
            batch = batch_of(inputs.model, config)
            found: dict[str, Any] = {"n": len(rows)}
            for mode in MODES:
                play = model_play(inputs.model, inputs.tokenizer, there.config, there.client, mode)
                result = measure(
                    console, f"{name} ({mode})", mode, play, rows, inputs.book, batch=batch
                )
                found[mode] = result.rate().as_dict()
            # copies in one batch draw from streams of their own
            again = [row for row in rows for _ in range(TRIES)]
            whole = max(TRIES, batch // TRIES * TRIES)
            result = measure(
                console, f"{name} (8 samples)", "sampled", play, again, inputs.book, batch=whole
            )
    tries = defaultdict(list)
    for episode in result.finished:
        tries[episode.question_id].append(episode.correct)
    scores = [
        pass_at_k(len(right), sum(right), TRIES) for right in tries.values() if len(right) == TRIES
    ]
    return {**found, "pass_at_8": sum(scores) / len(scores)}
