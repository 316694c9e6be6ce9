"""`trl.GRPOTrainer` with several updates per generation batch, each with less work.

Several updates: each takes a part of the rows, and together they count as one step. The weights of
the later ones are not those that sampled the rows, so the ratio to the sampled probabilities is
clipped; so is that of rows that another sampler drew. Less work: micro-batches have rows of similar
length, without columns of padding and without rows whose advantage is 0; see also
`trainer.runtime.masked_logits` and docs/own-model.md.

A batch is a dictionary of values by row: `prompt_mask` [B, P], padded on the left,
`completion_mask` [B, C], padded on the right, `advantages` [B] and others.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler, split_tensor_dict

from trainer.runtime.checkpoint import WholeCheckpoints
from trainer.runtime.masked_logits import avoid_uncompiled_kernels, prepare, score_tokens
from trainer.runtime.ranks import average_gradients

Tensor = torch.Tensor
Batch = dict[str, Any]
IDLE_IDS = 2  # of an idle row's prompt: a forward pass takes all ids but the last


def both_verdicts(correct: Tensor, size: int) -> Tensor:
    """Return whether a row's group has a right and a wrong episode, [B] of bool.

    `correct` [B] is 1 or 0, NaN for a lost episode; `size` consecutive rows are a group.
    """
    groups = correct.view(-1, size)
    both = (groups == 1).any(1) & (groups == 0).any(1)
    return both.repeat_interleave(size)


def without_idle_rows(batch: Batch) -> Batch:
    """Return a batch in which rows with advantage 0 have two ids, and none that the loss counts.

    The loss of such a row has no gradient, so an update is the same, and cheaper. The number of
    rows and the divisor of the loss stay as they are.
    """
    idle = batch["advantages"] == 0
    prompt_mask, completion_mask = batch["prompt_mask"].clone(), batch["completion_mask"].clone()
    prompt_mask[idle, :-IDLE_IDS] = 0
    completion_mask[idle] = 0
    return {**batch, "prompt_mask": prompt_mask, "completion_mask": completion_mask}


def split_updates(batch: Batch, updates: int) -> list[Batch]:
    """Return `updates` parts of a batch, each with its longest rows first.

    So a lack of memory shows early. Part k has every `updates`th row from row k on: the same rows
    however many processes share the batch, and if `updates` divides the size of a group, as many
    rows of each group as other parts.
    """
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    order = torch.argsort(lengths, descending=True, stable=True)
    parts = (order[order % updates == k] for k in range(updates))
    return [{name: _rows(value, rows) for name, value in batch.items()} for rows in parts]


def _rows(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows] if value.ndim else value
    return value if value is None else [value[index] for index in rows.tolist()]


def trim(batch: Batch) -> Batch:
    """Return a micro-batch without the columns that are padding in every row.

    Tensors of completions are recognised by their shape [B, C].
    """
    completions = batch["completion_mask"]
    first = batch["prompt_mask"].shape[1] - _width(batch["prompt_mask"].flip(1))
    last = max(1, _width(completions))  # trl needs one column
    trimmed = {}
    for name, value in batch.items():
        if name.startswith("prompt_") and isinstance(value, Tensor):
            value = value[:, first:]
        elif isinstance(value, Tensor) and value.shape == completions.shape:
            value = value[:, :last]
        trimmed[name] = value
    return trimmed


def _width(mask: Tensor) -> int:
    """Return the number of columns up to the last one that is set in any row."""
    columns = mask.bool().any(0).nonzero()
    return int(columns[-1]) + 1 if len(columns) else 0


def counted(batch: Batch) -> Tensor:
    """Return the mask of the tokens that the loss counts, [B, C]."""
    mask: Tensor = batch["completion_mask"] * batch.get("tool_mask", 1)
    return mask


class EpochSampler(RepeatSampler):  # type: ignore[misc]
    """trl's sampler, with an order that depends on the epoch alone.

    trl's own starts with the first epoch's order again when training resumes in a later epoch.
    `steps_done` returns the training steps so far; each takes a chunk of the questions.
    """

    steps_done: Callable[[], int]

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(self.seed)
        for _ in range(self.steps_done() // (self.num_samples // self.batch_size)):
            torch.randperm(self.num_samples, generator=self.generator)
        yield from super().__iter__()


class LengthSortedGRPOTrainer(WholeCheckpoints, GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` that forms its micro-batches by length, with the loss of the clipped ratio.

    The sum of the micro-batches' gradients is that of the batch.

    The logged entropy and clip ratios are means over micro-batches of the mean over each one's
    tokens, so tokens of short rows weigh more.
    """

    _buffered_inputs: Any
    _scored: Tensor | None = None  # ids whose log-probabilities the present loss needs, [B, P + C]
    _both_verdicts: Tensor  # of the present generation batch of all processes, [B]
    _loss_inputs: Any = None  # of the present loss

    def __init__(
        self,
        *arguments: Any,
        updates: int,
        sampled_elsewhere: bool,
        skip_one_verdict_groups: bool,
        **options: Any,
    ) -> None:
        """`arguments` and `options` are those of `GRPOTrainer`.

        `updates` is the number of optimizer steps per generation batch. If there are several, or
        the rows were `sampled_elsewhere`, each token's loss has the clipped ratio of its
        probabilities in the model and in the sampler (`logprobs` of the rollout).
        `skip_one_verdict_groups` gives the rows of groups that are all right or all wrong the
        advantage 0.
        """
        self._updates, self._sampled_elsewhere = updates, sampled_elsewhere
        self._skip_one_verdict = skip_one_verdict_groups
        avoid_uncompiled_kernels()
        super().__init__(*arguments, **options)
        lora = hasattr(self.model, "get_base_model")
        prepare(self.model.get_base_model() if lora else self.model, self.temperature)

    def _calculate_rewards(self, *arguments: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*arguments)
        self._both_verdicts = both_verdicts(rewards[:, 0], self.num_generations)
        one_verdict = 1 - float(self._both_verdicts.float().mean())
        self._metrics["train"]["one_verdict_groups"].append(one_verdict)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        rows: dict[str, Any] = super()._generate_and_score_completions(inputs)
        # by trl's formula 0 or 1 with scale_rewards=batch; one_verdict_groups is logged instead
        self._metrics["train"].pop("frac_reward_zero_std", None)
        if self._skip_one_verdict:
            advantages = rows["advantages"]
            first = self.accelerator.process_index * len(advantages)
            taught = self._both_verdicts[first : first + len(advantages)]
            rows["advantages"] = advantages.where(taught, 0)
        return rows

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        chunks = self.args.gradient_accumulation_steps
        if self._step % chunks == 0 or self._buffered_inputs is None:
            rows = self._generate_and_score_completions(generation_batch)
            if not self.beta:  # the KL term has a gradient of its own
                rows = without_idle_rows(rows)
            self._buffered_inputs = [
                trim(one)
                for part in split_updates(rows, self._updates)
                for one in split_tensor_dict(part, chunks // self._updates)
            ]
        return self._buffered_inputs[self._step % chunks]

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        inputs = self._loss_inputs = dict(inputs)
        metrics, tokens = self._metrics["train"], counted(inputs)
        logged = {name: list(values) for name, values in metrics.items()}
        if self.beta:  # 0 where nothing is scored, as in what it is compared with
            inputs["ref_per_token_logps"] = inputs["ref_per_token_logps"] * tokens
        unscored = torch.zeros_like(inputs["prompt_mask"])
        self._scored = torch.cat([unscored, tokens], dim=1).bool()
        try:
            # trl divides by the micro-batches of the whole generation batch
            loss = super()._compute_loss(model, inputs) * self._updates
            if not self.accelerator.reduce(tokens.sum()):  # nothing to report
                metrics.clear()
                metrics.update(logged)
            return loss
        finally:
            self._scored = self._loss_inputs = None

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, kept: int, **options: Any
    ) -> Any:
        if self._scored is None:  # outside a loss, as of the reference model
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, kept, **options
            )
        with self.accelerator.autocast():
            values = score_tokens(model, input_ids, attention_mask, self._scored)
        scored = self._scored[:, -kept:]
        # scattered, so that a loss without a single token has a gradient too, of 0
        logps, entropies = (
            one.new_zeros(scored.shape).masked_scatter(scored, one) for one in values
        )
        inputs, present = self._loss_inputs, logps.detach()
        if self._updates > 1 or self._sampled_elsewhere:
            # trl clips the ratio to these; unknown ones count as the present
            sampled = inputs["sampling_per_token_logps"]
            old = inputs["old_per_token_logps"] = torch.where(sampled.isnan(), present, sampled)
            old *= scored
        if self._sampled_elsewhere:
            self._log_difference((present - old).abs() * scored, scored)
        return logps, entropies, None

    def _log_difference(self, difference: Tensor, scored: Tensor) -> None:
        """Log the mean difference between the log-probabilities of model and sampler, in nats."""
        sums = torch.stack([difference.sum(), scored.sum()])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        self._metrics["train"]["sampling/logp_difference/mean"].append(total / max(count, 1.0))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        whole = self.args.gradient_accumulation_steps
        done = self._step % whole
        if done and done % (whole // self._updates) == 0:
            self._update_weights(model)
        return loss / self._updates

    def _update_weights(self, model: Any) -> None:
        """Take an optimizer step within a generation batch; transformers takes the last one."""
        state, processes = self.accelerator.gradient_state, self.accelerator.num_processes
        state._set_sync_gradients(True)  # else accelerate ignores the step
        # transformers lets DDP average those of the last one only
        if processes > 1:
            average_gradients(model, processes)
        self._clip_grad_norm(model)
        self.callback_handler.on_pre_optimizer_step(self.args, self.state, self.control)
        self.optimizer.step()
        model.zero_grad()
        state._set_sync_gradients(False)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        sampler.__class__ = EpochSampler
        sampler.steps_done = lambda: self.state.global_step
        return sampler
