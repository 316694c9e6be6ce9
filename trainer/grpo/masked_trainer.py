"""`trl.GRPOTrainer` that computes what its loss counts, and nothing else, in several updates.

It counts the policy's own tokens, a quarter of an episode's (`trainer.runtime.masked_logits`). Rows
whose advantage is 0 have no gradient and are left out. Each update of a step takes a part of its
rows, and clips the ratio of the probabilities to those that sampled them.

A batch is a dictionary of values by row: `prompt_mask` [B, P], padded on the left,
`completion_mask` [B, C], padded on the right, `advantages` [B] and others.
"""

from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from trainer.runtime.checkpoint import WholeCheckpoints
from trainer.runtime.masked_logits import avoid_uncompiled_kernels, prepare, score_tokens
from trainer.runtime.ranks import average_gradients

Tensor = torch.Tensor
Batch = dict[str, Any]


def counted(batch: Batch, *, idle: bool) -> Tensor:
    """Return the mask of the tokens that the loss counts, [B, C]; without `idle`, of rows whose
    advantage is not 0."""
    mask: Tensor = batch["completion_mask"] * batch["tool_mask"]
    return mask if idle else mask * (batch["advantages"] != 0).unsqueeze(1)


def split_updates(batch: Batch, updates: int, *, idle: bool) -> list[Batch]:
    """Return `updates` parts of a batch, each with its longest rows first, so that a lack of memory
    shows early; without `idle`, rows whose advantage is 0 come last.

    Part k has every `updates`th row from row k on: the same rows however many processes share the
    batch, and if `updates` divides the size of a group, as many rows of each group as other parts.
    In micro-batches of rows in trl's random order, padding doubles the CPU time of an update.
    """
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    if not idle:
        lengths *= batch["advantages"] != 0
    order = torch.argsort(lengths, descending=True, stable=True)
    parts = (order[order % updates == k] for k in range(updates))
    return [
        {name: value[rows] if value.ndim else value for name, value in batch.items()}
        for rows in parts
    ]


class MaskedGRPOTrainer(WholeCheckpoints, GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` with the same gradients for less work, and several updates per step.

    The logged entropy and clip ratios are means over micro-batches of the mean over each one's
    tokens.
    """

    _buffered_inputs: list[Batch] | None

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

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        rows: Batch = super()._generate_and_score_completions(inputs)
        if self._skip_one_verdict:
            # trl adds the columns of the rollout to its inputs
            taught = torch.tensor([one["both_verdicts"] for one in inputs])
            rows["advantages"] = rows["advantages"].where(taught.to(rows["advantages"].device), 0)
        return rows

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        chunks = self.args.gradient_accumulation_steps
        if self._step % chunks == 0 or self._buffered_inputs is None:
            rows = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = [
                micro_batch
                for part in split_updates(rows, self._updates, idle=bool(self.beta))
                for micro_batch in split_tensor_dict(part, chunks // self._updates)
            ]
        micro_batch: Batch = self._buffered_inputs[self._step % chunks]
        return micro_batch

    def compute_loss(self, model: Any, inputs: Batch, *arguments: Any, **options: Any) -> Any:
        """Return trl's loss of the log-probabilities of the tokens that it counts."""
        # the KL term of beta has a gradient of its own
        mask = counted(inputs, idle=bool(self.beta))
        ids, attention, scored = (
            torch.cat(parts, dim=1)
            for parts in (
                (inputs["prompt_ids"], inputs["completion_ids"]),
                (inputs["prompt_mask"], inputs["completion_mask"]),
                (torch.zeros_like(inputs["prompt_mask"]), mask),
            )
        )
        with self.accelerator.autocast():
            found = score_tokens(model, ids, attention, scored)
        # scattered, so that a loss without a single token has a gradient too, of 0
        logps, entropy = (
            one.new_zeros(mask.shape).masked_scatter(mask.bool(), one) for one in found
        )
        if not self.accelerator.reduce(mask.sum()):  # nothing to learn or to report
            return logps.sum()
        inputs = {**inputs, "tool_mask": mask}
        if self._updates > 1 or self._sampled_elsewhere:
            sampled, present = inputs["sampling_per_token_logps"], logps.detach()
            # unknown ones count as the present
            old = torch.where(sampled.isnan(), present, sampled) * mask
            inputs["old_per_token_logps"] = old
            if self._sampled_elsewhere:
                self._log_difference(present, old, mask)
        output = SimpleNamespace(log_probs=logps, entropy=entropy, aux_loss=None)
        loss = super().compute_loss(lambda **_: output, inputs, *arguments, **options)
        return loss * self._updates  # trl divides by the micro-batches of all updates

    def _log_difference(self, present: Tensor, sampled: Tensor, mask: Tensor) -> None:
        """Log the mean difference between the log-probabilities of model and sampler, in nats."""
        sums = torch.stack([((present - sampled).abs() * mask).sum(), mask.sum()])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        self._metrics["train"]["sampling/logp_difference/mean"].append(total / max(count, 1.0))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        chunks = self.args.gradient_accumulation_steps
        done = self._step % chunks
        if done and done % (chunks // self._updates) == 0:
            self._update_weights(model)
        return loss / self._updates

    def _update_weights(self, model: Any) -> None:
        """Take an optimizer step within a generation batch; transformers takes the last one.

        With trl's `steps_per_generation`, each would be a step of `--steps`, logs and checkpoints.
        """
        state, processes = self.accelerator.gradient_state, self.accelerator.num_processes
        state._set_sync_gradients(True)  # else accelerate ignores the step
        if processes > 1:  # transformers lets DDP average those of the last one only
            average_gradients(model, processes)
        self._clip_grad_norm(model)
        self.callback_handler.on_pre_optimizer_step(self.args, self.state, self.control)
        self.optimizer.step()
        model.zero_grad()
        state._set_sync_gradients(False)
