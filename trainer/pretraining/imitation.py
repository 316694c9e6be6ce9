"""Imitation of demonstrations by a small Qwen3, from scratch. Muon trains the matrices, AdamW the
embeddings and norms."""

import math
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import _muon
from torch.optim.lr_scheduler import LambdaLR
from transformers import Qwen3ForCausalLM

from trainer.runtime.precision import precision

# Compiling takes half a minute; a CPU core then trains on 1.4 x the tokens per second.
MIN_BATCHES_TO_COMPILE = 300
REPORT_EVERY = 50  # batches


@dataclass(frozen=True)
class PretrainConfig:
    """Size and schedule of the base model. Learning rates rise to these and decay, linearly."""

    hidden_size: int = 192  # a multiple of head_dim
    layers: int = 4
    head_dim: int = 32
    vocab_size: int = 2048
    window_tokens: int = 2048
    batch_tokens: int = 6144  # padded tokens per step
    passes: float = 1.0  # over the rows of a stage
    renamed_share: float = 0.6  # of the rows of each pass; see symbol_renaming.py
    name_lengths: tuple[float, ...] = (75, 20, 5)  # weights of new names of 1, 2, 3... tokens
    any_letters: bool = False  # longer names have any letters, not only those of other symbols
    alike_share: float = 0.0  # of the longer names: begin with the same tokens as another one
    muon_lr: float = 0.01
    adamw_lr: float = 3e-3
    warmup_share: float = 0.02  # of the batches
    decay_share: float = 0.3
    easy_share: float = 0.3  # of the batches, at the start, with easy questions only
    seed: int = 0

    @property
    def heads(self) -> int:
        return self.hidden_size // self.head_dim

    @property
    def intermediate_size(self) -> int:
        """Width of a feed-forward layer: 8/3 of `hidden_size`, rounded up to a multiple of 16."""
        return 16 * math.ceil(self.hidden_size / 6)


@dataclass(frozen=True)
class Row:
    """One demonstration as tokens; `learn` is 1 at the demonstrator's tokens, else 0."""

    ids: list[int]
    learn: list[int]
    easy: bool


def batches(rows: Sequence[Row], batch_tokens: int, stream: random.Random) -> list[list[Row]]:
    """Group rows by length into batches of at most `batch_tokens` padded tokens; shuffle them."""
    ordered = sorted(rows, key=lambda row: (len(row.ids), stream.random()))
    grouped: list[list[Row]] = []
    current: list[Row] = []
    for row in ordered:
        if current and (len(current) + 1) * len(row.ids) > batch_tokens:
            grouped.append(current)
            current = []
        current.append(row)
    if current:
        grouped.append(current)
    stream.shuffle(grouped)
    return grouped


def plan_passes(rows: Sequence[Row], config: PretrainConfig) -> list[list[Row]]:
    stream = random.Random(config.seed)
    plan = curriculum(rows, config.easy_share, config.batch_tokens, stream)
    length = round(config.passes * len(plan))
    while len(plan) < length:
        plan += batches(rows, config.batch_tokens, stream)
    return plan[:length]


def curriculum(
    rows: Sequence[Row], easy_share: float, batch_tokens: int, stream: random.Random
) -> list[list[Row]]:
    easy = [row for row in rows if row.easy]
    stream.shuffle(easy)
    total = sum(len(row.ids) for row in rows)
    first: list[Row] = []
    taken = 0
    while easy and taken < easy_share * total:
        first.append(easy.pop())
        taken += len(first[-1].ids)
    chosen = {id(row) for row in first}
    rest = [row for row in rows if id(row) not in chosen]
    return batches(first, batch_tokens, stream) + batches(rest, batch_tokens, stream)


