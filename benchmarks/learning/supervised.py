"""Supervised training of a run's start model for the CPU time that the run trained.

The controls `sft` and `imitation` differ in their demonstrations alone. A tenth of the run's
training questions is held back: greedy success on them, measured at a few points that take no
training time, selects the learning rate and the weights.
"""

import copy
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.learning.bench import Bench, Result, measure_both
from shared.console import percent
from trainer.evaluation.evaluate import PromptRow, evaluate
from trainer.evaluation.measure import batch_of, model_play
from trainer.pretraining.imitation import Row, collate, imitation_loss, learned_tokens
from trainer.run.console import bar
from trainer.run.folder import Run
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.precision import precision

HELD_BACK = 10  # every tenth training question
TRIAL_SHARE = 0.25  # of the run's CPU-seconds of training, for each learning rate
POINTS, TRIAL_POINTS = 8, 3  # measurements of the held-back questions in the fit, and in a trial
WARMUP_SHARE = 0.05
BATCH, MICRO_BATCH = 64, 8  # episodes per optimizer step, and per forward pass

# greedy success on held-back questions, minus the loss on held-back demonstrations
Score = tuple[float, float]
Change = Callable[[Row, random.Random], Row]


def unchanged(row: Row, stream: random.Random) -> Row:
    return row


@dataclass(frozen=True)
class Demonstrations:
    """Token rows to learn from, and others for the loss at each point.

    `change` returns the row to train on in place of a taught one. `notes` go into the result.
    """

    taught: Sequence[Row]
    held_back: Sequence[Row]
    notes: Mapping[str, Any]
    change: Change = unchanged


def held_back_questions(bench: Bench) -> Sequence[PromptRow]:
    return bench.inputs.train[::HELD_BACK]


def shuffled_batches(rows: Sequence[Row], size: int, seed: int) -> Iterator[list[Row]]:
    """Yield batches of endless epochs, each in a new order."""
    stream = random.Random(f"sft:{seed}")
    while True:
        order = list(rows)
        stream.shuffle(order)
        yield from (order[start : start + size] for start in range(0, len(order), size))


def rate_factor(share: float) -> float:
    """Return the factor of the learning rate after a share of the time: warm-up, linear decay."""
    return max(0.0, min(share / WARMUP_SHARE, (1 - share) / (1 - WARMUP_SHARE)))


@dataclass
class Fit:
    """One training: the weights at its best point, and what led there."""

    rate: float
    score: Score = (-1.0, 0.0)
    weights: dict[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 0.0  # CPU-seconds
    batches: int = 0
    episodes: int = 0
    points: list[dict[str, float]] = field(default_factory=list)


class Learner:
    """The loss of `trainer.pretraining.imitation`, in the number format of the run."""

    def __init__(self, model: Any, pad_id: int, device: str, dtype: Any) -> None:
        self.model, self._pad_id = model, pad_id
        name, compute = precision(device, dtype)
        self._device = torch.device(name)
        self._low = compute if compute is torch.bfloat16 else None

    def loss(self, rows: Sequence[Row], *, backward: bool) -> float:
        """Return the mean cross-entropy of the demonstrators' tokens in `rows`, in nats."""
        ordered = sorted(rows, key=lambda row: len(row.ids), reverse=True)
        tokens = learned_tokens(rows)
        total = 0.0
        for start in range(0, len(ordered), MICRO_BATCH):
            batch = ordered[start : start + MICRO_BATCH]
            ids, learn = collate(batch, self._pad_id, self._device)
            weight = learned_tokens(batch) / tokens
            with torch.autocast(self._device.type, dtype=self._low, enabled=self._low is not None):
                loss = imitation_loss(self.model, ids, learn) * weight
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
    *,
    change: Change = unchanged,
    points: int = POINTS,
    clock: Callable[[], float] = time.process_time,
) -> Fit:
    """Train for `seconds`, without those of `score`, and keep the best of `points` states.

    Of equal scores the later wins.
    """
    model, result = learner.model, Fit(rate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    stream = random.Random(f"change:{seed}")
    model.train()
    for batch in shuffled_batches(rows, BATCH, seed):
        started = clock()
        for group in optimizer.param_groups:
            group["lr"] = rate * rate_factor(result.seconds / seconds)
        loss = learner.loss([change(row, stream) for row in batch], backward=True)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        result.seconds += clock() - started
        result.batches, result.episodes = result.batches + 1, result.episodes + len(batch)
        ended = result.seconds >= seconds
        if ended or result.seconds >= seconds * (len(result.points) + 1) / points:
            at = score()
            point = {"seconds": result.seconds, "loss": loss}
            result.points.append({**point, "held_back_success": at[0], "held_back_loss": -at[1]})
            if at >= result.score:
                result.score, result.weights = at, copy.deepcopy(model.state_dict())
        if ended:
            break
    model.eval()
    return result


def train(
    bench: Bench, folder: Run, name: str, demonstrations: Demonstrations, rates: Sequence[float]
) -> Result:
    """Choose a rate in short trials, train for as long as the run, measure the best weights."""
    config, seconds = bench.connection.config, bench.finished.training_cpu_s
    model, tokenizer = load_model_and_tokenizer(config)
    start = copy.deepcopy(model.state_dict())
    learner = Learner(model, tokenizer.pad_token_id, config.device, config.dtype)
    play = model_play(model, tokenizer, config, bench.connection.client, "greedy")
    book, batch = bench.inputs.book, batch_of(model, config)
    held_back = held_back_questions(bench)

    def score() -> Score:
        with torch.no_grad():
            loss = learner.loss(demonstrations.held_back, backward=False)
        result = evaluate(play, held_back, book, mode="greedy", batch=batch)
        return result.rate().rate or 0.0, -loss

    def learn(rate: float, duration: float, title: str, points: int) -> Fit:
        model.load_state_dict(start)
        measured = itertools.count(1)
        with bar(bench.console, f"{title}, rate {rate:g}", points) as progress:

            def score_and_report() -> Score:
                at = score()
                progress.to(next(measured), f"held back {percent(at[0])}")
                return at

            options: dict[str, Any] = {"change": demonstrations.change, "points": points}
            return fit(
                learner,
                demonstrations.taught,
                rate,
                duration,
                config.seed,
                score_and_report,
                **options,
            )

    trials = []
    if len(rates) > 1:
        duration = TRIAL_SHARE * seconds
        trials = [learn(each, duration, f"{name} trial", TRIAL_POINTS) for each in rates]
    rate = max(trials, key=lambda one: one.score).rate if trials else rates[0]
    best = learn(rate, seconds, name, POINTS)
    model.load_state_dict(best.weights)
    model.save_pretrained(folder.model)
    tokenizer.save_pretrained(folder.model)
    notes = {
        **demonstrations.notes,
        "demonstrations": len(demonstrations.taught),
        "held_back": len(held_back),
        "optimizer": "AdamW",
        "rate": rate,
        "trials": [
            {"rate": one.rate, "seconds": one.seconds, "held_back_success": one.score[0]}
            for one in trials
        ],
        "batches": best.batches,
        "epochs": best.episodes / len(demonstrations.taught),
        "points": best.points,
    }
    modes = measure_both(bench, folder, name, model, tokenizer)
    return Result({name: modes}, best.seconds, notes)
