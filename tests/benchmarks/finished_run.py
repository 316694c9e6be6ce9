"""A short run of a random model, for the tests of what is measured after a run."""

from pathlib import Path
from typing import Any

from rich.console import Console

from tests.trainer.small_data import make_data
from trainer.config import GRPOConfig
from trainer.evaluation.inputs import JobOptions
from trainer.grpo.job import run_job


def finished_run(
    config: GRPOConfig, model: Any, tokenizer: Any, folder: Path, steps: int, console: Console
) -> Path:
    """Train in `folder` for `steps` steps on a real server; return the run's folder."""
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    settings = config.override(
        data_dir=make_data(folder / "data"),
        model_name=str(folder / "base"),
        max_steps=steps,
        logging_steps=1,
        step_budget=3,
        max_new_tokens=6,
    )
    options = JobOptions("offline", folder / "runs", eval_limit=6, eval_points=2)
    run_job(settings, options, console=console)
    return folder / "runs" / "latest"
