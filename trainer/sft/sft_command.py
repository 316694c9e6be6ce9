"""`python -m trainer sft`. Imports torch late, so that help works without it."""

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
from trainer.runtime.ranks import check_not_launched

# settings that differ from those of reinforcement learning
LEARNING_RATE = 5e-4  # measured: adapters of Qwen2.5-Coder-0.5B, all weights of SmolLM2-135M
LARGE_LEARNING_RATE = 1e-4  # all weights of a larger model
# an adapter that learns further: the loss on its own episodes fell from 0.08 to 0.04 in two epochs;
# at 5e-5 it rose to 0.32 in 13 steps, at 2e-4 to 3.2 in six; that of a new adapter of the merged
# model, at 2e-4, rose from 0.23 to 1.25 in ten
FURTHER_LEARNING_RATE = 2e-5
SMALL = ("offline", "smollm2-135m")  # presets
DEFAULTS: dict[str, Any] = {
    "num_train_epochs": 2,
    "max_steps": -1,
    "lr_scheduler": "linear",
    "warmup_steps": 5,
    "logging_steps": 1,
}


def warm_start_config(
    preset: str | None, overrides: Mapping[str, Any], servers: Sequence[str] | None = None
) -> tuple[Choice, GRPOConfig]:
    choice, config = cli.configured(preset, {**DEFAULTS, **overrides}, servers)
    if "learning_rate" in overrides:
        return choice, config
    if continues(config):
        rate = FURTHER_LEARNING_RATE
    elif config.lora_rank or choice.preset in SMALL:
        rate = LEARNING_RATE
    else:
        rate = LARGE_LEARNING_RATE
    return choice, config.override(learning_rate=rate)


def sft(
    context: typer.Context,
    model: cli.ModelOption = None,
    adapter: cli.AdapterOption = None,
    source: Annotated[
        list[str] | None,
        Option(
            help="Demonstrations: oracle (the gold queries of the training questions), run:DIR "
            "(correct episodes of a run or an evaluation), corrected:DIR (an incorrect episode "
            "of each question, mended by the gold query), or agreed:DIR (episodes that gave the "
            "answer of most attempts, without golds); repeatable. Others: docs/real-models.md.",
            show_default="oracle",
        ),
    ] = None,
    rows: Annotated[
        int,
        Option(min=0, help="Demonstrations, in equal shares of the sources and databases; 0: all."),
    ] = 0,
    epochs: Annotated[
        int | None, Option(min=1, help="Passes over the demonstrations.", show_default="2")
    ] = None,
    preset: cli.PresetOption = None,
    seed: cli.SeedOption = None,
    data: Annotated[Path | None, cli.DATA] = None,
    standard: cli.StandardOption = None,
    server: cli.ServerOption = None,
    out: cli.OutOption = None,
    resume: Annotated[
        Path | None, Option(help="Resume an interrupted warm start, with its settings.")
    ] = None,
    set_: cli.SetOption = None,
) -> None:
    """Fine-tune a model on demonstrations (SFT), the warm start of reinforcement learning.

    The settings are those of train, except the learning rate and its linear decay
    (docs/real-models.md). Writes summary.json, metrics.jsonl, demonstrations.jsonl and model/,
    which train, evaluate and play take as --model. Ctrl-C stops with a checkpoint; --resume
    continues from it.
    """
    overrides = cli.settings_of(
        context,
        set_,
        refused=("source", "rows", "out", "preset"),
        **cli.model_settings(model, adapter),
        num_train_epochs=epochs,
        data_dir=data,
        standard=standard,
        seed=seed,
    )

    with cli.guarded():
        check_not_launched("sft")
        servers, run = tuple(server or ()), None
        if resume is not None:
            from trainer.run.folder import open_run
            from trainer.run.resume import resumed_settings
            from trainer.sft.sft_job import SftOptions

            run = open_run(resume)
            config, options = resumed_settings(run, servers, overrides, SftOptions)
        else:
            choice, config = warm_start_config(preset, overrides, server)
            print_line(cli.console, str(choice))
            from trainer.sft.sft_job import SftOptions
            from trainer.sft.sources import check_source

            out, sources = out or Path("runs"), tuple(source or ["oracle"])
            for text in sources:
                check_source(text)
            config = config.override(output_dir=out)
            options = SftOptions(choice.preset, out, servers, sources=sources, rows=rows)
        from trainer.run.job import run_job
        from trainer.runtime.precision import check_gpu
        from trainer.sft.sft_job import SftJob

        check_gpu(options.preset, config)
        run_job(config, options, SftJob, resume=run, console=cli.console)
