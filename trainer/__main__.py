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
from trainer.config.presets import OFFLINE_MODEL
from trainer.improve.improve_command import improve
from trainer.play.play_command import play
from trainer.pretraining.pretrain_command import pretrain
from trainer.report.report_command import report
from trainer.run import options as cli
from trainer.run.compare_command import compare
from trainer.run.evaluate_command import evaluate
from trainer.runtime.ranks import launched, run_and_exit
from trainer.sft.sft_command import sft
from trainer.train_command import train

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


for command in (pretrain, train, sft, improve, evaluate, report, compare, play):
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
