"""`python -m trainer improve`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from shared.console import print_line
from trainer.cli import (
    DATA,
    AdapterOption,
    ModelOption,
    PresetOption,
    SeedOption,
    ServerOption,
    SetOption,
    StandardOption,
    configured,
    console,
    guarded,
    model_settings,
    settings_of,
)

AS_GIVEN = ("gold", "rounds", "questions", "samples", "eval_limit")


def improve(
    context: typer.Context,
    model: ModelOption = None,
    adapter: AdapterOption = None,
    data: Annotated[Path | None, DATA] = None,
    gold: Annotated[
        bool,
        Option(
            "--gold/--no-gold",
            help="Mend failures with the gold query, or learn from rewards alone: from successes, "
            "right rows that were not answered, and other attempts at the same question.",
        ),
    ] = True,
    rounds: Annotated[
        int, Option(min=1, help="Most rounds; it stops after two without a gain.")
    ] = 5,
    questions: Annotated[int, Option(min=1, help="Training questions played in a round.")] = 400,
    samples: Annotated[int, Option(min=1, help="Episodes of each.")] = 2,
    eval_limit: Annotated[
        int, Option(min=0, help="Eval questions to measure before and after on; 0: all.")
    ] = 0,
    seed: SeedOption = None,
    preset: PresetOption = None,
    standard: StandardOption = None,
    server: ServerOption = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None,
        Option(
            help="Folder of the improvement. The same command resumes an interrupted one.",
            show_default="runs/improve",
        ),
    ] = None,
) -> None:
    """Improve a model by expert iteration: play, learn from what was right, and play again.

    Each round plays training questions, keeps the right episodes, mends failures, and fine-tunes
    the start model on all kept so far. Writes improvement.md, improvement.png, improvement.json
    and model, a link to the best model, which play, evaluate and train take as --model.
    """
    named = model_settings(model, adapter)
    overrides = settings_of(context, set_, data_dir=data, standard=standard, seed=seed, **named)

    with guarded():
        from trainer.runtime.ranks import check_not_launched

        check_not_launched("improve")
        choice, config = configured(preset, overrides, server)
        print_line(console, str(choice))

        from trainer.improve.rounds import Improver, ImproveSettings
        from trainer.runtime.precision import check_gpu

        check_gpu(choice.preset, config)
        out = out or Path("runs/improve")
        settings = ImproveSettings(
            preset=preset,
            overrides={**overrides, "model_name": config.model_name, "seed": config.seed},
            out=out,
            servers=tuple(server or ()),
            **{name: context.params[name] for name in AS_GIVEN},
        )
        Improver(settings, console).run()
        print_line(console, f"wrote {out / 'improvement.md'}")
