"""`python -m trainer train`. Imports torch late, so that help works without it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from shared.console import print_line
from trainer.config.presets import Choice
from trainer.config.settings import GRPOConfig
from trainer.run import options as cli
from trainer.runtime.lora import continues

# of an adapter that learns further: at 5e-5, its turns were four times as long after three steps
FURTHER_LEARNING_RATE = 1e-5


def grpo_config(
    preset: str | None, overrides: Mapping[str, Any], servers: Sequence[str] | None = None
) -> tuple[Choice, GRPOConfig]:
    choice, config = cli.configured(preset, overrides, servers)
    if continues(config) and "learning_rate" not in overrides:
        config = config.override(learning_rate=FURTHER_LEARNING_RATE)
    return choice, config


def train(
    context: typer.Context,
    preset: cli.PresetOption = None,
    seed: cli.SeedOption = None,
    steps: Annotated[
        int | None, Option(min=1, help="GRPO steps.", show_default="the preset's")
    ] = None,
    data: Annotated[Path | None, cli.DATA] = None,
    model: cli.ModelOption = None,
    adapter: cli.AdapterOption = None,
    standard: cli.StandardOption = None,
    server: cli.ServerOption = None,
    generation_url: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="vLLM server that samples the rollouts (docs/gpu.md): http://host:8000/v1.",
        ),
    ] = None,
    out: cli.OutOption = None,
    resume: Annotated[
        Path | None,
        Option(help="Resume an interrupted run, such as runs/latest, with its settings."),
    ] = None,
    resume_or_new: Annotated[
        bool,
        Option(
            "--resume-or-new",
            help="Resume the run in OUT with these settings, or start a new one. If it is "
            "finished, exit without training. For jobs that are restarted automatically.",
        ),
    ] = False,
    processes: Annotated[
        int | None,
        Option(
            min=1,
            help="Training processes on this machine: one per GPU or CPU core.",
            show_default="one per CPU core for a small model on the CPU, else 1; --resume: the "
            "run's",
        ),
    ] = None,
    set_: cli.SetOption = None,
    mixed: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Train on the questions that an evaluation of training questions got right in "
            "some episodes, but not in all.",
        ),
    ] = None,
    eval_limit: Annotated[
        int,
        Option(
            min=0, help="Number of eval questions to measure on; 0: all of difficulty_filter's."
        ),
    ] = 0,
    eval_every: Annotated[
        int | None,
        Option(
            min=0,
            help="Steps between points of the eval curve; 0: no curve.",
            show_default="about 6 points, at least 5 steps apart",
        ),
    ] = None,
    eval_points: Annotated[
        int, Option(min=1, help="Questions at each point of the eval curve.")
    ] = 64,
) -> None:
    """Train a model with GRPO, and measure random actions and the model before and after.

    Writes summary.json, learning_curve.png, transcripts.md, report.html, episodes.jsonl,
    metrics.jsonl and model/ to a folder in OUT. Ctrl-C stops with a checkpoint; --resume continues
    from it.
    """
    if resume is not None and resume_or_new:
        raise typer.BadParameter("can't be combined with --resume", param_hint="--resume-or-new")
    overrides = cli.settings_of(
        context,
        set_,
        refused=("eval_limit", "eval_every", "eval_points", "mixed", "out", "preset"),
        **cli.model_settings(model, adapter),
        max_steps=steps,
        data_dir=data,
        standard=standard,
        generation_url=generation_url,
        seed=seed,
    )

    with cli.guarded():
        from trainer.run.folder import open_run, read_json

        servers, run, found = tuple(server or ()), None, ""
        if resume is not None:
            from trainer.run.resume import resumed_settings

            run = open_run(resume)
            config, options = resumed_settings(run, servers, overrides)
        else:
            asked = None if resume_or_new else server  # a finished run needs none
            choice, config = grpo_config(preset, overrides, asked)
            from shared.dataset import data_digest
            from trainer.run.evaluation import mixed_questions
            from trainer.run.inputs import JobOptions

            out = out or Path("runs")
            config = config.override(output_dir=out)
            questions = []
            if mixed is not None:
                questions = mixed_questions(mixed, data_digest(config.data_dir))
            limits = (eval_limit, eval_every, eval_points)
            options = JobOptions(choice.preset, out, servers, *limits, questions)
        from trainer.run.resume import find_run
        from trainer.runtime.launch import run_in_several
        from trainer.runtime.precision import check_gpu

        check_gpu(options.preset, config)
        if resume_or_new:
            run, found = find_run(config, options)
        nothing_left = resume_or_new and run is not None and run.finished
        if not nothing_left:
            kept = None if run is None else int(read_json(run.config)["processes"])
            code = run_in_several(processes, config, options.preset, kept, sys.argv[1:])
            if code is not None:
                raise typer.Exit(code)
        if os.environ.get("RANK", "0") == "0":  # of several processes the first
            if resume is None:
                print_line(cli.console, str(choice))
            if found:
                print_line(cli.console, found)
        if nothing_left:
            return
        from trainer.grpo.grpo_job import GrpoJob
        from trainer.report.page import draw_report
        from trainer.run.job import run_job

        run_job(
            config,
            options,
            GrpoJob,
            resume=run,
            console=cli.console,
            finish=lambda folder: draw_report(folder, cli.console),
        )
