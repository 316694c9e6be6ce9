"""Imitation learning of a small Qwen3 from scratch, on demonstrations as token rows.

The loss is taken on the demonstrator's tokens alone. Matrices are trained by Muon, embeddings and
norms by AdamW.
"""

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

# batches: compiling takes half a minute, and then a CPU core learns 1.4 x the tokens a second
WORTH_COMPILING = 300
Report = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class PretrainConfig:
    """Sizes and schedule of the base model. Learning rates are peaks; both warm up and then decay
    to zero linearly."""

    hidden_size: int = 192
    layers: int = 4
    heads: int = 6
    head_dim: int = 32
    intermediate_size: int = 512
    vocab_size: int = 2048
    window_tokens: int = 2048
    batch_tokens: int = 6144  # padded tokens a step, all processes together
    passes: float = 1.0  # over the rows of a stage
    # of the rows, each time that they come: see trainer/pretraining/symbol_renaming.py
    renamed_share: float = 0.6
    muon_lr: float = 0.01
    adamw_lr: float = 3e-3
    warmup_share: float = 0.02  # of the batches
    decay_share: float = 0.3
    easy_share: float = 0.3  # of the batches, at the start: easy questions alone
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """One demonstration as tokens. `ids` and `learn` have the same length; `learn` marks the
    demonstrator's tokens."""

    ids: list[int]
    learn: list[int]
    easy: bool


def build_model(config: PretrainConfig, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 of `config`'s size with random weights, drawn from `config.seed`."""
    torch.manual_seed(config.seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.window_tokens,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def batches(rows: Sequence[Row], batch_tokens: int, stream: random.Random) -> list[list[Row]]:
    """Rows grouped by length into batches of at most `batch_tokens` padded tokens, in random order."""
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
    """The batches of `config.passes` passes over the rows.

    In the first pass `easy_share` of the batches hold easy questions alone and come first.
    """
    stream = random.Random(config.seed)
    plan = curriculum(rows, config.easy_share, config.batch_tokens, stream)
    length = round(config.passes * len(plan))
    while len(plan) < length:
        plan += batches(rows, config.batch_tokens, stream)
    return plan[:length]


def curriculum(
    rows: Sequence[Row], easy_share: float, batch_tokens: int, stream: random.Random
) -> list[list[Row]]:
    """One pass over the rows, easy questions first."""
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
    """`(ids, learn)`, both `[rows, longest]`: padded on the right, where causal attention never
    looks back from."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), pad_id, dtype=torch.long)
    learn = torch.zeros((len(rows), longest), dtype=torch.bool)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = torch.tensor(row.ids)
        learn[index, : len(row.learn)] = torch.tensor(row.learn, dtype=torch.bool)
    return ids.to(device), learn.to(device)


def imitation_loss(model: Qwen3ForCausalLM, ids: Tensor, learn: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of the tokens that `learn` marks, each given all before it."""
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    wanted = learn[:, 1:]
    logits = model.lm_head(hidden[wanted])
    return nn.functional.cross_entropy(logits.float(), ids[:, 1:][wanted])


def make_optimizers(model: nn.Module, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices; AdamW for embeddings (tied with the head) and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(
            matrices, lr=config.muon_lr, weight_decay=0.0, momentum=0.95, nesterov=True
        ),
        torch.optim.AdamW(others, lr=config.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def lr_factor(step: int, steps: int, config: PretrainConfig) -> float:
    """Warm-up, plateau, linear decay to zero: the share of the peak rate at `step` of `steps`."""
    warmup, decay = (
        max(1, int(config.warmup_share * steps)),
        max(1, int(config.decay_share * steps)),
    )
    return min(1.0, (step + 1) / warmup, (steps - step) / decay)


def average_gradients(model: nn.Module, processes: int) -> None:
    """Make every process's gradients the group's mean, in one message."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= processes
    for gradient, part in zip(
        gradients, torch.split(flat, [one.numel() for one in gradients]), strict=True
    ):
        gradient.copy_(part.view_as(gradient))


def fit(
    model: Qwen3ForCausalLM,
    plan: Sequence[Sequence[Row]],
    config: PretrainConfig,
    pad_id: int,
    report: Report = lambda line: None,
    device: torch.device | None = None,
    change: Callable[[Row, random.Random], Row] = lambda row, stream: row,
) -> dict[str, float]:
    """Train over `plan`'s batches once. Returns tokens, seconds and an estimate of FLOPs (6 x
    parameters x tokens).

    `change` makes of each row the one that is learnt, when its turn comes. In a process group each
    process takes its share of each batch, and gradients are averaged; batches of fewer rows than
    processes are left out.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()
    if device.type == "cpu":  # 1.25 x the tokens a second of sdpa, at these sizes
        model.set_attn_implementation("eager")
    if len(plan) >= WORTH_COMPILING and shutil.which("c++"):
        model.model.compile(dynamic=True)
    rank, processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    plan = [rows for rows in plan if len(rows) >= processes]
    if not plan:
        raise ValueError(f"no batch has a row for each of {processes} processes: give more rows")
    steps = len(plan)
    optimizers = make_optimizers(model, config)
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    began, tokens, recent = time.perf_counter(), 0, 0.0
    for step, batch in enumerate(plan):
        factor = lr_factor(step, steps, config)
        for group, peak in zip((g for o in optimizers for g in o.param_groups), peaks, strict=True):
            group["lr"] = peak * factor
        stream = random.Random(f"change:{config.seed}:{rank}:{step}")
        rows = [change(row, stream) for row in batch[rank::processes]]
        ids, learn = collate(rows, pad_id, device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = imitation_loss(model, ids, learn)
        loss.backward()  # type: ignore[no-untyped-call]
        if processes > 1:
            average_gradients(model, processes)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += sum(len(row.ids) for row in rows)
        recent = loss.item() if step == 0 else 0.98 * recent + 0.02 * loss.item()
        if rank == 0 and (step % 50 == 0 or step == steps - 1):
            # the other processes' shares are about as long
            report(
                {
                    "step": step,
                    "steps": steps,
                    "tokens": tokens * processes,
                    "loss": recent,
                    "s": time.perf_counter() - began,
                }
            )
    if processes > 1:
        total = torch.tensor(tokens)
        dist.all_reduce(total)
        tokens = int(total)
    model.eval()
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "tokens": tokens,
        "parameters": parameters,
        "seconds": time.perf_counter() - began,
        "flops": 6.0 * parameters * tokens,
        "loss": recent,
    }
