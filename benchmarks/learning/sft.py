"""Supervised fine-tuning for as long as the run trained, on near-expert demonstrations of its
training questions.

The demonstrations hold the gold SQL and the gold answer, which reinforcement learning never sees: a
stronger teacher than a reward. A tenth of the training questions is held back. By its greedy
success, measured at a few points that take no training time, the learning rate and the weights are
chosen.
"""

import copy
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.learning.bench import Bench, Result, measure_both
from data.domains.demonstrations import answer_action
from shared.dataset import Question, load_questions
from shared.models import Outcome
from trainer.errors import RunError
from trainer.evaluation.evaluate import evaluate
from trainer.evaluation.measure import batch_of, model_play
from trainer.pretraining.imitation import Row, collate, imitation_loss
from trainer.rollout.loop import play_scripted
from trainer.run.console import bar
from trainer.run.folder import Run
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.precision import precision

RATES = (1e-4, 3e-4, 1e-3)
HELD_BACK = 10  # every tenth training question
TRIAL_SHARE = 0.25  # of the run's training seconds, for each rate, to choose one
POINTS, TRIAL_POINTS = 8, 3  # measurements of the held-back questions in the fit, and in a trial
WARMUP_SHARE = 0.05
BATCH, MICRO_BATCH = 64, 8  # episodes an optimiser step, and in one forward pass, sorted by length

# greedy success on held-back questions, minus the loss on their demonstrations
Score = tuple[float, float]


def gold_rows(question: Question) -> list[list[Any]]:
    """The gold as rows of a result. `gold_answer` is a scalar, a list (one column) or a list of
    rows."""
    if question.answer_type == "table":
        return [list(row) for row in question.gold_answer]
    if question.answer_type == "list":
        return [[cell] for cell in question.gold_answer]
    return [[question.gold_answer]]


def script_of(question: Question) -> list[str]:
    """Look at each table that the question needs, run the gold, answer."""
    looks = [f"DESCRIBE: {table}" for table in question.tables_involved]
    return [*looks, f"QUERY: {question.gold_sql}", answer_action(gold_rows(question))]


def play_rows(bench: Bench, tokenizer: Any) -> tuple[dict[str, Row], int]:
    """Question id -> its demonstration as a token row, played over HTTP; and how many scripts did
    not succeed.

    A script fails where its answer is longer than what a turn or the context window holds; it is
    left out.
    """
    questions = {
        one.question_id: one for one in load_questions(Path(bench.there.config.questions_path))
    }
    scripts = {
        row["question_id"]: script_of(questions[row["question_id"]]) for row in bench.inputs.train
    }
    played = play_scripted(scripts, tokenizer, bench.there.config, bench.there.client)
    rows = {
        row.question_id: Row(
            ids=row.ids, learn=row.learn_mask, easy=questions[row.question_id].difficulty == "easy"
        )
        for row in played
        if row.outcome == Outcome.CORRECT
    }
    return rows, len(played) - len(rows)


def shuffled_batches(rows: Sequence[Row], size: int, seed: int) -> Iterator[list[Row]]:
    """Epochs without end, each in an order of its own."""
    stream = random.Random(f"sft:{seed}")
    while True:
        order = list(rows)
        stream.shuffle(order)
        yield from (order[start : start + size] for start in range(0, len(order), size))


def rate_factor(share: float) -> float:
    """The share of the peak learning rate when `share` of the time is spent: warm-up, then linear
    decay to zero."""
    return max(0.0, min(share / WARMUP_SHARE, (1 - share) / (1 - WARMUP_SHARE)))


