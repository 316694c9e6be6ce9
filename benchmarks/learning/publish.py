"""The trained model that ships: a finished run's, in bfloat16, with a card of its success."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.learning.bench import Finished, load_finished, measured
from shared.run_stats import MODES, UNSEEN
from trainer.config import GRPOConfig
from trainer.pretraining.model_card import rate_text
from trainer.pretraining.pretrain import write_model
from trainer.pretraining.unseen_success import unseen_success
from trainer.run.folder import write_text
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.models import load_model_and_tokenizer

CARD = """# {name}

`{base}` after {steps} steps of GRPO with {rollouts} episodes each: `make train SEED={seed}`, then
`python -m benchmarks.learning publish`.

Success in % on the {n} {difficulties} eval questions about unseen databases, with 95 % intervals:

| | greedy | sampled |
|---|---|---|
| [{base}](../{base}/README.md) | {before} |
| **{name}** | {after} |

For {pass_at_8:.1f} % of the questions, at least one of 8 samples of the trained model is right. It
was measured as it ships, in bfloat16. Its architecture, tokenizer and limits are those of
{base}.
"""


def write_published(run: Path, out: Path, console: Console) -> None:
    """Write the model of a finished run to `out` in bfloat16, and measure it for its card.

    Raises `RunError` if the run is not finished.
    """
    finished = load_finished(run)
    limit_threads()
    model, tokenizer = load_model_and_tokenizer(with_model(finished, finished.run.model))
    write_model(model, tokenizer, out)
    limit = finished.options.eval_limit  # the same questions as before training
    success = unseen_success(with_model(finished, out), console, limit)
    write_text(out / "README.md", card(finished, success, out.name))


def with_model(finished: Finished, model: Path) -> GRPOConfig:
    """Return the run's settings with another model."""
    return finished.config.override(model_name=str(model))


def card(finished: Finished, success: Mapping[str, Any], name: str) -> str:
    """Return the card; `success` is what `unseen_success` returns for the trained model."""
    before = {mode: one[UNSEEN] for mode, one in measured(finished.run, "before").items()}
    return CARD.format(
        name=name,
        base=Path(finished.config.model_name).name,
        steps=finished.steps,
        rollouts=finished.config.rollouts_per_step,
        seed=finished.config.seed,
        n=success["n"],
        difficulties=" and ".join(finished.config.difficulty_filter),
        before=" | ".join(rate_text(before[mode]) for mode in MODES),
        after=" | ".join(rate_text(success[mode]) for mode in MODES),
        pass_at_8=100 * success["pass_at_8"],
    )
