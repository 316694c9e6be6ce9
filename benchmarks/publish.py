"""Write the trained model that ships: a finished run's, in bfloat16, with a card of its success.

python -m benchmarks.publish [--run RUN] [--out DIR]
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from shared.run_stats import MODES
from trainer.config.presets import TRAINED_MODEL
from trainer.errors import RunError
from trainer.pretraining.pretrain import rate_text, unseen_success, write_model
from trainer.run.folder import Run, how_to_resume, read_json, write_text
from trainer.run.options import console, guarded
from trainer.run.resume import resumed_settings
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.models import load_model_and_tokenizer

CARD = """# {name}

`{base}` after {steps} steps of GRPO with {rollouts} episodes each: `make train SEED={seed}`, then
`python -m benchmarks.publish`.

Success in % on the {n} {difficulties} eval questions about unseen databases, with 95 % intervals:

| | greedy | sampled |
|---|---|---|
| [{base}](../{base}/README.md) | {before} |
| **{name}** | {after} |

For {pass_at_8:.1f} % of the questions, at least one of 8 samples of the trained model is right. It
was measured as it ships, in bfloat16. Its architecture, tokenizer and limits are those of
{base}.
"""


def write_published(path: Path, out: Path, console: Console) -> None:
    """Write the model of a finished run to `out` in bfloat16, and measure it for its card. Raises
    `RunError` if there is no run in `path`, or if it is not finished."""
    run = Run(path.resolve())
    if not run.config.is_file():
        raise RunError(f"no run at {path}: name the folder of 'make train', such as runs/latest")
    if not run.summary.is_file():
        remedy = how_to_resume(path, read_json(run.config))
        raise RunError(f"the run {path} is not finished: resume it with {remedy}")
    config, options = resumed_settings(run, (), {})
    limit_threads()
    model, tokenizer = load_model_and_tokenizer(config.override(model_name=str(run.model)))
    write_model(model, tokenizer, out)
    limit = options.eval_limit  # the same questions as before training
    success = unseen_success(config.override(model_name=str(out)), console, limit)
    before = read_json(run.summary)["evaluations"]["before"]
    card = CARD.format(
        name=out.name,
        base=Path(config.model_name).name,
        steps=read_json(run.summary)["train_steps"],
        rollouts=config.rollouts_per_step,
        seed=config.seed,
        n=success["n"],
        difficulties=" and ".join(config.difficulty_filter),
        before=" | ".join(rate_text(before[mode]["unseen"]) for mode in MODES),
        after=" | ".join(rate_text(success[mode]) for mode in MODES),
        pass_at_8=100 * success["pass_at_8"],
    )
    write_text(out / "README.md", card)


def main(
    run: Annotated[Path, typer.Option(help="Folder of a finished run.")] = Path("runs/latest"),
    out: Annotated[Path, typer.Option(help="Folder of the model.")] = Path(TRAINED_MODEL),
) -> None:
    """Write the model of a finished run in bfloat16, with a card of its success."""
    with guarded():
        write_published(run, out, console)


if __name__ == "__main__":
    typer.run(main)
