"""The trainer's command line: `python -m trainer`, or `sqlenv` once installed.

The commands import torch and transformers themselves, so that help and `doctor` work without them.
"""

import logging
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from shared.console import print_line
from shared.seeds import MAX_SEED
from trainer.config import GRPOConfig
from trainer.config.presets import OFFLINE_MODEL
from trainer.improve.improve_command import improve
from trainer.play.command import play
from trainer.report.report_command import report
from trainer.run import options as cli
from trainer.run.compare_command import compare
from trainer.run.evaluate_command import evaluate
from trainer.runtime.ranks import check_not_launched, launched, run_and_exit
from trainer.sft.sft_command import sft

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}  # to another program
app = typer.Typer(
    help="Train small language models to explore SQL databases by reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    if launched():
        run_and_exit(app)
    app()


@app.callback()
def configure(
    verbose: Annotated[bool, Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    logging.getLogger("huggingface_hub").propagate = False  # it prints by itself
    # the server is forked, and tokenizers would warn about it
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # torch's waiting threads would spin; on cores shared with the server that costs a factor of ten
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@app.command()
def pretrain(
    out: Annotated[Path, Option(help="Folder for the model.")] = Path(OFFLINE_MODEL),
    seed: Annotated[
        int, Option(min=0, max=MAX_SEED, help="Random seed; 0 is the shipped model's.")
    ] = 0,
) -> None:
    """Train the offline base model from scratch, on demonstrations over generated databases.

    It takes about four hours on a CPU core. The same command resumes an interrupted call after its
    last whole stage.
    """
    with cli.guarded():
        from trainer.pretraining.imitation import PretrainConfig
        from trainer.pretraining.pretrain import pretrain as make
        from trainer.pretraining.pretrain import unseen_success

        check_not_launched("pretrain")
        make(
            out,
            PretrainConfig(seed=seed),
            measure=lambda model: unseen_success(
                GRPOConfig.preset("offline", model_name=str(model)), cli.console
            ),
        )


@app.command()
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
        refused=("eval_limit", "eval_every", "eval_points", "out", "preset"),
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
            choice, config = cli.configured(preset, overrides, asked)
            from trainer.run.evaluation import mixed_questions
            from trainer.run.inputs import JobOptions

            out = out or Path("runs")
            config = config.override(output_dir=out)
            questions = [] if mixed is None else mixed_questions(mixed)
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


for command in (sft, improve, evaluate, report, compare, play):
    app.command()(command)


@app.command(context_settings=PASSED_ON, add_help_option=False)
def serve(context: typer.Context) -> None:
    """Start an environment server, or check one: `python -m env_server`."""
    run_program("env_server", context.args)


@app.command("data", context_settings=PASSED_ON, add_help_option=False)
def data_command(context: typer.Context) -> None:
    """Build, audit, generate, import and fetch data sets: `python -m data`."""
    run_program("data", context.args)


def run_program(module: str, arguments: Sequence[str]) -> None:
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


@app.command()
def doctor(
    data: cli.DataOption = Path("data"),
    model: Annotated[str, Option(help="Base model.")] = OFFLINE_MODEL,
) -> None:
    """Check this machine: print what a run has, what is missing and how to get it.

    Exit code: 0 if the offline job can run, else 1.
    """
    from trainer.runtime.doctor import Status, examine

    diagnoses = examine(data, model)
    styles = {Status.OK: "green", Status.NOTE: "yellow", Status.FAIL: "red"}
    for diagnosis in diagnoses:
        line = f"{diagnosis.status.upper():5} {diagnosis.name:18} {diagnosis.detail}"
        print_line(cli.console, line, styles[diagnosis.status])
        if diagnosis.remedy:
            print_line(cli.console, f"{'':24} -> {diagnosis.remedy}")
    runs = all(diagnosis.status is not Status.FAIL for diagnosis in diagnoses)
    verdict = "can run: python -m trainer train" if runs else "can't run yet"
    print_line(cli.console, f"the offline job {verdict}")
    raise typer.Exit(0 if runs else 1)


if __name__ == "__main__":
    main()
