"""`python -m trainer improve`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from shared.console import print_line
from shared.dataset import has_split
from trainer.config.settings import LabelsName
from trainer.run import options as cli

AS_GIVEN = ("rounds", "questions", "eval_limit")
SAMPLES: dict[LabelsName, int] = {"gold": 2, "rewards": 2, "agreement": 5}


def improve(
    context: typer.Context,
    model: cli.ModelOption = None,
    adapter: cli.AdapterOption = None,
    data: Annotated[Path | None, cli.DATA] = None,
    labels: Annotated[
        LabelsName | None,
        Option(
            help="What is right. gold: the rewards, and failures are mended with the gold query. "
            "rewards: failures are mended with other attempts at the same question. agreement: no "
            "gold is read, the answer of most attempts counts as right; open questions, if the "
            "data has some.",
            show_default="gold; agreement without training questions",
        ),
    ] = None,
    rounds: Annotated[
        int, Option(min=1, help="Most rounds; it stops after two without a gain.")
    ] = 5,
    questions: Annotated[int, Option(min=1, help="Training questions played in a round.")] = 400,
    samples: Annotated[
        int | None, Option(min=1, help="Episodes of each.", show_default="2; 5 for agreement")
    ] = None,
    eval_limit: Annotated[
        int, Option(min=0, help="Eval questions to measure before and after on; 0: all.")
    ] = 0,
    seed: cli.SeedOption = None,
    preset: cli.PresetOption = None,
    standard: cli.StandardOption = None,
    server: cli.ServerOption = None,
    set_: cli.SetOption = None,
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
    named = cli.model_settings(model, adapter)
    overrides = cli.settings_of(context, set_, data_dir=data, standard=standard, seed=seed, **named)

    with cli.guarded():
        from trainer.runtime.ranks import check_not_launched

        check_not_launched("improve")
        choice, config = cli.configured(preset, overrides, server)
        print_line(cli.console, str(choice))

        from trainer.improve.rounds import Improver, ImproveSettings
        from trainer.runtime.precision import check_gpu

        check_gpu(choice.preset, config)
        out = out or Path("runs/improve")
        if labels is None:
            labels = "gold" if has_split(config.questions_path, "train") else "agreement"
        settings = ImproveSettings(
            preset=preset,
            overrides={**overrides, "model_name": config.model_name, "seed": config.seed},
            out=out,
            servers=tuple(server or ()),
            labels=labels,
            samples=samples or SAMPLES[labels],
            **{name: context.params[name] for name in AS_GIVEN},
        )
        Improver(settings, cli.console).run()
        print_line(cli.console, f"wrote {out / 'improvement.md'}")
