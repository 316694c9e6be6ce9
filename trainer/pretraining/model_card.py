"""The base model's card: README.md beside its weights, written from its pretraining record, and the
measurement of its success on unseen databases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from shared.dataset import load_questions
from trainer.config import GRPOConfig
from trainer.evaluation.evaluate import choose
from trainer.evaluation.run import run_evaluation
from trainer.evaluation.settings import EvaluationSettings
from trainer.rollout.dataset import load_question_prompts

TRIES = 8  # sampled episodes per question
CARD = """# {name}

A Qwen3 of {parameters:,} parameters with its own byte-level BPE tokenizer ({vocab_size:,} tokens,
ChatML), trained from scratch to explore SQL databases in SQLEnv. It knows SQLEnv's four actions and
the questions that its templates ask, and nothing else. It was made by
`python -m trainer pretrain --seed {seed}`, from a wired induction head
(`trainer/pretraining/induction_head.py`), on demonstrations over generated databases. In some of
them, drawn again for each pass, schema words and values are renamed to random tokens
(`trainer/pretraining/symbol_renaming.py`).

| stage | databases | episodes | right % | renamed % | names | passes | tokens | s | FLOPs | loss |
|---|---|---|---|---|---|---|---|---|---|---|
{stages}

`right %` is the share of demonstrations that end with the right answer; a few demonstrators are
careless (`data/domains/demonstrations.py`). Demonstrators see the gold queries, and never a
held-out word. `names` is the length of a new name in tokens. `tokens` include prompts and
observations. `s` are seconds of wall time (device x processes). FLOPs are 6 x parameters x
tokens. The loss is the running mean at the end of the stage, over the demonstrators' tokens only,
in nats per token.

Held out from pretraining (`data/domains/held_out.py`): every shipped database; the schema words of
the five unseen ones and the values in their cells; and pairs of a form of SQL and a word of the
question, each of which occurs without the other.

Success in % on the {n} easy and medium eval questions about unseen databases, with
95 % intervals:

| after stage | greedy | sampled | any of 8 samples right (pass@8) |
|---|---|---|---|
{successes}

It can't answer hard questions, write SQL outside the templates' forms, or chat.
"""


def model_card(record: Mapping[str, Any], name: str = "sqlenv-tiny") -> str:
    """Return the card for the record that `trainer.pretraining.pretrain.pretrain` returned."""
    stages, config = record["stages"], record["config"]
    lines = [
        f"| {stage['name']} | {stage['databases']} | {stage['episodes']:,} "
        f"| {100 * stage['right'] / stage['episodes']:.1f} | {100 * used['renamed_share']:.0f} "
        f"| 1 to {len(used['name_lengths'])} | {stage['passes']:g} | {stage['tokens']:,} "
        f"| {stage['seconds']:,.0f} ({stage['device']} x {stage['processes']}) "
        f"| {stage['flops']:.2g} | {stage['loss']:.3f} |"
        for stage, used in ((stage, {**config, **stage["renaming"]}) for stage in stages)
    ]
    successes = [
        f"| {stage['name']} | {rate_text(success['greedy'])} | {rate_text(success['sampled'])} "
        f"| {100 * success['pass_at_8']:.1f} |"
        for stage in stages
        for success in [stage["success"]]
    ]
    return CARD.format(
        name=name,
        parameters=stages[-1]["parameters"],
        vocab_size=config["vocab_size"],
        seed=config["seed"],
        stages="\n".join(lines),
        n=stages[0]["success"]["n"],
        successes="\n".join(successes),
    )


def rate_text(rate: Mapping[str, Any]) -> str:
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def unseen_success(config: GRPOConfig, console: Console, eval_limit: int = 0) -> dict[str, Any]:
    """Return the success of `config.model_name` on the eval questions about unseen databases.

    With `eval_limit`, these are of the questions that a run with this option plays. The keys are n
    (questions), greedy and sampled (`{rate, n, ci95}`), and pass_at_8: the share of questions of
    which any of 8 sampled answers is right.
    """
    rows = choose(load_question_prompts(config, "eval"), eval_limit)
    trained = {one.database_name for one in load_questions(Path(config.questions_path))}
    unseen = tuple(row["question_id"] for row in rows if row["database_name"] not in trained)
    asked: dict[str, Any] = {"config": config, "question_ids": unseen}
    greedy = run_evaluation(EvaluationSettings(**asked, temperature=None), console)
    sampled = run_evaluation(EvaluationSettings(**asked, samples=TRIES), console)
    tries = sampled["success"]["overall"]
    return {
        "n": greedy["questions"],
        "greedy": greedy["success"]["overall"]["success"],
        "sampled": tries["success"],
        "pass_at_8": tries["pass_at"][str(TRIES)]["rate"],
    }
