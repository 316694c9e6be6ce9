"""`python -m trainer improve`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from shared.console import print_line
from shared.seeds import DEFAULT_SEED, MAX_SEED
from trainer.cli import (
    DATA,
    AdapterOption,
    ModelOption,
    PresetOption,
    ServerOption,
    SetOption,
    StandardOption,
    configured,
    console,
    given_options,
    guarded,
    model_settings,
    settings_of,
)

ELSEWHERE = ("model_name", "seed")  # fields of ImproveSettings
AS_GIVEN = ("gold", "rounds", "questions", "samples", "development", "eval_limit")


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
    development: Annotated[
        int,
        Option(min=1, help="Training questions kept to measure the rounds on, at most a fifth."),
    ] = 200,
    eval_limit: Annotated[
        int, Option(min=0, help="Eval questions to measure before and after on; 0: all.")
    ] = 0,
    seed: Annotated[int, Option(min=0, max=MAX_SEED, help="Random seed.")] = DEFAULT_SEED,
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
    overrides, given = settings_of(context, set_), given_options(context)
    named: dict[str, Any] = {"data_dir": data, "standard": standard}
    named |= model_settings(model, adapter)
    named["seed"] = seed if "seed" in given else None
    overrides |= {name: value for name, value in named.items() if value is not None}

    with guarded():
        from trainer.runtime.ranks import check_not_launched

        check_not_launched("improve")
        choice, config = configured(preset, overrides)
        print_line(console, str(choice))

        from trainer.improve.rounds import Improver, ImproveSettings
        from trainer.runtime.precision import check_gpu

        check_gpu(choice.preset, config)
        out = out or Path("runs/improve")
        overrides = {name: one for name, one in overrides.items() if name not in ELSEWHERE}
        settings = ImproveSettings(
            model=config.model_name,
            preset=preset,
            overrides=overrides,
            out=out,
            servers=tuple(server or ()),
            seed=config.seed,
            **{name: context.params[name] for name in AS_GIVEN},
        )
        Improver(settings, console).run()
        print_line(console, f"wrote {out / 'improvement.md'}")