@dataclass
class Fit:
    """One training: its weights at the best point, and what led there."""

    rate: float
    score: Score = (-1.0, 0.0)
    weights: dict[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 0.0
    batches: int = 0
    episodes: int = 0
    points: list[dict[str, float]] = field(default_factory=list)


class Learner:
    """Gradients of `trainer.pretraining.imitation`'s loss, computed as the run computes its own."""

    def __init__(self, model: Any, pad_id: int, device: str, dtype: Any) -> None:
        self.model, self._pad_id = model, pad_id
        self._device, plan = precision(device, dtype)
        self._low = plan.compute if plan.compute is torch.bfloat16 else None

    def loss(self, rows: Sequence[Row], *, backward: bool) -> float:
        """Mean cross-entropy of all the demonstrator's tokens in `rows`, in nats, over
        micro-batches by length."""
        ordered = sorted(rows, key=lambda row: len(row.ids), reverse=True)
        tokens = sum(sum(row.learn) for row in rows)
        total = 0.0
        for start in range(0, len(ordered), MICRO_BATCH):
            part = ordered[start : start + MICRO_BATCH]
            ids, learn = collate(part, self._pad_id, torch.device(self._device))
            kind = torch.device(self._device).type
            with torch.autocast(kind, dtype=self._low) if self._low else nullcontext():
                loss = imitation_loss(self.model, ids, learn) * (
                    sum(sum(row.learn) for row in part) / tokens
                )
            if backward:
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total


def fit(
    learner: Learner,
    rows: Sequence[Row],
    rate: float,
    seconds: float,
    seed: int,
    score: Callable[[], Score],
    on_point: Callable[[float, Score], None] = lambda spent, score: None,
    *,
    points: int = POINTS,
    clock: Callable[[], float] = time.perf_counter,
) -> Fit:
    """Train for `seconds` of `clock`, in which `score` is not counted, and keep the best-scored of
    `points` states.

    Of equal scores the later wins.
    """
    model, found = learner.model, Fit(rate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    model.train()
    for batch in shuffled_batches(rows, BATCH, seed):
        began = clock()
        for group in optimizer.param_groups:
            group["lr"] = rate * rate_factor(found.seconds / seconds)
        loss = learner.loss(batch, backward=True)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found.seconds += clock() - began
        found.batches, found.episodes = found.batches + 1, found.episodes + len(batch)
        ended = found.seconds >= seconds
        if ended or found.seconds >= seconds * (len(found.points) + 1) / points:
            point = score()
            found.points.append(
                {
                    "seconds": found.seconds,
                    "loss": loss,
                    "held_back_success": point[0],
                    "held_back_loss": -point[1],
                }
            )
            on_point(found.seconds, point)
            if point >= found.score:
                found.score, found.weights = point, copy.deepcopy(model.state_dict())
        if ended:
            break
    model.eval()
    return found


def control(bench: Bench, folder: Run, rates: Sequence[float] = RATES) -> Result:
    """Choose a rate in short trials, train for the run's training seconds, and measure the best
    point's weights."""
    config, seconds = bench.there.config, bench.finished.training_s
    model, tokenizer = load_model_and_tokenizer(config)
    start = copy.deepcopy(model.state_dict())
    rows, failed = play_rows(bench, tokenizer)
    held = [row for index, row in enumerate(bench.inputs.train) if index % HELD_BACK == 0]
    held_ids = {row["question_id"] for row in held}
    held_rows = [row for question_id, row in rows.items() if question_id in held_ids]
    taught = [row for question_id, row in rows.items() if question_id not in held_ids]
    if not taught or not held_rows:
        raise RunError(
            f"{len(rows)} demonstrations of training questions succeeded: too few to learn from"
        )
    learner = Learner(model, tokenizer.pad_token_id, config.device, config.dtype)
    play = model_play(model, tokenizer, config, bench.there.client, "greedy")

    def score() -> Score:
        with torch.no_grad():
            loss = learner.loss(held_rows, backward=False)
        success = (
            evaluate(play, held, bench.inputs.book, mode="greedy", batch=batch_of(model, config))
            .rate()
            .rate
        )
        return success or 0.0, -loss

    def learn(rate: float, duration: float, title: str, points: int) -> Fit:
        model.load_state_dict(start)
        with bar(bench.console, f"{title}, rate {rate:g}", round(duration)) as shown:
            return fit(
                learner,
                taught,
                rate,
                duration,
                config.seed,
                score,
                lambda spent, at: shown.to(
                    min(round(spent), round(duration)), f"held back {at[0]:.1%}"
                ),
                points=points,
            )

    trials = (
        [learn(rate, TRIAL_SHARE * seconds, "SFT trial", TRIAL_POINTS) for rate in rates]
        if len(rates) > 1
        else []
    )
    rate = max(trials, key=lambda one: one.score).rate if trials else rates[0]
    found = learn(rate, seconds, "SFT", POINTS)
    model.load_state_dict(found.weights)
    model.save_pretrained(folder.model)
    tokenizer.save_pretrained(folder.model)
    notes = {
        "demonstrations": len(taught),
        "demonstrations_failed": failed,
        "held_back": len(held),
        "optimizer": "AdamW",
        "rate": rate,
        "trials": [
            {"rate": one.rate, "seconds": one.seconds, "held_back_success": one.score[0]}
            for one in trials
        ],
        "batches": found.batches,
        "epochs": found.episodes / len(taught),
        "points": found.points,
    }
    return Result(
        {"sft": measure_both(bench, folder, "SFT", model, tokenizer)}, found.seconds, notes
    )
