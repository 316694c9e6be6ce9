"""The base model's card: README.md beside its weights, written from the record of its pretraining."""

from collections.abc import Mapping
from typing import Any

CARD = """# {name}

A Qwen3 of {parameters:,} parameters with its own byte-level BPE tokenizer ({vocab_size:,} tokens, ChatML), trained from
scratch to explore SQL databases in SQLEnv. It knows the game's four actions and the questions that SQLEnv's templates
ask; it knows nothing else. It was made by `python -m trainer pretrain --seed {seed}`, from a wired induction head
(`trainer/pretraining/induction_head.py`), on demonstrations over generated databases. In {renamed:.0%} of them, drawn anew each time,
schema words and values are renamed to random tokens (`trainer/pretraining/symbol_renaming.py`).

| stage | databases | episodes | passes | untidy demonstrators | tokens | seconds | FLOPs | loss |
|---|---|---|---|---|---|---|---|---|
{stages}

Tokens count prompts and observations; the loss is that of the demonstrators' tokens alone, in nats a token, at the
stage's end. Seconds are wall time on {processes}; FLOPs are 6 x parameters x tokens.

Held out from pretraining (`data/domains/held_out.py`): every shipped database; the schema words of the five unseen ones
and the values in their cells; and pairs of a form of SQL and a word of the question, each of which occurs without the
other.

{success}{untidy}
It can't answer hard questions, write SQL outside the templates' forms, or chat.
"""
SUCCESS = """Success in % on the {n} easy and medium eval questions about unseen databases, with 95 % intervals:

| after stage | greedy | sampled | any of 8 samples right (pass@8) |
|---|---|---|---|
{lines}
"""
UNTIDY = """
Untidy demonstrators (`data/domains/demonstrations.py`) do as logs of people show: they guess columns, skip DESCRIBE,
take a wrong aggregate, repeat themselves or answer without looking. In the last stage most do so. So the model explores
badly and still knows how to explore well.
"""


def model_card(record: Mapping[str, Any], name: str = "sqlenv-tiny") -> str:
    """The card for what `trainer.pretraining.pretrain.pretrain` returned."""
    stages, config, processes = record["stages"], record["config"], record["processes"]
    lines = [
        f"| {stage['name']} | {stage['databases']} | {stage['episodes']:,} | {stage['passes']:g} | "
        f"{stage['noise']:.0%} {stage['mixture']} | {stage['tokens']:,} | {stage['seconds']:,.0f} | "
        f"{stage['flops']:.2g} | {stage['loss']:.3f} |"
        for stage in stages
    ]
    measured = [stage for stage in stages if "success" in stage]
    success = [
        f"| {stage['name']} | {_percent(stage['success']['greedy'])} | {_percent(stage['success']['sampled'])} | "
        f"{100 * stage['success']['pass_at_8']:.1f} |"
        for stage in measured
    ]
    return CARD.format(
        name=name,
        parameters=stages[-1]["parameters"],
        vocab_size=config["vocab_size"],
        seed=config["seed"],
        renamed=config["renamed_share"],
        processes=f"{processes} CPU cores" if processes > 1 else "one CPU core",
        stages="\n".join(lines),
        success=SUCCESS.format(n=measured[0]["success"]["n"], lines="\n".join(success))
        if measured
        else "",
        untidy=UNTIDY if len(stages) > 1 else "",
    )


def _percent(rate: Mapping[str, Any]) -> str:
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
