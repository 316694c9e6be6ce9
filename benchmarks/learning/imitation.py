"""More imitation for as long as the run trained: fresh demonstrations, as those of pretraining's
last stage.

They are generated and played before the clock starts. Renaming their symbols is part of training,
and counted.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.learning.bench import Bench, Result
from benchmarks.learning.supervised import Demonstrations, train
from shared.console import print_line
from trainer.pretraining.imitation import PretrainConfig
from trainer.pretraining.pretrain import LONG, generate, play_demonstrations
from trainer.pretraining.symbol_renaming import find_symbols
from trainer.run.folder import Run

SEED = 1000  # of the databases; pretraining of the shipped model takes 0 and 1
# Demonstrations per episode of GRPO. An episode takes the CPU time of learning from about 5, so 12
# are enough to use none twice.
ROWS_PER_EPISODE = 12
HELD_BACK_ROWS = 64


def control(bench: Bench, folder: Run, rates: Sequence[float]) -> Result:
    return train(bench, folder, "imitation", demonstrations(bench, folder), rates)


def demonstrations(bench: Bench, folder: Run) -> Demonstrations:
    """Generate databases in `folder` and play their demonstrations.

    An earlier call's databases are used again.
    """
    finished, tokenizer = bench.finished, bench.inputs.tokenizer
    wanted = ROWS_PER_EPISODE * finished.steps * finished.config.rollouts_per_step
    stage = replace(LONG, databases=math.ceil(wanted / LONG.questions))
    data_dir = generate(folder.path, stage, SEED, lambda line: print_line(bench.console, line))
    played = play_demonstrations(data_dir, tokenizer, folder.server_log)
    every = max(2, len(played.rows) // HELD_BACK_ROWS)
    taught = [row for index, row in enumerate(played.rows) if index % every]
    renamer = find_symbols(played.rows, tokenizer)
    settings = replace(PretrainConfig(), **LONG.renaming)
    return Demonstrations(
        taught,
        played.rows[::every],
        {"databases": stage.databases, "right": played.right, "lost": played.lost},
        lambda row, stream: renamer.rename_some(row, settings, stream),
    )
