"""The trainer's command line: `python -m trainer pretrain | train | evaluate | report | play |
doctor`.

torch and transformers are imported inside the commands, so that help and `doctor` also work without
them.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainer.cli import DataOption, ServerOption, SetOption, console, errors, guarded, settings_of
from trainer.evaluation.command import evaluate
from trainer.play.command import play
from trainer.report.command import report

app = typer.Typer(
    name="python -m trainer",
    help="Train small language models to explore SQL databases by reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _given(context: typer.Context, name: str) -> bool:
    """Whether a parameter was typed, also where its value is the default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.callback()
def main(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line a request
    # it prints by itself, and said everything twice
    logging.getLogger("huggingface_hub").propagate = False
    # the server is forked; its warning says nothing here
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # torch's threads would spin while they wait; on cores that the server shares that cost a factor
    # of ten
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="Where the model is saved.")] = Path(
        "data/models/sqlenv-tiny"
    ),
    seed: Annotated[int, typer.Option(help="Of the generated databases and of the weights.")] = 0,
    workspace: Annotated[
        Path | None,
        typer.Option(
            help="Keep the generated databases there, for another call with the same seed."
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="That share the training.", show_default="one a CPU core"),
    ] = None,
) -> None:
    """Make the offline base model from scratch: demonstrations over generated databases, imitated.

    Takes about an hour on 2 CPU cores. OUT-expert keeps the model before its last, untidy
    demonstrations.
    """

    def job() -> None:
        from trainer.config import GRPOConfig
        from trainer.errors import ConfigError
        from trainer.pretraining.base_success import base_success
        from trainer.pretraining.imitation import PretrainConfig
        from trainer.pretraining.pretrain import pretrain as make
        from trainer.runtime.cpu_budget import usable_cores
        from trainer.runtime.ranks import launched

        if launched():
            raise ConfigError(
                "pretrain starts its own processes: start it without a launcher, with --processes N"
            )
        make(
            out,
            PretrainConfig(seed=seed),
            workspace=workspace,
            report=lambda line: console.print(line, markup=False),
            processes=processes or usable_cores(),
            measure=lambda model: base_success(
                GRPOConfig.preset("offline", model_name=str(model)), console
            ),
        )

    guarded(job)


@app.command()
def train(
    context: typer.Context,
    preset: Annotated[
        str,
        typer.Option(
            help="offline: the shipped tiny model on a CPU. colab: Qwen3-0.6B on one 16 GB GPU."
        ),
    ] = "offline",
    seed: Annotated[
        int | None, typer.Option(help="Of every random choice.", show_default="42")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="GRPO steps.", show_default="the preset's")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Data directory: databases/ and questions/ (see 'python -m data').",
            show_default="data",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model directory or Hugging Face name.", show_default="the preset's"),
    ] = None,
    server: ServerOption = None,
    out: Annotated[
        Path, typer.Option(help="Where the run's folder is made; OUT/latest points to it.")
    ] = Path("runs"),
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with an interrupted run's folder, for example runs/latest. Keeps its settings."
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            help="That share the training on this machine, one a GPU or CPU core; accelerate starts them.",
        ),
    ] = 1,
    set_: SetOption = None,
    eval_limit: Annotated[
        int, typer.Option(min=0, help="Measure on this many eval questions; 0: on all.")
    ] = 0,
    eval_every: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Steps between points of the eval curve; 0: none.",
            show_default="about 8 points, 5 or more apart",
        ),
    ] = None,
    eval_points: Annotated[int, typer.Option(min=1, help="Questions of one such point.")] = 32,
    allow_dev_questions: Annotated[
        bool,
        typer.Option(
            "--allow-dev-questions",
            help="Train on questions of a published development split, if given any.",
        ),
    ] = False,
) -> None:
    """The main job: measure random actions and the untrained model, train with GRPO over HTTP,
    measure again.

    Leaves runs/<id>/ with summary.json, learning_curve.png, transcripts.md, episodes.jsonl,
    metrics.jsonl, model/. Ctrl-C stops it with a checkpoint; --resume goes on from there.
    """
    overrides = settings_of(set_)
    named = {"seed": seed, "max_steps": steps, "model_name": model, "data_dir": data}
    named["allow_dev_questions"] = allow_dev_questions or None
    overrides |= {key: value for key, value in named.items() if value is not None}
    if resume is not None:  # refused by name, as those above are
        fixed = {
            "eval_limit": eval_limit,
            "eval_every": eval_every,
            "eval_points": eval_points,
            "out": out,
        }
        overrides |= {key: value for key, value in fixed.items() if _given(context, key)}
    servers = tuple(server or ())

    def job() -> None:
        from trainer.config import GRPOConfig
        from trainer.errors import ConfigError
        from trainer.evaluation.inputs import JobOptions, resumed_settings
        from trainer.run.folder import open_run
        from trainer.runtime.ranks import launched

        if launched() and processes not in (1, int(os.environ["WORLD_SIZE"])):
            raise ConfigError(
                f"--processes is {processes}, but a launcher started {os.environ['WORLD_SIZE']}: leave it out"
            )
        if resume is not None:
            run = open_run(resume)
            config, options = resumed_settings(run, servers, overrides)
        else:
            run = None
            config = GRPOConfig.preset(preset, **overrides)
            options = JobOptions(preset, out, servers, eval_limit, eval_every, eval_points)
        if processes > 1 and not launched():
            from trainer.runtime.launch import launch

            config.accumulation_steps(processes)  # refused once, before any of them begins
            raise typer.Exit(
                launch(processes, sys.argv[1:], lambda line: errors.print(line, style="red"))
            )
        from trainer.grpo.job import run_job

        run_job(config, options, resume=run, console=console)

    guarded(job)


for command in (evaluate, report, play):
    app.command()(command)


@app.command()
def doctor(
    data: DataOption = Path("data"),
    model: Annotated[str, typer.Option(help="The base model.")] = "data/models/sqlenv-tiny",
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="URL of an environment server to look at; may be repeated."),
    ] = None,
) -> None:
    """What this machine has for a run, what is missing and how to get it. Exits 0 where the offline
    job can run."""
    from trainer.doctor import Status, can_run, examine

    diagnoses = examine(data, model, server or [])
    styles = {Status.OK: "green", Status.NOTE: "yellow", Status.FAIL: "red"}
    for diagnosis in diagnoses:
        line = f"{diagnosis.status.upper():5} {diagnosis.name:18} {diagnosis.detail}"
        console.print(
            line, style=styles[diagnosis.status], markup=False, highlight=False, soft_wrap=True
        )
        if diagnosis.remedy:
            console.print(
                f"{'':24} -> {diagnosis.remedy}", markup=False, highlight=False, soft_wrap=True
            )
    runs = can_run(diagnoses)
    console.print(
        "the offline job can run: make train" if runs else "the offline job can't run yet",
        highlight=False,
    )
    raise typer.Exit(0 if runs else 1)


if __name__ == "__main__":
    sys.exit(app())
