"""The base model's card: README.md beside its weights, written from its pretraining record."""

from collections.abc import Mapping
from typing import Any

CARD = """# {name}

A Qwen3 of {parameters:,} parameters with its own byte-level BPE tokenizer ({vocab_size:,} tokens,
ChatML), trained from scratch to explore SQL databases in SQLEnv. It knows SQLEnv's four actions and
the questions that its templates ask, and nothing else. It was made by
`python -m trainer pretrain --seed {seed} --hidden-size {hidden_size} --passes {passes:g}`, from a
wired induction head (`trainer/pretraining/induction_head.py`), on {episodes:,} demonstrations over
{databases} generated databases. In {renamed:.0f} % of them, drawn again for each pass, schema words
and values are renamed to names of 1 to {longest} random parts
(`trainer/pretraining/symbol_renaming.py`).

| right % | tokens | seconds | FLOPs | loss |
|---|---|---|---|---|
| {right:.1f} | {tokens:,} | {seconds:,.0f} | {flops:.2g} | {loss:.3f} |

`right %` is the share of demonstrations that end with the right answer; a few demonstrators are
careless (`data/domains/demonstrations.py`). Demonstrators see the gold queries, and never a
held-out word. `tokens` are those of all passes, with prompts and observations. The loss covers only
the demonstrators' tokens, in nats per token, at the end. The seconds are wall time on {processes};
FLOPs are 6 x parameters x tokens.

Held out from pretraining (`data/domains/held_out.py`): every shipped database; the schema words of
the five unseen ones and the values in their cells; and pairs of a form of SQL and a word of the
question, each of which occurs without the other.

{success}
It can't answer hard questions, write SQL outside the templates' forms, or chat.
"""
SUCCESS = """Success in % on the {n} easy and medium eval questions about unseen databases, with
95 % intervals:

| greedy | sampled | any of 8 samples right (pass@8) |
|---|---|---|
| {greedy} | {sampled} | {pass_at_8:.1f} |
"""


def model_card(record: Mapping[str, Any], name: str = "sqlenv-tiny") -> str:
    """Return the card for the record that `trainer.pretraining.pretrain.pretrain` returned."""
    config, processes, success = record["config"], record["processes"], record["success"]
    measured = ""
    if success:
        measured = SUCCESS.format(
            n=success["n"],
            greedy=rate_text(success["greedy"]),
            sampled=rate_text(success["sampled"]),
            pass_at_8=100 * success["pass_at_8"],
        )
    values = {
        **config,
        **record,
        "name": name,
        "renamed": 100 * config["renamed_share"],
        "longest": len(config["name_lengths"]),
        "right": 100 * record["right"] / record["episodes"],
        "processes": f"{processes} CPU cores" if processes > 1 else "one CPU core",
        "success": measured,
    }
    return CARD.format(**values)


def rate_text(rate: Mapping[str, Any]) -> str:
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
