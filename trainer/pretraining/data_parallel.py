"""Imitation in several processes, a CPU core each, which average their gradients in every step.

At a few million parameters a second thread makes a step no faster; a second process nearly halves
its time.
"""

import os
import pickle
import random
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from trainer.pretraining.imitation import FitFigures, PretrainConfig, Row, fit, plan_passes
from trainer.pretraining.symbol_renaming import find_symbols
from trainer.runtime.cpu_budget import usable_cores
from trainer.runtime.memory import GIB, machine_memory
from trainer.runtime.precision import precision

# of a process with a model of the shipped size, which grows to 8 GB in two hours, as freed tensors
# leave gaps; a machine sold with 16 GB has a little less
PRETRAINING_MEMORY = 15 * GIB // 2


class Task(NamedTuple):
    """A model to train, in place, over `config.passes` passes of `rows`."""

    model: Qwen3ForCausalLM
    tokenizer: PreTrainedTokenizerFast
    rows: list[Row]
    config: PretrainConfig


def pretraining_processes() -> int:
    """Return the number for `imitate`: one per CPU core within the memory, or one on a GPU."""
    device, _ = precision("auto", "auto")
    if device != "cpu":
        return 1
    return max(1, min(usable_cores(), machine_memory() // PRETRAINING_MEMORY))


def imitate(task: Task, processes: int) -> FitFigures:
    """Train in `processes` processes, or in this one if 1.

    A process's error is raised here with its traceback.
    """
    if processes == 1:
        return _train(task)
    with tempfile.TemporaryDirectory(prefix="sqlenv-imitate-") as scratch:
        root = Path(scratch)
        (root / "task.pkl").write_bytes(pickle.dumps(task))
        spawn(_work, (processes, root), processes, daemon=True)  # type: ignore[no-untyped-call]
        weights, figures = torch.load(root / "trained.pt", weights_only=True)
    task.model.load_state_dict(weights)
    task.model.eval()
    return FitFigures(**figures)


def _work(rank: int, processes: int, root: Path) -> None:
    torch.set_num_threads(1)
    rendezvous = f"file://{root}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=processes)
    task = pickle.loads((root / "task.pkl").read_bytes())
    figures = _train(task)
    if rank == 0:
        torch.save((task.model.state_dict(), asdict(figures)), root / "trained.pt")
    dist.destroy_process_group()
    os._exit(0)  # for the reason given in `trainer.runtime.ranks.run_and_exit`


def _train(task: Task) -> FitFigures:
    model, tokenizer, rows, config = task
    renamer = find_symbols(rows, tokenizer)

    def change(row: Row, stream: random.Random) -> Row:
        return renamer.rename_some(row, config, stream)

    return fit(model, plan_passes(rows, config), config, tokenizer.pad_token_id, change)
