"""Imitation in several processes, one CPU core each: the gradients of each step are averaged over
them.

At a few million parameters a second thread makes a step no faster, a second process nearly halves
it.
"""

import pickle
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import spawn
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from trainer.pretraining.imitation import PretrainConfig, Report, Row, fit, plan_passes
from trainer.pretraining.symbol_renaming import find_symbols

POLL_S = 0.2


def imitate(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Row],
    config: PretrainConfig,
    processes: int,
    report: Report = lambda line: None,
) -> dict[str, float]:
    """Train `model`, in place, over `config.passes` passes of `rows`; the figures of `fit`.

    `processes` share each batch; with 1 all happens here. An error of a process is raised with its
    traceback.
    """
    if processes == 1:
        return _learn(model, tokenizer, rows, config, report)
    context = mp.get_context("spawn")
    lines, figures = context.SimpleQueue(), {}
    with tempfile.TemporaryDirectory(prefix="sqlenv-imitate-") as scratch:
        root = Path(scratch)
        (root / "task.pkl").write_bytes(pickle.dumps((model, tokenizer, list(rows), config)))
        workers = spawn(_work, (processes, root, lines), processes, join=False)  # type: ignore[no-untyped-call]
        while not workers.join(timeout=POLL_S):
            _pass_on(lines, report)
        _pass_on(lines, report)
        weights, figures = torch.load(root / "learnt.pt", weights_only=True)
    model.load_state_dict(weights)
    model.eval()
    return dict(figures)


def _pass_on(lines: "mp.SimpleQueue[dict[str, float]]", report: Report) -> None:
    while not lines.empty():
        report(lines.get())


def _work(rank: int, processes: int, root: Path, lines: "mp.SimpleQueue[dict[str, float]]") -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=processes
    )
    model, tokenizer, rows, config = pickle.loads((root / "task.pkl").read_bytes())
    figures = _learn(model, tokenizer, rows, config, lines.put)
    if rank == 0:
        torch.save((model.state_dict(), figures), root / "learnt.pt")
    dist.destroy_process_group()


def _learn(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Row],
    config: PretrainConfig,
    report: Report,
) -> dict[str, float]:
    plan = plan_passes(rows, config)
    return fit(
        model, plan, config, tokenizer.pad_token_id, report, change=_change(rows, tokenizer, config)
    )


def _change(
    rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast, config: PretrainConfig
) -> Callable[[Row, random.Random], Row]:
    """Rename the symbols of a share of the rows, anew each time that a row comes."""
    renamer = find_symbols(rows, tokenizer)

    def change(row: Row, stream: random.Random) -> Row:
        return renamer.rename(row, stream) if stream.random() < config.renamed_share else row

    return change
