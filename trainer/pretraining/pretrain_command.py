"""`python -m trainer pretrain`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated

from typer import Option

from shared.seeds import MAX_SEED
from trainer.config.presets import OFFLINE_MODEL
from trainer.config.settings import GRPOConfig
from trainer.run import options as cli
from trainer.runtime.ranks import check_not_launched


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
