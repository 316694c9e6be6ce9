"""Measure what an update of the weights costs, with and without each thing that makes it cheaper.

    python -m benchmarks.update_cost [--model DIR] [--episodes 32] [--only NAME] [--json PATH]

The random policy plays the episodes once, against an in-process environment server. Each way then
does the same update with them (loss, gradients, AdamW), in a process of its own on --threads
threads. Its gradient's norm is compared with the first way's, and log-probabilities that the local
generator recorded with those of the update.
"""

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import torch
import typer
from transformers import TrainerCallback

from benchmarks.measuring import JsonPath, chosen, print_table
from env_server.app import create_app
from shared.client import in_process
from shared.console import write_json
from trainer.config import GRPOConfig
from trainer.grpo.train import build_trainer, run_training_with_metrics
from trainer.presets import OFFLINE_MODEL
from trainer.rollout.adapters import TRL_COLUMNS
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.loop import local_generator, play_episodes, sampling
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import codec_of
from trainer.runtime import masked_logits
from trainer.runtime.models import load_model_and_tokenizer

GROUP = 8  # episodes per question
SAMPLED = 24  # tokens of a turn whose log-probabilities are compared


@dataclass(frozen=True)
class Way:
    """Settings of one update; `shared` computes what all rows of a micro-batch begin with once."""

    settings: dict[str, Any] = field(default_factory=dict)
    shared: bool = True


FLOAT32, BFLOAT16 = {"dtype": "float32"}, {"dtype": "bfloat16"}
WAYS = {
    "trl's own": Way({**FLOAT32, "masked_logits": False}, shared=False),
    "masked logits": Way(FLOAT32, shared=False),
    "and a shared prompt": Way(FLOAT32),
    "and bfloat16": Way(BFLOAT16),
    "and checkpointing": Way({**BFLOAT16, "gradient_checkpointing": True}),
    "LoRA": Way({**FLOAT32, "lora_rank": 16}),
    "LoRA in bfloat16": Way({**BFLOAT16, "lora_rank": 16}),
}


@dataclass(frozen=True)
class Cost:
    """One way's update. `logprob_*`: recorded against recomputed log-probabilities, in nats."""

    way: str
    cpu_s: float
    peak_mib: float
    grad_norm: float
    logprob_mean: float
    logprob_max: float


def settings(model: str, episodes: int, rows: int, folder: str) -> GRPOConfig:
    """Return the settings that all ways share."""
    return GRPOConfig(
        model_name=model,
        device="cpu",
        max_new_tokens=64,
        max_context_tokens=2048,
        step_budget=4,
        num_generations=GROUP,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=episodes // rows,
        max_steps=1,
        logging_steps=1,
        output_dir=folder,
    )


def play(config: GRPOConfig) -> list[RolloutRow]:
    """Play groups of random episodes and return their rows."""
    _, tokenizer = load_model_and_tokenizer(config)
    questions = load_question_prompts(config)[: config.rollouts_per_step // GROUP]
    prompts = [row["prompt"] for row in questions for _ in range(GROUP)]
    with in_process(create_app()).sync() as client:
        return play_episodes(prompts, None, tokenizer, config, client=client, policy=RandomPolicy())


def compare_logprobs(
    trainer: Any, rows: list[RolloutRow], config: GRPOConfig
) -> tuple[float, float]:
    """Sample a turn behind four prompts; return the mean and the largest difference
    between the log-probabilities that were recorded and those that an update computes."""
    codec = codec_of(trainer.processing_class)
    contexts = [row.prompt_ids for row in rows[:: max(1, len(rows) // 4)]]
    with sampling(trainer.model, config, "sampling", trainer.accelerator.autocast()):
        limits = config.override(max_new_tokens=SAMPLED, max_context_tokens=4096)
        generator = local_generator(trainer.model, codec, limits, ended_share=1.0)
        generator.start([(index,) for index in range(len(contexts))])
        samples = generator.sample(dict(enumerate(contexts)))
    ids = [context + samples[index].ids for index, context in enumerate(contexts)]
    ones = [torch.ones(len(row)) for row in ids]
    scored = [
        one.clone().index_fill_(0, torch.arange(len(context)), 0.0)
        for one, context in zip(ones, contexts, strict=True)
    ]
    pad = torch.nn.utils.rnn.pad_sequence
    with torch.no_grad(), trainer.accelerator.autocast():
        found, _ = masked_logits.score_tokens(
            trainer.model,
            pad([torch.tensor(row) for row in ids], batch_first=True),
            pad(ones, batch_first=True),
            pad(scored, batch_first=True),
        )
    recorded = torch.tensor([one for index in range(len(ids)) for one in samples[index].logprobs])
    difference = (found - recorded).abs()
    return float(difference.mean()), float(difference.max())


def update(name: str, config: GRPOConfig, rows: list[RolloutRow], threads: int) -> Cost:
    """Do one way's update with the rows, and return its cost."""
    torch.set_num_threads(threads)
    way = WAYS[name]
    config = config.override(**way.settings)
    if not way.shared:
        masked_logits.shared_prefix = lambda ids, scored: 0
    model, tokenizer = load_model_and_tokenizer(config)
    trainer = build_trainer(model, tokenizer, config, load_question_prompts(config))
    difference = float("nan"), float("nan")
    if config.masked_logits:
        difference = compare_logprobs(trainer, rows, config)
    started = cpu_s = 0.0

    def rollout_func(*_: Any) -> dict[str, list[Any]]:
        nonlocal started
        started = time.process_time()
        return {column: [getattr(row, column) for row in rows] for column in TRL_COLUMNS}

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            nonlocal cpu_s
            cpu_s = time.process_time() - started

    trainer.rollout_func = rollout_func
    trainer.add_callback(Clock())
    _, logged = run_training_with_metrics(trainer)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    norm = next(line["grad_norm"] for line in logged if "grad_norm" in line)
    return Cost(name, cpu_s, peak_mib, norm, *difference)


def main(
    model: Annotated[str, typer.Option(help="Model directory.")] = OFFLINE_MODEL,
    episodes: Annotated[int, typer.Option(help=f"Episodes, a multiple of {GROUP}.")] = 32,
    micro_batch: Annotated[int, typer.Option(help="Rows per micro-batch.")] = 4,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Ways, by name.")] = None,
    json_path: JsonPath = None,
) -> None:
    """Do the update in every way and print a table."""
    names = chosen(only, WAYS, "way")
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        config = settings(model, episodes, micro_batch, folder)
        rows = play(config)
        for name in names:
            # a process of its own, whose peak memory is this way's
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                costs.append(pool.submit(update, name, config, rows, threads).result())
    first, lines = costs[0], []
    for cost in costs:
        lines.append(
            (
                cost.way,
                f"{cost.cpu_s:.1f}",
                f"{cost.cpu_s / first.cpu_s:.2f}",
                f"{cost.peak_mib:,.0f}",
                f"{cost.peak_mib / first.peak_mib:.2f}",
                f"{cost.grad_norm:.4f}",
                f"{cost.logprob_mean:.1e}, {cost.logprob_max:.1e}",
            )
        )
    tokens = sum(len(row.ids) for row in rows)
    counted = sum(sum(row.env_mask) for row in rows)
    print_table(
        f"One update with {len(rows)} episodes, {tokens:,} tokens, {counted:,} of which count",
        (
            *("way", "CPU s", "ratio", "peak MiB", "ratio", "gradient norm"),
            "log-probabilities differ by (mean, max)",
        ),
        lines,
    )
    write_json(json_path, {"costs": [asdict(cost) for cost in costs], "tokens": tokens})


if __name__ == "__main__":
    typer.run(main)