def collate(rows: Sequence[Row], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    ids = pad_sequence([torch.tensor(row.ids) for row in rows], True, pad_id)
    learn = pad_sequence([torch.tensor(row.learn) for row in rows], True).bool()
    return ids.to(device), learn.to(device)


def imitation_loss(model: Qwen3ForCausalLM, ids: Tensor, learn: Tensor) -> Tensor:
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    marked = learn[:, 1:]
    logits = model.lm_head(hidden[marked])
    return nn.functional.cross_entropy(logits.float(), ids[:, 1:][marked])


def make_optimizers(model: nn.Module, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(
            matrices, lr=config.muon_lr, weight_decay=0.0, momentum=0.95, nesterov=True
        ),
        torch.optim.AdamW(others, lr=config.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def orthogonalize(
    grad: Tensor, ns_coefficients: tuple[float, float, float], ns_steps: int, eps: float
) -> Tensor:
    """Return nearly U V^T of `grad` = U S V^T, a matrix, in float32.

    `torch.optim.Muon` computes it in bfloat16 on every device. On a CPU without native bfloat16,
    that was 60 % of the time of pretraining: 180 ms for a matrix of 512 x 192, in float32 8 ms.
    Source: K. Jordan and others, "Muon: an optimizer for hidden layers in neural networks" (2024).
    """
    a, b, c = ns_coefficients
    wide = grad.float() if grad.size(0) <= grad.size(1) else grad.float().T
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if grad.size(0) <= grad.size(1) else wide.T


def use_float32() -> None:
    _muon._zeropower_via_newtonschulz = orthogonalize


def lr_factor(step: int, steps: int, config: PretrainConfig) -> float:
    warmup = max(1, int(config.warmup_share * steps))
    decay = max(1, int(config.decay_share * steps))
    return min(1.0, (step + 1) / warmup, (steps - step) / decay)


def fit(
    model: Qwen3ForCausalLM,
    plan: Sequence[Sequence[Row]],
    config: PretrainConfig,
    pad_id: int,
    change: Callable[[Row, random.Random], Row] = lambda row, stream: row,
) -> dict[str, float]:
    """Train `model`, in place, on each batch of `plan` once, in bfloat16 where the device computes
    so natively. `change` returns the row to train on in place of each row."""
    name, number_format = precision("auto", "auto")
    device, native = torch.device(name), number_format is torch.bfloat16
    model.to(device).train()
    if device.type == "cpu":  # 1.25 x the tokens per second of sdpa, at these sizes
        model.set_attn_implementation("eager")
    if len(plan) >= MIN_BATCHES_TO_COMPILE and shutil.which("c++"):
        model.model.compile(dynamic=True)
    if not native:
        use_float32()
    steps, start, tokens = len(plan), time.perf_counter(), 0
    optimizers = make_optimizers(model, config)
    schedulers = [
        LambdaLR(optimizer, lambda step: lr_factor(step, steps, config)) for optimizer in optimizers
    ]
    mean_loss = torch.zeros((), device=device)
    for step, batch in enumerate(plan):
        stream = random.Random(f"change:{config.seed}:{step}")
        rows = [change(row, stream) for row in batch]
        ids, learn = collate(rows, pad_id, device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=native):
            loss = imitation_loss(model, ids, learn)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += sum(len(row.ids) for row in rows)
        mean_loss = loss.detach() if step == 0 else 0.98 * mean_loss + 0.02 * loss.detach()
        if step % REPORT_EVERY == 0 or step == steps - 1:
            rate = tokens / (time.perf_counter() - start)
            print(
                f"batch {step} of {steps}, {tokens / 1e6:.2f} M tokens, "
                f"loss {mean_loss.item():.3f}, {rate / 1e3:.1f} k tokens/s",
                flush=True,
            )
    model.eval()
    parameters = sum(p.numel() for p in model.parameters())
    seconds, flops = time.perf_counter() - start, 6.0 * parameters * tokens
    return {
        "tokens": tokens,
        "parameters": parameters,
        "seconds": seconds,
        "flops": flops,
        "loss": mean_loss.item(),
    }
