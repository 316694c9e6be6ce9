"""Supervised fine-tuning with `transformers.Trainer`: only the demonstrator's tokens count."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers import PrinterCallback, TrainingArguments

from trainer.config.settings import GRPOConfig
from trainer.runtime.checkpoint import Guard, WholeCheckpoints
from trainer.runtime.lora import adapted
from trainer.runtime.masked_logits import avoid_uncompiled_kernels, prepare, score_tokens
from trainer.runtime.precision import shrink_frozen_weights
from trainer.runtime.ranks import Ranks
from trainer.runtime.training import ignore_renamed, shared_arguments
from trainer.sft.demonstrate import Demonstration

IGNORED = -100  # label of a position that the loss leaves out
BUCKET_BATCHES = 16  # batches whose rows are sorted by length together

Tensor = torch.Tensor


class LengthBuckets(Sampler[int]):
    """Order rows, anew in each epoch, so that a batch holds rows of similar length."""

    def __init__(
        self, lengths: Sequence[int], batch: int, seed: int, updates_done: Callable[[], int]
    ) -> None:
        self._lengths, self._batch, self._seed = lengths, batch, seed
        self._updates_done = updates_done

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        batch, order = self._batch, list(range(len(self._lengths)))
        epoch = self._updates_done() // math.ceil(len(order) / batch)
        stream = random.Random(f"sft:{self._seed}:{epoch}")
        stream.shuffle(order)
        whole = len(order) // batch * batch
        batches = []
        for start in range(0, whole, BUCKET_BATCHES * batch):
            end = min(whole, start + BUCKET_BATCHES * batch)
            bucket = sorted(order[start:end], key=lambda row: self._lengths[row])
            batches += [bucket[first : first + batch] for first in range(0, len(bucket), batch)]
        stream.shuffle(batches)
        return iter([*(row for rows in batches for row in rows), *order[whole:]])


def collate(rows: Sequence[Demonstration], pad_id: int) -> dict[str, Tensor]:
    """Return input_ids, attention_mask and labels, `IGNORED` where nothing is learnt, of shape
    [rows, longest], padded on the right."""
    ids = pad_sequence([torch.tensor(row.ids) for row in rows], True, pad_id)
    mask = pad_sequence([torch.ones_like(torch.tensor(row.ids)) for row in rows], True)
    learn = pad_sequence([torch.tensor(row.learn) for row in rows], True)
    labels = torch.where(learn == 1, ids, IGNORED)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class DemonstrationTrainer(WholeCheckpoints):
    """`transformers.Trainer` with the mean cross-entropy, in nats, of the ids learnt."""

    def __init__(self, *arguments: Any, batch: int, seed: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        lengths = [len(row.ids) for row in self.train_dataset]
        self._order = LengthBuckets(lengths, batch, seed, lambda: self.state.global_step)
        self.model_accepts_loss_kwargs = True  # so that it counts the tokens of a step

    def _get_train_sampler(self, dataset: Any = None) -> LengthBuckets:
        return self._order

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        learnt = inputs["labels"] != IGNORED
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        log_probs, _ = score_tokens(model, ids, mask, learnt)
        loss: Tensor = -log_probs.sum() / num_items_in_batch
        return loss


def build_trainer(
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    rows: Sequence[Demonstration],
    *,
    batch: int,
    ranks: Ranks | None = None,
    callbacks: Sequence[Any] = (),
    **options: Any,
) -> DemonstrationTrainer:
    """Return a trainer over `rows`, `batch` per update, for `trainer.runtime.training.train_from`.
    A forward pass takes the largest part of `batch`, without a rest, that
    `config.per_device_train_batch_size` allows."""
    most = min(config.per_device_train_batch_size, batch)
    micro = max(rows for rows in range(1, most + 1) if batch % rows == 0)
    values: dict[str, Any] = {
        **shared_arguments(config),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": batch // micro,
        "remove_unused_columns": False,
    }
    ignore_renamed()
    avoid_uncompiled_kernels()
    prepare(model)
    if config.lora_rank:
        torch.manual_seed(config.seed)
        model = adapted(model, config)
        shrink_frozen_weights(model, config)
    trainer = DemonstrationTrainer(
        model,
        TrainingArguments(**{**values, **options}),
        lambda part: collate(part, tokenizer.pad_token_id),
        list(rows),
        processing_class=tokenizer,
        callbacks=[Guard(ranks or Ranks(), config), *callbacks],
        batch=batch,
        seed=config.seed,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
