"""Imitation in several processes, one CPU core each, which average their gradients in every step.

At a few million parameters a second thread makes a step no faster; a second process nearly halves
its time.
"""

import pickle
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import spawn
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from trainer.pretraining.imitation import (
    FitFigures,
    PretrainConfig,
    Progress,
    Report,
    Row,
    fit,
    plan_passes,
)
from trainer.pretraining.symbol_renaming import find_symbols

POLL_S = 0.2


def imitate(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Row],
    config: PretrainConfig,
    processes: int,
    report: Report = lambda progress: None,
) -> FitFigures:
    """Train `model`, in place, over `config.passes` passes of `rows`, in `processes` processes.

    With 1, it trains in this process. A process's error is raised here with its traceback.
    """
    if processes == 1:
        return _train(model, tokenizer, rows, config, report)
    queue: mp.SimpleQueue[Progress] = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="sqlenv-imitate-") as scratch:
        root = Path(scratch)
        (root / "task.pkl").write_bytes(pickle.dumps((model, tokenizer, list(rows), config)))
        workers = spawn(_work, (processes, root, queue), processes, join=False)  # type: ignore[no-untyped-call]
        running = True
        while running:
            running = not workers.join(timeout=POLL_S)
            while not queue.empty():
                report(queue.get())
        weights, figures = torch.load(root / "trained.pt", weights_only=True)
    model.load_state_dict(weights)
    model.eval()
    return FitFigures(**figures)


def _work(rank: int, processes: int, root: Path, queue: "mp.SimpleQueue[Progress]") -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=processes
    )
    model, tokenizer, rows, config = pickle.loads((root / "task.pkl").read_bytes())
    figures = _train(model, tokenizer, rows, config, queue.put)
    if rank == 0:
        torch.save((model.state_dict(), asdict(figures)), root / "trained.pt")
    dist.destroy_process_group()


def _train(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Row],
    config: PretrainConfig,
    report: Report,
) -> FitFigures:
    renamer = find_symbols(rows, tokenizer)

    def rename_some(row: Row, stream: random.Random) -> Row:
        return renamer.rename(row, stream) if stream.random() < config.renamed_share else row

    plan = plan_passes(rows, config)
    return fit(model, plan, config, tokenizer.pad_token_id, report, change=rename_some)
