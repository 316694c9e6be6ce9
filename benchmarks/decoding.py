"""Time tokens of a real model's size on a CPU, with packed weights and with weights as stored.

    python -m benchmarks.decoding [--model DIR] [--rows 16] [--tokens 48] [--lora] [--rounds 3]
        [--json PATH]

Both ways decode the same rows in alternating rounds; the first round is a warm-up. Times are
CPU-seconds, in bfloat16. Without --model it is a random one of Qwen2.5-Coder-0.5B's shape.
"""

import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from transformers import AutoModelForCausalLM, Qwen2Config

from benchmarks.measuring import JsonPath, print_table
from shared.console import write_json
from trainer.config import GRPOConfig
from trainer.rollout.generators.local import LocalGenerator
from trainer.runtime.optional_packages import lora_config
from trainer.runtime.packed_weights import packed_weights
from trainer.runtime.precision import autocast, compute_logits_in_float32, shrink_frozen_weights

SHAPE = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
PROMPT = 200  # ids that all rows begin with
WAYS = ("as stored", "packed")


def load(folder: Path | None, config: GRPOConfig, lora: bool) -> Any:
    """Return a model as training prepares it, with adapters if `lora`."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    if folder is None:
        model = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE), **options)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
    compute_logits_in_float32(model, config)
    if lora:
        from peft import get_peft_model

        shrink_frozen_weights(model, config)
        model = get_peft_model(model, lora_config(config))
    return model.eval()


def measure(
    model: Any, config: GRPOConfig, rows: int, tokens: int, rounds: int
) -> dict[str, list[float]]:
    """Return way -> CPU-milliseconds per token of all rows, of each round. Packing is part of it.

    A round is a row's second turn, of `tokens` tokens; the prompt and the first are not timed.
    """
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way in WAYS:
            generator = LocalGenerator(
                model, frozenset(), max_new_tokens=tokens, max_context_tokens=PROMPT + 3 * tokens
            )
            generator.start([(number, row) for row in range(rows)])
            with autocast(config):
                generator.sample({row: range(100, 100 + PROMPT) for row in range(rows)})
                started = time.process_time()
                with packed_weights(model) if way == "packed" else nullcontext():
                    generator.sample({row: [7] for row in range(rows)})
            if number:
                taken[way].append(1000 * (time.process_time() - started) / tokens)
    return taken


def main(
    model: Annotated[
        Path | None, typer.Option(help="Model directory.", show_default="random weights")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows that decode together.")] = 16,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of a turn.")] = 48,
    lora: Annotated[bool, typer.Option(help="With LoRA adapters, as in training.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per way.")] = 3,
    json_path: JsonPath = None,
) -> None:
    """Time both ways and print a table."""
    config = GRPOConfig.preset("qwen2.5-coder-0.5b", device="cpu", dtype="bfloat16")
    taken = measure(load(model, config, lora), config, rows, tokens, rounds)
    ratio = median(taken[WAYS[0]]) / median(taken[WAYS[1]])
    lines = [
        (way, f"{median(times):.0f}", *(f"{one:.0f}" for one in times))
        for way, times in taken.items()
    ]
    headings = ("weights", "CPU ms per token", *(f"round {number + 1}" for number in range(rounds)))
    title = (
        f"Packed weights: {ratio:.2f} x as fast, {rows} rows on {torch.get_num_threads()} threads"
    )
    print_table(title, headings, lines)
    write_json(json_path, {"rows": rows, "lora": lora, "cpu_ms_per_token": taken, "ratio": ratio})


if __name__ == "__main__":
    typer.run(main)
