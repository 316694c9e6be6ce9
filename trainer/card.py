"""The base model's card: README.md beside its weights, written from the record of its pretraining."""

from collections.abc import Mapping
from typing import Any

CARD = """# sqlenv-tiny

A Qwen3 of {parameters:,} parameters with its own byte-level BPE tokenizer ({vocab_size:,} tokens, ChatML), trained from
scratch to explore SQL databases in SQLEnv. It knows the game's four actions and the questions that SQLEnv's templates
ask; it knows nothing else. It was made by `python -m trainer pretrain --seed {seed}`, from a wired induction head
(`trainer/induction.py`), on demonstrations over generated databases. No shipped database is among them.

| stage | databases | episodes | untidy demonstrators | tokens | seconds | FLOPs | loss |
|---|---|---|---|---|---|---|---|
{stages}

Tokens count prompts and observations; the loss is that of the demonstrators' tokens alone, in nats a token, at the
stage's end. Seconds are wall time on a CPU; FLOPs are 6 x parameters x tokens. Its success on the eval set, greedy and
sampled, is what `python -m trainer evaluate` prints, and stands in every run's summary as `eval_success_before`.

It can't answer hard questions, write SQL outside the templates' forms, or chat.
"""


def model_card(record: Mapping[str, Any]) -> str:
    """The card for what `trainer.pretrain.pretrain` returned."""
    stages = record["stages"]
    lines = [
        f"| {stage['name']} | {stage['databases']} | {stage['episodes']:,} | {stage['noise']:.0%} | "
        f"{stage['tokens']:,} | {stage['seconds']:,.0f} | {stage['flops']:.2g} | {stage['loss']:.3f} |"
        for stage in stages
    ]
    config = record["config"]
    return CARD.format(
        parameters=stages[-1]["parameters"],
        vocab_size=config["vocab_size"],
        seed=config["seed"],
        stages="\n".join(lines),
    )
